"""What every neighbour's process wants: SQLite that waits instead of failing, a heap not scanned for ever."""

import gc
import importlib
from typing import Any


def tune_sqlite(*, immediate: bool = False) -> None:
    """Every SQLite connection of this process waits up to 30 s for a lock and syncs as WAL needs, no more.

    With `immediate` a transaction takes the write lock when it begins: SQLite waits for a lock then, but fails at once
    when a transaction that has read wants to write after another one has written.
    """
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    engine: Any = importlib.import_module("sqlalchemy.engine")

    def prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "cache_size=-1000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def hasten(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> Any:
        return ("BEGIN IMMEDIATE" if statement == "BEGIN" else statement), parameters

    sqlalchemy.event.listen(engine.Engine, "connect", prepare)
    if immediate:
        sqlalchemy.event.listen(engine.Engine, "before_cursor_execute", hasten, retval=True)


def settle_heap() -> None:
    """Collect what loading left behind, then take what lives out of all later collections."""
    gc.collect()
    gc.freeze()
