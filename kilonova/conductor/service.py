"""The conductor's service: answers hosts, the API and the scheduler. One object for each bus that is served.

On a cell's bus it serves that cell (``cell`` is its uuid); on the API's bus it is the super conductor (``cell`` is "").
"""

from __future__ import annotations

import datetime
import uuid

import msgspec

from kilonova.base import log
from kilonova.base.context import service_context
from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict, Fault, ServerNotFound
from kilonova.base.flow import Report, Run
from kilonova.clients.neutron import Neutron
from kilonova.conductor.drive import Driver
from kilonova.conductor.liveness import Liveness
from kilonova.conductor.states import StateReader
from kilonova.contracts.conductor import Beat, HostStates, Joined
from kilonova.contracts.scheduler import Scheduler
from kilonova.core.host import Node
from kilonova.core.network import Nic
from kilonova.core.server import Guest, Server
from kilonova.store import devices, nodes, runs, servers, services
from kilonova.store.cells import CELL0_UUID, Cells
from kilonova.store.session import Database, Tx

LOG = log.of(__name__)
SHUTDOWN, CRASHED, SUSPENDED = 4, 6, 7


class ConductorService:
    """Implements the contract ``Conductor``."""

    def __init__(
        self,
        cells: Cells,
        driver: Driver,
        *,
        cell: str,
        liveness: Liveness | None,
        states: StateReader,
        scheduler: Scheduler,
        neutron: Neutron,
    ) -> None:
        self._cells, self._driver, self._cell = cells, driver, cell
        self._liveness, self._states, self._scheduler, self._neutron = liveness, states, scheduler, neutron

    def wake(self, *, run: str, where: str) -> None:
        self._driver.wake(run, where)

    def report(self, *, report: Report) -> bool:
        return self._driver.report(report)

    def join(self, *, host: str, binary: str, version: int, node: Node | None) -> Joined:
        def write(tx: Tx) -> Joined:
            service = services.ensure(tx, binary, host, version)
            services.beat(tx, binary, host, utcnow())
            if node is not None:
                nodes.upsert(tx, node)
            expected = servers.expected(tx, host) if binary == "nova-compute" else {}
            return Joined(service_uuid=service.uuid, cell=self._cell, expected=expected, disabled=service.disabled)

        joined = self._database().write(write)
        if binary == "nova-compute":
            self._map(host)
            self._changed(host)
        LOG.info("%s on %s has joined", binary, host)
        return joined

    def _map(self, host: str) -> None:
        mapped = self._cells.host_mapping(host)
        if mapped is None:
            self._cells.map_host(host, self._cell)
        elif mapped != self._cell:
            raise Conflict(f"host {host} is mapped to cell {mapped}, it cannot join cell {self._cell}")

    def beat(self, *, host: str, binary: str) -> Beat:
        found = self._database().write(lambda tx: services.beat(tx, binary, host, utcnow()))
        if found is None:
            return Beat(known=False)
        return Beat(disabled=found.disabled, forced_down=found.forced_down)

    def leave(self, *, host: str, binary: str) -> None:
        # Just as silent as it takes to count as down at once.
        silent = utcnow() - datetime.timedelta(seconds=self._states.down_time + 1)

        def write(tx: Tx) -> None:
            found = services.find(tx, binary, host)
            if found is not None:
                services.update(tx, found.uuid, last_seen_up=silent)

        self._database().write(write)
        self._changed(host)

    def record_node(self, *, node: Node) -> None:
        self._database().write(lambda tx: nodes.upsert(tx, node))
        self._tell_scheduler(node.host)

    def record_nics(self, *, server: str, nics: list[Nic]) -> None:
        def write(tx: Tx) -> None:
            try:
                servers.set_nics(tx, server, nics)
            except ServerNotFound:
                LOG.info("ports of %s, which is gone, were reported", server)

        self._database().write(write)

    def refresh_nics(self, *, servers: list[str]) -> None:
        for server in servers:
            self.record_nics(server=server, nics=self._neutron.nics(server))

    def record_power(self, *, server: str, host: str, power_state: int, at: datetime.datetime) -> None:
        """A guest that went off by itself makes its server stopped; one that runs though its server is stopped is
        stopped again. Anything under way on the server knows better, then only the power state is noted."""
        run = self._database().write(lambda tx: self._power_changed(tx, server, host, power_state=power_state, at=at))
        if run is not None:
            self._driver.wake(run, self._cell)

    def _power_changed(self, tx: Tx, server: str, host: str, *, power_state: int, at: datetime.datetime) -> str | None:
        try:
            found = servers.get(tx, server)
        except ServerNotFound:
            return None
        if found.host != host or found.task_state is not None:
            return None
        if found.updated_at is not None and found.updated_at > at and found.power_state == power_state:
            return None
        if found.power_state != power_state:
            servers.update(tx, server, power_state=power_state)
        off = power_state in (SHUTDOWN, CRASHED)
        wants_stop = (found.vm_state == "active" and (off or power_state == SUSPENDED)) or (
            found.vm_state == "stopped" and power_state not in (SHUTDOWN, CRASHED, 0)
        )
        return self._begin_stop(tx, found) if wants_stop else None

    def _begin_stop(self, tx: Tx, server: Server) -> str | None:
        state = {
            "guest": Guest(server=server),
            "host": server.host,
            "nics": server.nics,
            "devices": devices.listing(tx, server.uuid),
        }
        run = Run(
            id=str(uuid.uuid4()),
            flow="stop",
            action="stop",
            subject=server.uuid,
            state=msgspec.to_builtins(state),
            context=msgspec.structs.replace(service_context("nova-conductor"), project_id=server.project_id),
            created_at=utcnow(),
        )
        try:
            runs.begin(tx, run, vm_states={server.vm_state}, task_states={None}, task="powering-off")
        except Fault:
            return None
        return run.id

    def host_states(self, *, marker: str) -> HostStates:
        return self._states.read(marker)

    def live_runs(self, *, host: str) -> list[str]:
        """The returning host gets its work again now, not when the next look is due."""
        waiting = self._database().write(lambda tx: runs.hurry(tx, runs.awaited_from(tx, host), utcnow()))
        for run in waiting:
            self._driver.wake(run, self._cell)
        return waiting

    def _database(self) -> Database:
        """The cell's. Services of no cell are recorded in cell0."""
        return self._cells.database(self._cell or CELL0_UUID)

    def _changed(self, host: str) -> None:
        if self._liveness is not None:
            self._liveness.forget()
        self._tell_scheduler(host)

    def _tell_scheduler(self, host: str) -> None:
        try:
            self._scheduler.hosts_changed(cell=self._cell, hosts=[host])
        except Fault as error:
            LOG.info("the scheduler was not told of a change (%s); it looks by itself", error.message)
