"""The one place that wires: from a configuration to services. Nothing else knows how many processes there are.

A ``Site`` is what a process can build of a configuration, each part once and when first asked for. A program takes the
services that it is; ``kilonova up`` takes several of them from one Site whose bus is inside the process.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kilonova.api.call import Services
from kilonova.base import config, log
from kilonova.base.bus_local import LocalBus
from kilonova.base.engine import Hosts
from kilonova.base.flow import Run
from kilonova.base.rpc import Bus, client, handler
from kilonova.base.service import Service
from kilonova.base.timers import Timers
from kilonova.clients.neighbours import Neighbours, connect
from kilonova.clients.neighbours import read_options as read_neighbours
from kilonova.cmd.options import ApiDatabaseOptions, ConductorOptions, DatabaseOptions, ProcessOptions
from kilonova.conductor.drive import Driver
from kilonova.conductor.liveness import Liveness
from kilonova.conductor.reach import CellHosts, NoHosts
from kilonova.conductor.service import ConductorService
from kilonova.conductor.states import StateReader
from kilonova.contracts.compute import Compute
from kilonova.contracts.conductor import Conductor
from kilonova.contracts.scheduler import Scheduler
from kilonova.core.options import GuestOptions, HeartbeatOptions
from kilonova.flows.env import Env
from kilonova.flows.registry import FLOWS
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.options import FilterOptions, SchedulerOptions
from kilonova.scheduler.service import SchedulerService
from kilonova.store.cells import CELL0_UUID, Cells
from kilonova.store.session import Database
from kilonova.virt.roles import Driver as Hypervisor

LOG = log.of(__name__)

LOCAL = "local:"
SCHEDULING_SECONDS = 300.0


class Buses:
    """The API's bus, and the bus of each cell, opened when first needed."""

    def __init__(self, api: Bus, open_cell: Callable[[str], Bus]) -> None:
        self.api, self._open = api, open_cell
        self._cells: dict[str, Bus] = {}
        self._lock = threading.Lock()

    def cell(self, uuid: str) -> Bus:
        """The bus of a cell; the API's for "" and for cell0, which has no services."""
        if uuid in ("", CELL0_UUID):
            return self.api
        with self._lock:
            if uuid not in self._cells:
                self._cells[uuid] = self._open(uuid)
            return self._cells[uuid]

    def close(self) -> None:
        """Close all."""
        for bus in [*self._cells.values(), self.api]:
            bus.close()


class Site:
    """What a process can build of its configuration."""

    def __init__(self, conf: config.Conf, *, timers: Timers | None = None) -> None:
        self.conf = conf
        self.timers = timers or Timers(workers=8)
        self.process = config.read(ProcessOptions, conf)
        self.heartbeats = config.read(HeartbeatOptions, conf)

    @functools.cached_property
    def cells(self) -> Cells:
        """The cells, through the API database; BadConfig when none is configured."""
        options = config.read(ApiDatabaseOptions, self.conf)
        if options.connection is None:
            raise config.BadConfig("[api_database] connection is not set")
        return Cells(Database(options.connection, schema="api", name="the API", pool_size=options.max_pool_size))

    @functools.cached_property
    def buses(self) -> Buses:
        """The buses. The one of a cell is where its mapping says."""
        url = self.process.transport_url or "rabbit://"
        if url.startswith(LOCAL):
            return Buses(LocalBus(), lambda uuid: LocalBus())
        from kilonova.base.bus_oslo import OsloBus

        return Buses(
            OsloBus(self.conf, url=url), lambda uuid: OsloBus(self.conf, url=self.cells.get(uuid).transport_url)
        )

    @functools.cached_property
    def neighbours(self) -> Neighbours:
        """The neighbours' clients."""
        return connect(read_neighbours(self.conf))

    def conductor(self, cell: str) -> Conductor:
        """The conductor of a cell; the super conductor for "" and for cell0."""
        return client(Conductor, self.buses.cell(cell))

    def compute(self, cell: str, host: str) -> Compute:
        """A host."""
        return client(Compute, self.buses.cell(cell), host=host)

    @functools.cached_property
    def scheduler(self) -> Scheduler:
        """The scheduler, from outside of it."""
        return client(Scheduler, self.buses.api, timeout=SCHEDULING_SECONDS)

    @functools.cached_property
    def all_schedulers(self) -> Scheduler:
        """For what every scheduler is to hear."""
        return client(Scheduler, self.buses.api, fanout=True)

    @functools.cached_property
    def own_cell(self) -> str:
        """The uuid of the cell that this process serves."""
        real = [m for m in self.cells.all() if m.uuid != CELL0_UUID]
        wanted = self.process.cell
        found = [m.uuid for m in real if wanted is None or wanted in (m.uuid, m.name)]
        if wanted is None and len(real) > 1:
            url = config.read(DatabaseOptions, self.conf).connection
            found = [m.uuid for m in real if m.database_url == url]
        if len(found) != 1:
            raise config.BadConfig("[DEFAULT] cell must name the cell that this process serves")
        return found[0]


def api_services(site: Site) -> Services:
    """What the API's handlers may use."""
    from kilonova.api.options import read_options
    from kilonova.api.policy import Enforcer

    return Services(
        cells=site.cells,
        placement=site.neighbours.placement,
        neutron=site.neighbours.neutron,
        cinder=site.neighbours.cinder,
        glance=site.neighbours.glance,
        keystone=site.neighbours.keystone,
        policy=Enforcer(site.conf),
        conductor=site.conductor,
        compute=site.compute,
        options=read_options(site.conf),
    )


def api_application(site: Site) -> Any:
    """The WSGI application of the Compute API."""
    from kilonova.api.application import make_application
    from kilonova.api.identity import Keystone
    from kilonova.api.options import read_options

    return make_application(api_services(site), read_options(site.conf), authenticate=Keystone(site.conf))


def scheduler(site: Site) -> Service:
    """nova-scheduler."""
    options = config.read(SchedulerOptions, site.conf)
    service = Service("nova-scheduler", workers=2, timers=site.timers)
    implementation = SchedulerService(
        HostStore(site.conductor("")),
        site.neighbours.placement,
        options=options,
        filters=config.read(FilterOptions, site.conf),
        default_zone=site.heartbeats.default_availability_zone,
    )
    handle = handler(Scheduler, implementation)
    service.serve(lambda: site.buses.api.serve("scheduler", site.process.host, handle, workers=options.workers))
    _keep_record(site, service, "nova-scheduler")
    return service


def conductor(site: Site, *, cells: Iterable[str] | None = None) -> Service:
    """nova-conductor: the super conductor ("") and those of the cells named (None: all, as they are now)."""
    served = list(cells) if cells is not None else ["", *(m.uuid for m in site.cells.all() if m.uuid != CELL0_UUID)]
    service = Service("nova-conductor", workers=2, timers=site.timers)
    liveness: dict[str, Liveness] = {}
    driver = _driver(site, served, liveness)
    states = StateReader(site.cells, down_time=site.heartbeats.service_down_time)
    for cell in served:
        answers = ConductorService(
            site.cells,
            driver,
            cell=cell,
            liveness=_liveness_of(site, cell, liveness) if cell else None,
            states=states,
            scheduler=site.all_schedulers,
        )
        service.serve(functools.partial(_serve_conductor, site, cell, answers))
    service.every(1.0, driver.sweep, name="sweep", first=0.2)
    service.every(5.0, driver.renew_leases, name="renew leases", first=5.0)
    service.on_stop(driver.close)
    _keep_record(site, service, "nova-conductor")
    return service


def _serve_conductor(site: Site, cell: str, answers: object) -> Callable[[], None]:
    return site.buses.cell(cell).serve("conductor", site.process.host, handler(Conductor, answers))


def _driver(site: Site, served: list[str], liveness: dict[str, Liveness]) -> Driver:
    options = config.read(SchedulerOptions, site.conf)

    def hosts(where: str) -> Hosts:
        if where in ("", CELL0_UUID):
            return NoHosts()
        return CellHosts(site.buses.cell(where), _liveness_of(site, where, liveness))

    def env(run: Run, where: str, database: Database) -> Env:
        return Env(
            run=run,
            where=where,
            db=database,
            cells=site.cells,
            placement=site.neighbours.placement,
            neutron=site.neighbours.neutron,
            cinder=site.neighbours.cinder,
            scheduler=site.scheduler,
            compute=site.compute,
            wake=driver_wake,
            max_attempts=options.max_attempts,
        )

    def driver_wake(run: str, where: str) -> None:
        if where in swept():
            driver.wake(run, where)
        else:
            site.conductor(where).wake(run=run, where=where)

    def swept() -> list[str]:
        return [*served, CELL0_UUID] if "" in served else served

    driver = Driver(
        site.cells,
        FLOWS,
        hosts=hosts,
        env=env,
        owner=f"{site.process.host}/{os.getpid()}",
        serves=swept,
        workers=config.read(ConductorOptions, site.conf).workers,
    )
    return driver


def _liveness_of(site: Site, cell: str, known: dict[str, Liveness]) -> Liveness:
    if cell not in known:
        known[cell] = Liveness(site.cells.database(cell), down_time=site.heartbeats.service_down_time)
    return known[cell]


def _keep_record(site: Site, service: Service, binary: str) -> None:
    """A row in the services table, with heartbeats: in the first cell, as operators expect to see them."""
    from kilonova.contracts import GENERATION

    cell = next((m.uuid for m in site.cells.all() if m.uuid != CELL0_UUID), "")
    if not cell:
        return
    answers = site.conductor(cell)
    host = site.process.host

    def beat() -> None:
        if not answers.beat(host=host, binary=binary).known:
            answers.join(host=host, binary=binary, version=GENERATION, node=None)

    service.every(site.heartbeats.report_interval, beat, name=f"{binary} heartbeat", first=0.5)


def hosts(site: Site, names: Sequence[tuple[str, str]], *, driver: str) -> list[Service]:
    """nova-compute for (host name, cell) pairs; the cell is "" for a program that knows its bus only."""
    from kilonova.compute.host import ComputeHost, Shared
    from kilonova.compute.options import ComputeOptions
    from kilonova.compute.service import compute_service

    shared = Shared(
        site.neighbours,
        timers=site.timers,
        options=config.read(ComputeOptions, site.conf),
        heartbeats=site.heartbeats,
    )
    cell_of = dict(names)
    found = [
        ComputeHost(name, made, bus=site.buses.cell(cell_of[name]), shared=shared)
        for name, made in _drivers(site, list(cell_of), driver=driver)
    ]
    return [compute_service(found, shared)]


def _drivers(site: Site, names: list[str], *, driver: str) -> list[tuple[str, Hypervisor]]:
    state = Path(site.process.state_path)
    if driver == "fake":
        from kilonova.virt.fake.driver import FakeHypervisors
        from kilonova.virt.fake.options import FakeOptions

        made = FakeHypervisors(state / "fake", options=config.read(FakeOptions, site.conf), names=names)
        return [(name, simulated) for name, simulated in made.drivers()]
    if driver.startswith("libvirt"):
        from kilonova.virt.identity import identity
        from kilonova.virt.libvirt.driver import LibvirtDriver
        from kilonova.virt.libvirt.options import LibvirtOptions

        options = config.read(LibvirtOptions, site.conf)
        node = str(identity(state))
        return [(name, LibvirtDriver(options, host=name, node_uuid=node, state=state)) for name in names]
    raise config.BadConfig(f"[DEFAULT] compute_driver {driver} is not known: libvirt or fake")


def metadata_application(site: Site, *, secret: str = "") -> Any:
    """The WSGI application of the metadata service."""
    from kilonova.metadata.application import Options, make_application
    from kilonova.metadata.options import MetadataOptions
    from kilonova.metadata.records import StoredRecords

    options = config.read(MetadataOptions, site.conf)
    shared_secret = secret or options.metadata_proxy_shared_secret
    lookup = StoredRecords(site.cells, site.neighbours.neutron, domain=config.read(GuestOptions, site.conf).dhcp_domain)
    behind_proxy = options.service_metadata_proxy or bool(secret)
    return make_application(lookup, shared_secret, Options(behind_proxy=behind_proxy))


def probe_libvirt() -> tuple[bool, str]:
    """Whether real guests can be run here, with the reason."""
    from kilonova.virt.libvirt import probe

    lacking = probe.missing()
    if lacking is not None:
        return False, lacking
    return True, probe.accelerator().reason
