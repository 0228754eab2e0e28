"""A cloud in one thread for the sweeps of flows: databases, neighbours that keep books, hosts with simulated guests.

Ids of what is there from the start are fixed, so that a case can name them. ``picture`` shows all that counts, with
names in the place of ids that are drawn.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import itertools
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kilonova.base.flow import Run
from kilonova.base.journal import Journal
from kilonova.clients.cinder import Volume
from kilonova.clients.fakes.neighbours import fake_neighbours
from kilonova.clients.nics import mark_of
from kilonova.compute.options import ComputeOptions
from kilonova.compute.standing import ALWAYS, inventory_of
from kilonova.compute.steps import Builds, Steps, Tools, perform
from kilonova.conductor.states import StateReader
from kilonova.contracts.conductor import HostStates
from kilonova.core.device import BlockDevice
from kilonova.core.flavor import Flavor
from kilonova.core.network import NetworkRequest
from kilonova.core.request import RequestSpec, Selection
from kilonova.core.server import Guest, Server
from kilonova.flows.env import Env
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.options import FilterOptions, SchedulerOptions
from kilonova.scheduler.service import SchedulerService
from kilonova.store import build_requests, devices, instance_mappings, nodes, request_specs, runs, servers, services
from kilonova.store.build_requests import BuildRequest
from kilonova.store.cells import CELL0_UUID, CellMapping, Cells
from kilonova.store.instance_mappings import InstanceMapping
from kilonova.store.journal import DatabaseJournal
from kilonova.store.schema_api import build_requests as request_rows
from kilonova.store.schema_api import instance_mappings as mapping_rows
from kilonova.store.schema_api import request_specs as spec_rows
from kilonova.store.schema_cell import instances
from kilonova.store.session import Database, Tx
from kilonova.virt.fake.driver import FakeDriver
from kilonova.virt.fake.orders import Orders
from tests.flows.stage import BEGIN, RUN

CELL = "c0000000-0000-4000-8000-000000000001"
SERVER = "5f5b7c1e-7d0e-4a58-8a67-3a1f6c3b9d02"
NETWORK = "d0000000-0000-4000-8000-000000000001"
PORT = "d0000000-0000-4000-8000-000000000002"
VOLUME = "d0000000-0000-4000-8000-000000000003"
HOSTS = ("h1", "h2", "h3")
PROJECT, USER = "project", "user"
FLAVOR = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1)
WHERE: dict[str, str] = {"api": "", "cell": CELL, "cell0": CELL0_UUID}
Picture = dict[str, Any]


class Shelf:
    """Databases to take and put back: three sets of files, filled anew from a template each time."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="flows-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._sets = itertools.cycle([self._set(str(number)) for number in range(3)])
        first = self._set("template")
        for database in first.values():
            database.sync()
        _furnish(Cells(first["api"], open_database=lambda mapping: first[mapping.name]), first)
        for database in first.values():
            database.close()

    def _set(self, name: str) -> dict[str, Database]:
        return {
            kind: Database(
                f"sqlite:///{self._folder}/{name}-{kind}.db", schema="api" if kind == "api" else "cell", name=kind
            )
            for kind in WHERE
        }

    def take(self) -> dict[str, Database]:
        """Fresh ones; the last but two that were taken are no more."""
        taken = next(self._sets)
        for kind in taken:
            self._copy("template", kind, to=self._name_of(taken[kind]))
        return taken

    def _name_of(self, database: Database) -> str:
        return Path(str(database._engines.writing.url.database)).name

    def _copy(self, name: str, kind: str, *, to: str) -> None:
        source = sqlite3.connect(self._folder / f"{name}-{kind}.db")
        target = sqlite3.connect(self._folder / to)
        source.backup(target)
        source.close()
        target.close()


def node_uuid(host: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, host))


def _furnish(cells: Cells, databases: Mapping[str, Database]) -> None:
    for name in ("cell0", "cell"):
        cells.add(CellMapping(uuid=WHERE[name], name=name, transport_url="", database_url=f"sqlite:///{name}"))

    def write(tx: Tx) -> None:
        for host in HOSTS:
            services.ensure(tx, "nova-compute", host, 1)
            node = FakeDriver(host, node_uuid=node_uuid(host)).node()
            nodes.upsert(tx, msgspec.structs.replace(node, traits=[*node.traits, *ALWAYS]))

    databases["cell"].write(write)
    for host in HOSTS:
        cells.map_host(host, CELL)


@functools.cache
def shelf() -> Shelf:
    return Shelf()


class _States:
    """What the scheduler asks of the conductor."""

    def __init__(self, cells: Cells) -> None:
        self._reader = StateReader(cells, down_time=1e9)

    def host_states(self, *, marker: str) -> HostStates:
        return self._reader.read(marker)


class World:
    """``where``: the name of the database that holds the run of the play. ``now`` is the stage's clock once bound."""

    def __init__(self, where: str = "cell", scene: Callable[[World], object] = lambda world: None) -> None:
        self.databases = shelf().take()
        self.db = self.databases[where]
        self.where = WHERE[where]
        self.cells = Cells(self.databases["api"], open_database=lambda mapping: self.databases[mapping.name])
        self.now: Callable[[], datetime.datetime] = lambda: BEGIN
        self.neighbours = fake_neighbours()
        self.orders = Orders()
        self.options = ComputeOptions()
        self.drivers = {h: FakeDriver(h, node_uuid=node_uuid(h), orders=self.orders) for h in HOSTS}
        self.woken: list[tuple[str, str]] = []
        self.forgotten: list[tuple[str, str]] = []
        self._furnish_neighbours()
        self.scheduler = SchedulerService(
            HostStore(_States(self.cells)),  # type: ignore[arg-type]
            self.neighbours.placement,
            options=SchedulerOptions(),
            filters=FilterOptions(),
        )
        scene(self)

    def _furnish_neighbours(self) -> None:
        placement, neutron, cinder = self.neighbours.placement, self.neighbours.neutron, self.neighbours.cinder
        for host, driver in self.drivers.items():
            placement.ensure_provider(node_uuid(host), host)
            placement.ensure_inventory(node_uuid(host), inventory_of(driver.node(), self.options))
            placement.ensure_traits(node_uuid(host), [*driver.node().traits, *ALWAYS])
        network = neutron.add_network("private", project_id=PROJECT)
        del neutron.nets[network.id]
        neutron.nets[NETWORK] = msgspec.structs.replace(network, id=NETWORK)
        for subnet in neutron.subnets.values():
            subnet["network_id"] = NETWORK
        port = neutron.add_port(NETWORK, project_id=PROJECT)
        del neutron.records[port["id"]]
        neutron.records[PORT] = port | {"id": PORT}
        cinder.volumes[VOLUME] = Volume(id=VOLUME, name="data", status="available", size=1, project_id=PROJECT)

    # --- what Stage and engines want

    def bind(self, now: Callable[[], datetime.datetime]) -> None:
        self.now = now

    def env(self, run: Run) -> Env:
        return self.env_of(run, self.where, self.db)

    def env_of(self, run: Run, where: str, database: Database) -> Env:
        typed = self.neighbours.typed()
        return Env(
            run=run,
            where=where,
            db=database,
            cells=self.cells,
            placement=typed.placement,
            neutron=typed.neutron,
            cinder=typed.cinder,
            scheduler=self.scheduler,
            compute=self.compute,
            wake=self.wake,
            now=self.now,
        )

    def wake(self, run: str, where: str) -> None:
        self.woken.append((run, where))

    def compute(self, cell: str, host: str) -> Any:
        world = self

        class Remote:
            def forget(self, *, run: str) -> None:
                world.forget(host, run)

        return Remote()

    def forget(self, host: str, run: str) -> None:
        self.forgotten.append((host, run))

    def journal(self) -> Journal:
        return DatabaseJournal(self.db)

    def tools(self, host: str) -> Tools:
        typed = self.neighbours.typed()
        return Tools(
            host=host,
            driver=self.drivers[host],
            neutron=typed.neutron,
            cinder=typed.cinder,
            images=None,
            options=self.options,
            builds=Builds(),
            changed=lambda: None,
            power_seen=lambda server, power: None,
        )

    def perform(self, host: str, method: str, values: dict[str, Any]) -> Mapping[str, Any]:
        return perform(self.tools(host), method, values, lambda: None)

    # --- setting the scene

    def reserve(self, server: str = SERVER) -> list[BlockDevice]:
        """The devices of a server, the volume that is there already reserved for it."""
        attachment = self.neighbours.cinder.reserve(VOLUME, server)
        return devices_of(server, attachment=attachment)

    def request(self, server: str = SERVER, *, volumes: bool = True, **more: Any) -> None:
        """A server that waits to be placed."""
        wanted = BuildRequest(
            server=record(server, volume_backed=volumes, **more),
            request=spec(),
            devices=self.reserve(server) if volumes else [],
            networks=networks(port=volumes),
            admin_password="hunter2",
            files=[("/etc/motd", "aGVsbG8=")],
            run=RUN,
        )
        self.databases["api"].write(lambda tx: build_requests.insert(tx, wanted))

    def enter(self, server: Server, held: list[BlockDevice], cell: str = "cell") -> None:
        """A server in a cell, as a hand-over leaves it."""

        def write(tx: Tx) -> None:
            mapping = InstanceMapping(
                server=server.uuid, project_id=PROJECT, user_id=USER, created_at=BEGIN, cell=WHERE[cell]
            )
            instance_mappings.insert(tx, mapping)
            request_specs.put(tx, server.uuid, spec())

        self.databases["api"].write(write)
        self.databases[cell].write(lambda tx: servers.insert(tx, server, held))

    def claim(self, host: str, server: str = SERVER) -> None:
        assert self.neighbours.placement.claim(server, allocations(host), project_id=PROJECT, user_id=USER)

    def build(self, host: str = "h1", **more: Any) -> Server:
        """A server that runs, made by the very steps of its host."""
        self.claim(host)
        server = record(volume_backed=True, **more)
        held = self.reserve()
        steps, guest = Steps(self.tools(host)), Guest(server=server)
        nics = steps.plug_ports(guest=guest, networks=networks(), host=host).nics
        attached = steps.attach_volumes(guest=guest, devices=held, host=host).devices
        power = steps.spawn_guest(guest=guest, nics=nics, devices=attached).power_state
        placed = {"host": host, "node": host, "node_uuid": node_uuid(host), "launched_on": host}
        states = {"vm_state": "active", "power_state": power, "launched_at": BEGIN, "nics": nics}
        server = msgspec.structs.replace(server, **(placed | states | more))
        self.enter(server, attached)
        return server

    # --- looking

    def picture(self) -> Picture:
        """All that counts. The run of the play itself is not in it."""
        return {
            "claims": self._claims(),
            "ports": self._ports(),
            "volumes": self._volumes(),
            "guests": {host: driver.guests() for host, driver in self.drivers.items()},
            "servers": {kind: self.databases[kind].query(self._servers) for kind in ("cell", "cell0")},
            "runs": {kind: self.databases[kind].query(_runs) for kind in WHERE},
            **self.databases["api"].query(_api),
        }

    def _claims(self) -> dict[str, Any]:
        names = {node_uuid(host): host for host in HOSTS}
        return {
            consumer: {names[provider]: part["resources"] for provider, part in held.allocations.items()}
            for consumer, held in self.neighbours.placement.held.items()
        }

    def _ports(self) -> list[tuple[Any, ...]]:
        found = self.neighbours.neutron.records.values()
        return sorted(
            (str(mark_of(p)), p["device_id"], p["binding:host_id"], p["binding:vif_type"], p["id"] == PORT)
            for p in found
        )

    def _volumes(self) -> list[tuple[Any, ...]]:
        cinder = self.neighbours.cinder
        held: dict[str, list[Any]] = {}
        for a in cinder.records.values():
            held.setdefault(a["volume_id"], []).append((a["instance"], a["status"], a.get("host")))
        return sorted(
            (self._label(v.id), v.status, sorted(held.get(v.id, []), key=str)) for v in cinder.volumes.values()
        )

    def _label(self, volume: str | None) -> str:
        if volume in (None, VOLUME):
            return "data" if volume else ""
        return self.neighbours.cinder.metadata.get(str(volume), {}).get("kilonova", "unmarked")

    def _servers(self, tx: Tx) -> dict[str, Any]:
        uuids = [row.uuid for row in tx.rows(instances.select())]
        found = servers.many(tx, uuids, deleted=True)
        faults, held = servers.latest_faults(tx, uuids), devices.for_servers(tx, uuids)
        known = self.neighbours.neutron.records
        return {
            one.uuid: {
                "state": (one.vm_state, one.task_state, one.power_state, one.deleted),
                "host": (one.host, one.node, one.node_uuid),
                "fault": (faults[one.uuid].code, faults[one.uuid].message) if one.uuid in faults else None,
                "nics": [nic.port_id == PORT if nic.port_id in known else "gone" for nic in one.nics],
                "devices": [
                    (self._label(d.volume_id), d.attachment_id in self.neighbours.cinder.records)
                    for d in held.get(one.uuid, [])
                    if d.is_volume
                ],
                "launched": one.launched_at is not None,
            }
            for one in found.values()
        }


def _runs(tx: Tx) -> list[tuple[str, ...]]:
    """A run that has hosts to choose from shows the first, which is claimed."""
    found = [run for run, _ in runs.runs(tx) if run.id != RUN]
    first = {run.id: next((s["host"] for s in run.state.get("selections", [])), "") for run in found}
    return sorted((run.flow, run.subject, run.status.value, first[run.id]) for run in found)


def _api(tx: Tx) -> dict[str, Any]:
    r, m = request_rows.c, mapping_rows.c
    names = {None: None, CELL: "cell", CELL0_UUID: "cell0"}
    return {
        "requests": {
            row[0]: "taken" if row[1] else "waits"
            for row in tx.rows(request_rows.select().with_only_columns(r.instance_uuid, r.taken))
        },
        "mappings": {
            row[0]: (names[row[1]], row[2])
            for row in tx.rows(mapping_rows.select().with_only_columns(m.instance_uuid, m.cell, m.queued_for_delete))
        },
        "specs": sorted(row[0] for row in tx.rows(spec_rows.select().with_only_columns(spec_rows.c.instance_uuid))),
    }


# --- records


def record(server: str = SERVER, **more: Any) -> Server:
    given: dict[str, Any] = {"name": "vm", "flavor": FLAVOR, "created_at": BEGIN, "security_groups": ["default"]}
    return Server(uuid=server, project_id=PROJECT, user_id=USER, **(given | more))


def spec(**more: Any) -> RequestSpec:
    given: dict[str, Any] = {"flavor": FLAVOR, "volume_backed": True, "request_id": "req-of-the-play"}
    return RequestSpec(project_id=PROJECT, user_id=USER, **(given | more))


def networks(*, port: bool = True) -> list[NetworkRequest]:
    return [NetworkRequest(network_id=NETWORK), *([NetworkRequest(port_id=PORT)] if port else [])]


def devices_of(server: str = SERVER, *, attachment: str | None = None) -> list[BlockDevice]:
    """A volume of the user's, reserved, and one to be made that goes with the server."""
    ids = [str(uuid.uuid5(uuid.UUID(server), name)) for name in ("data", "scratch")]
    there = {"source_type": "volume", "volume_id": VOLUME, "attachment_id": attachment, "boot_index": 0}
    made = {"source_type": "blank", "size": 1, "delete_on_termination": True}
    return [BlockDevice(uuid=i, destination_type="volume", **d) for i, d in zip(ids, (there, made), strict=True)]


def allocations(host: str) -> dict[str, Any]:
    wanted = {"VCPU": FLAVOR.vcpus, "MEMORY_MB": FLAVOR.memory_mb}
    return {"allocations": {node_uuid(host): {"resources": wanted}}, "mappings": {"": [node_uuid(host)]}}


def selection(host: str) -> Selection:
    return Selection(
        host=host,
        node=host,
        node_uuid=node_uuid(host),
        cell=CELL,
        allocations=allocations(host),
        availability_zone="nova",
    )
