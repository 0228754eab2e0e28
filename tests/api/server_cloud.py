"""The Compute API with neighbours in memory and a conductor that only listens: what the tests of servers ask."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from kilonova.api.moments import now
from kilonova.api.options import Options
from kilonova.base.flow import Run
from kilonova.clients.fakes.neighbours import FakeNeighbours, fake_neighbours
from kilonova.core.flavor import Flavor
from kilonova.core.network import FixedIP, Nic
from kilonova.core.server import Server
from kilonova.store import build_requests, flavors, instance_mappings, journal, servers
from kilonova.store.build_requests import BuildRequest
from kilonova.store.session import Tx
from tests.api.cloud import PROJECT, Answered, Cloud

SMALL = Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1, extra_specs={"a:b": "c"})


class Listening:
    """A conductor that remembers what it was woken for."""

    def __init__(self) -> None:
        self.woken: list[tuple[str, str]] = []
        self.refreshed: list[str] = []

    def wake(self, *, run: str, where: str) -> None:
        self.woken.append((run, where))

    def refresh_nics(self, *, servers: list[str]) -> None:
        self.refreshed += servers


class Console:
    """A host whose guests have said three lines."""

    def console_output(self, *, server: str, length: int | None) -> str:
        lines = ["one\x00", "two", "three"]
        return "\n".join(lines if length is None else lines[len(lines) - length :])


class ServerCloud(Cloud):
    """A cloud with a flavor, an image, one network and one host."""

    def __init__(self, folder: Path, *, reference: Path | None, options: Options | None = None) -> None:
        self.neighbours: FakeNeighbours = fake_neighbours()
        self.conductor = Listening()
        super().__init__(
            folder,
            reference=reference,
            options=options,
            neutron=self.neighbours.neutron,
            cinder=self.neighbours.cinder,
            glance=self.neighbours.glance,
            conductor=lambda cell: self.conductor,
            compute=lambda cell, host: Console(),
        )
        self.cells.api.write(lambda tx: flavors.insert(tx, msgspec.structs.replace(SMALL)))
        self.image = self.neighbours.glance.add_image(architecture="x86_64")
        self.network = self.neighbours.neutron.add_network("private", project_id=PROJECT)

    def new(self, version: str, **changes: Any) -> dict[str, Any]:
        """The body of a create, as small as the version allows; a change to None takes an attribute away."""
        server: dict[str, Any] = {"name": "s", "flavorRef": "1", "imageRef": self.image.id}
        if int(version.partition(".")[2]) >= 37:
            server["networks"] = "auto"
        server |= changes
        return {"server": {name: value for name, value in server.items() if value is not None}}

    def create(self, version: str = "2.1", *, who: str = "member", **changes: Any) -> Answered:
        """POST /servers."""
        return self.post("/servers", version, self.new(version, **changes), who=who)

    def created(self, version: str = "2.1", **changes: Any) -> str:
        """The id of a server that is a build request."""
        answer = self.create(version, **changes)
        assert answer.code == 202, answer.body
        return str(answer.body["server"]["id"])

    def running(self, **changes: Any) -> Server:
        """A server in the cell that runs."""
        server = self.record(**changes)
        self.put_server(server, cell=self.cell)
        return server

    def record(self, **changes: Any) -> Server:
        """The record of a server that runs."""
        at = now()
        nic = Nic(
            port_id=str(uuid4()),
            network_id=self.network.id,
            network_name="private",
            mac="fa:16:3e:00:00:01",
            fixed_ips=[FixedIP(address="10.0.0.5", version=4, floating=["172.24.4.9"])],
        )
        server = Server(
            uuid=str(uuid4()),
            project_id=PROJECT,
            user_id="member-user",
            name="s",
            flavor=SMALL,
            created_at=at,
            updated_at=at,
            launched_at=at,
            vm_state="active",
            task_state=None,
            power_state=1,
            host="h1",
            node="h1.example",
            hostname="s",
            image_id=self.image.id,
            image_properties={"architecture": "x86_64"},
            reservation_id="r-abcdefgh",
            security_groups=["default"],
            nics=[nic],
        )
        return msgspec.structs.replace(server, **changes)

    def put_server(self, server: Server, *, cell: str) -> None:
        """Enter a server into a cell."""
        self.cells.database(cell).write(lambda tx: servers.insert(tx, server))
        mapping = instance_mappings.InstanceMapping(
            server=server.uuid,
            project_id=server.project_id,
            user_id=server.user_id,
            created_at=server.created_at,
            cell=cell,
        )
        self.cells.api.write(lambda tx: instance_mappings.insert(tx, mapping))

    def hand_over(self, uuid: str) -> Server:
        """What the boot does: the build request becomes a server of the cell."""

        def take(tx: Tx) -> BuildRequest:
            request = build_requests.get(tx, uuid)
            build_requests.delete(tx, uuid)
            instance_mappings.set_cell(tx, uuid, self.cell)
            return request

        request = self.request(uuid)
        self.cells.database(self.cell).write(lambda tx: servers.insert(tx, request.server, request.devices))
        return self.cells.api.write(take).server

    def request(self, uuid: str) -> BuildRequest:
        """The build request of a server."""
        return self.cells.api.query(lambda tx: build_requests.get(tx, uuid))

    def requests(self) -> list[BuildRequest]:
        """All build requests."""
        return self.cells.api.query(build_requests.listing)

    def in_cell(self, uuid: str) -> Server:
        """The server as its cell has it."""
        return self.cells.database(self.cell).query(lambda tx: servers.get(tx, uuid))

    def runs(self, subject: str, *, cell: str = "") -> list[Run]:
        """The runs about a server."""
        database = self.cells.database(cell) if cell else self.cells.api
        return [run for run, _ in database.query(lambda tx: journal.runs(tx, subject=subject))]


def limited(**changes: Any) -> Options:
    """Options with other limits."""
    options = Options()
    return dataclasses.replace(options, quota=dataclasses.replace(options.quota, **changes))
