"""What the hosts of a cell understand: the contract version of the oldest, as the services table of the cell tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kilonova.base import log
from kilonova.base.errors import DatabaseUnavailable, NotFound
from kilonova.contracts import COMPUTE_VERSIONS
from kilonova.store import services
from kilonova.store.session import Database

LOG = log.of(__name__)

FRESH = 15.0
AUTO = "auto"


class Caps:
    """The versions, read of each cell now and then. ``fixed``: "auto", or the version whatever the hosts say.

    A host that joins with an older version counts after ``FRESH`` seconds; until then it refuses what it does not know.
    """

    def __init__(
        self, database: Callable[[str], Database], *, fixed: str = AUTO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database, self._fixed, self._clock = database, fixed, clock
        self._known: dict[str, tuple[float, str | None]] = {}
        self._lock = threading.Lock()

    def compute(self, cell: str) -> str | None:
        """The contract version that every host of the cell knows; None where there is no limit known."""
        if self._fixed != AUTO:
            return self._fixed
        with self._lock:
            read_at, cap = self._known.get(cell, (float("-inf"), None))
            if self._clock() - read_at < FRESH:
                return cap
            # Whoever comes while this one asks takes the older answer.
            self._known[cell] = (self._clock(), cap)
        try:
            oldest = self._database(cell).query(lambda tx: services.min_version(tx, "nova-compute"))
        except (DatabaseUnavailable, NotFound) as error:
            LOG.info("the versions of the hosts of cell %s are not known: %s", cell, error.message)
            return cap
        cap = None if oldest is None else version_of(oldest)
        with self._lock:
            self._known[cell] = (self._clock(), cap)
        return cap


def version_of(generation: int) -> str:
    """The compute contract of a generation of services; that of the first one for those that are older still."""
    known = [since for since in COMPUTE_VERSIONS if since <= generation]
    return COMPUTE_VERSIONS[max(known, default=min(COMPUTE_VERSIONS))]
