"""Which hosts of a cell are alive, as a conductor believes it: read from the services table at most once a second."""

from __future__ import annotations

import threading
import time

from kilonova.base.engine import utcnow
from kilonova.store import services
from kilonova.store.session import Database

FRESH = 1.0


class Liveness:
    """Answers ``is_up`` for the compute hosts of one cell."""

    def __init__(self, database: Database, *, down_time: float) -> None:
        self._database, self._down_time = database, down_time
        self._up: dict[str, bool] = {}
        self._read = -1e9
        self._lock = threading.Lock()

    def is_up(self, host: str) -> bool:
        """Whether the host's nova-compute has beaten within the down time and nobody forced it down."""
        with self._lock:
            if time.monotonic() - self._read > FRESH:
                self._refresh()
            return self._up.get(host, False)

    def forget(self) -> None:
        """Read again at the next question: something has just changed."""
        with self._lock:
            self._read = -1e9

    def _refresh(self) -> None:
        now = utcnow()
        with self._database.read() as tx:
            found = services.listing(tx, binary="nova-compute")
        self._up = {s.host: s.is_up(now=now, down_time=self._down_time) for s in found}
        self._read = time.monotonic()
