"""Drives the runs of every database that this conductor serves: wakes, reports, and sweeps over what nobody drives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from kilonova.base import log
from kilonova.base.engine import Engine, Hosts, Timing
from kilonova.base.errors import DatabaseUnavailable, NotFound
from kilonova.base.flow import Flow, Report, Run
from kilonova.base.pool import Draining, Pool
from kilonova.flows.env import Env
from kilonova.store.cells import Cells
from kilonova.store.journal import DatabaseJournal
from kilonova.store.session import Database

LOG = log.of(__name__)

TIMING = Timing(lease=10.0)
"""A conductor that dies holds up its runs for so long; one that lives renews its leases well within it."""
RENEW_SECONDS = 2.5


class Driver:
    """Engines by database ("" is the API database), and the threads that advance runs.

    A run that is asked for while it waits in the queue is queued once; asked for while it is driven, once more behind.
    """

    def __init__(
        self,
        cells: Cells,
        flows: Mapping[str, Flow],
        *,
        hosts: Callable[[str], Hosts],
        env: Callable[[Run, str, Database], Env],
        owner: str,
        serves: Callable[[], list[str]],
        workers: int = 24,
    ) -> None:
        self._cells, self._flows, self._hosts, self._env = cells, flows, hosts, env
        self._owner, self._serves = owner, serves
        self._engines: dict[str, Engine] = {}
        self._queued: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._pool = Pool(workers, "flow")
        self._closed = False

    def engine(self, where: str) -> Engine:
        """The engine of a database, made when first asked for."""
        with self._lock:
            found = self._engines.get(where)
            if found is None:
                database = self._cells.api if where == "" else self._cells.database(where)
                found = self._engines[where] = Engine(
                    self._flows,
                    DatabaseJournal(database),
                    self._hosts(where),
                    env=lambda run: self._env(run, where, database),
                    where=where,
                    owner=self._owner,
                    timing=TIMING,
                )
            return found

    def wake(self, run: str, where: str) -> None:
        """Queue a run."""
        with self._lock:
            if self._closed or (run, where) in self._queued:
                return
            self._queued.add((run, where))
        try:
            self._pool.run(self._advance, run, where)
        except Draining:
            LOG.debug("run %s is left to others", run)

    def report(self, report: Report) -> bool:
        """Journal what a host says, then drive the run on."""
        engine = self.engine(report.where)
        try:
            if engine.report(report):
                self.wake(report.run, report.where)
                return True
            return engine.knows(report)
        except NotFound:
            return False

    def sweep(self) -> None:
        """Queue every run that nobody drives and that is due."""
        for where in self._serves():
            try:
                for run in self.engine(where).due():
                    self.wake(run, where)
            except DatabaseUnavailable as error:
                LOG.warning("no sweep: %s", error.message)

    def renew_leases(self) -> None:
        """Keep what is being driven here."""
        with self._lock:
            engines = list(self._engines.values())
        for engine in engines:
            try:
                engine.renew_leases()
            except DatabaseUnavailable as error:
                LOG.warning("leases were not renewed: %s", error.message)

    def close(self, seconds: float = 60.0) -> bool:
        """Drive nothing more; what is being driven goes on to where it ends or waits. Whether it got there in time.

        Leases are to be renewed meanwhile. What waits in the queue is due for any other conductor.
        """
        with self._lock:
            self._closed = True
        return self._pool.drain(seconds)

    def _advance(self, run: str, where: str) -> None:
        with self._lock:
            self._queued.discard((run, where))
            if self._closed:
                return
        try:
            self.engine(where).advance(run)
        except (DatabaseUnavailable, NotFound) as error:
            LOG.warning("run %s was not driven: %s", run, error.message)
        except Exception:
            LOG.exception("run %s was not driven", run)
