"""What every neighbour's process wants: SQLite that waits instead of failing, and a heap that is not scanned for ever."""

import gc
import importlib
from typing import Any


def tune_sqlite() -> None:
    """Every SQLite connection of this process waits up to 30 s for a lock and syncs as WAL needs, no more."""
    sqlalchemy: Any = importlib.import_module("sqlalchemy")
    engine: Any = importlib.import_module("sqlalchemy.engine")

    def prepare(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "cache_size=-1000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    sqlalchemy.event.listen(engine.Engine, "connect", prepare)


def settle_heap() -> None:
    """Collect what loading left behind, then take what lives out of all later collections."""
    gc.collect()
    gc.freeze()
