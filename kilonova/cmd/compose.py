"""The one place that wires: from a configuration to services. Nothing else knows how many processes there are.

A ``Site`` is what a process can build of a configuration, each part once and when first asked for. A program takes the
services that it is; ``kilonova up`` takes several of them from one Site whose bus is inside the process. What a
hypervisor runs is wired in ``kilonova.cmd.hosts``, which needs no database.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

from kilonova.api.call import Services
from kilonova.base import config, log
from kilonova.base.engine import Hosts
from kilonova.base.flow import Run
from kilonova.base.rpc import handler
from kilonova.base.service import Service
from kilonova.cmd.hosts import hosts, probe_libvirt
from kilonova.cmd.options import ConductorOptions
from kilonova.cmd.records import keep_record
from kilonova.cmd.site import Buses, Site
from kilonova.conductor.drive import RENEW_SECONDS, Driver
from kilonova.conductor.liveness import Liveness
from kilonova.conductor.purge import Purge
from kilonova.conductor.reach import CellHosts, NoHosts
from kilonova.conductor.service import ConductorService
from kilonova.conductor.states import StateReader
from kilonova.contracts.conductor import Conductor
from kilonova.contracts.scheduler import Scheduler
from kilonova.core.options import GuestOptions
from kilonova.flows.env import Env
from kilonova.flows.registry import FLOWS
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.options import FilterOptions, SchedulerOptions
from kilonova.scheduler.service import SchedulerService
from kilonova.store.cells import CELL0_UUID
from kilonova.store.session import Database

__all__ = [
    "Buses",
    "Site",
    "api_application",
    "conductor",
    "hosts",
    "keep_record",
    "metadata_application",
    "probe_libvirt",
    "scheduler",
]

LOG = log.of(__name__)


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
    keep_record(site, service, "nova-scheduler")
    return service


def conductor(site: Site, *, cells: Iterable[str] | None = None, ready: Callable[[], bool] = lambda: True) -> Service:
    """nova-conductor: the super conductor ("") and those of the cells named (None: all, as they are now).

    Until ``ready`` it lets lie what an earlier process left unfinished.
    """
    served = list(cells) if cells is not None else ["", *(m.uuid for m in site.cells.all() if m.uuid != CELL0_UUID)]
    service = Service("nova-conductor", workers=2, timers=site.timers)
    liveness: dict[str, Liveness] = {}
    driver = _driver(site, served, liveness)
    states = StateReader(site.cells, down_time=site.heartbeats.service_down_time)
    # Ended last, when no more work comes in; until then the timers go on renewing the leases.
    service.serve(lambda: driver.close)
    answering = []
    for cell in served:
        answers = ConductorService(
            site.cells,
            driver,
            cell=cell,
            liveness=_liveness_of(site, cell, liveness) if cell else None,
            states=states,
            scheduler=site.all_schedulers,
            neutron=site.neighbours.neutron,
        )
        answering.append(answers)
        service.serve(functools.partial(_serve_conductor, site, cell, answers))
    service.every(1.0, lambda: driver.sweep() if ready() else None, name="sweep", first=0.2)
    days = config.read(ConductorOptions, site.conf).purge_deleted_days
    if days:
        service.every(3600.0, Purge(site.cells, days=days).run, name="purge", jitter=600.0)
    service.every(RENEW_SECONDS, driver.renew_leases, name="renew leases", first=RENEW_SECONDS)
    keep_record(site, service, "nova-conductor", tell=answering[0])
    return service


def _serve_conductor(site: Site, cell: str, answers: object) -> Callable[[], None]:
    return site.buses.cell(cell).serve("conductor", site.process.host, handler(Conductor, answers))


def _driver(site: Site, served: list[str], liveness: dict[str, Liveness]) -> Driver:
    options = config.read(SchedulerOptions, site.conf)

    def hosts(where: str) -> Hosts:
        if where in ("", CELL0_UUID):
            return NoHosts()
        return CellHosts(
            site.buses.cell(where), _liveness_of(site, where, liveness), cap=lambda: site.caps.compute(where)
        )

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


def metadata_application(site: Site, *, secret: str = "") -> Any:
    """The WSGI application of the metadata service."""
    from kilonova.metadata.application import Options, make_application
    from kilonova.metadata.options import MetadataOptions
    from kilonova.metadata.records import StoredRecords

    options = config.read(MetadataOptions, site.conf)
    shared_secret = secret or options.metadata_proxy_shared_secret
    lookup = StoredRecords(site.cells, site.neighbours.neutron, domain=config.read(GuestOptions, site.conf).dhcp_domain)
    behind_proxy = options.service_metadata_proxy or bool(secret)
    return make_application(lookup, shared_secret, Options(behind_proxy=behind_proxy), vendor=site.vendor)
