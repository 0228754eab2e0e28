"""Deleted servers are shown for a time, then removed for good, with their journals: by the service itself."""

from __future__ import annotations

import datetime

from kilonova.base import log
from kilonova.base.engine import utcnow
from kilonova.base.errors import DatabaseUnavailable
from kilonova.store import instance_mappings, runs, servers
from kilonova.store.cells import Cells
from kilonova.store.session import Database, Tx

LOG = log.of(__name__)
BATCH = 200


class Purge:
    """Removes what was deleted more than ``days`` ago, a batch per database and call."""

    def __init__(self, cells: Cells, *, days: int) -> None:
        self._cells, self._days = cells, days

    def run(self) -> int:
        """How many servers were removed. Cells that do not answer are left for the next time."""
        before = utcnow() - datetime.timedelta(days=self._days)
        removed = 0
        for mapping in self._cells.all(disabled=True):
            try:
                removed += self._purge_cell(self._cells.database(mapping.uuid), before)
            except DatabaseUnavailable as error:
                LOG.info("nothing was purged: %s", error.message)
        self._cells.api.write(lambda tx: runs.purge(tx, before, limit=BATCH))
        if removed:
            LOG.info("purged %d servers that were deleted before %s", removed, before.date())
        return removed

    def _purge_cell(self, database: Database, before: datetime.datetime) -> int:
        with database.read() as tx:
            gone = servers.deleted_before(tx, before, limit=BATCH)

        def forget_mappings(tx: Tx) -> None:
            for server in gone:
                instance_mappings.remove(tx, server)

        def forget(tx: Tx) -> None:
            for server in gone:
                servers.hard_delete(tx, server)
            runs.purge(tx, before, limit=BATCH)

        # The mapping first: a server without one is not found, while one whose row is gone would be looked for in vain.
        self._cells.api.write(forget_mappings)
        database.write(forget)
        return len(gone)
