"""The book-keeper: what every party holds for servers, and where that differs from what the living servers need."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec

from tests.functional.cloud import Cloud, User

Resources = dict[str, int]


class Living(msgspec.Struct, kw_only=True):
    """What a server needs. ``volumes``: ids of those attached to it."""

    name: str
    status: str
    host: str
    resources: Resources
    volumes: list[str] = []
    ports: int = 1


class Books(msgspec.Struct, kw_only=True):
    """All books at one moment.

    ``allocations``: by consumer and host; ``ports``, ``attachments``: ids by the server they name; ``guests``: host by
    server; ``volumes``: status by id; ``kept``: volumes that users made; ``unfinished``: runs that have not ended,
    build requests that nobody took, in words.
    """

    servers: dict[str, Living] = {}
    allocations: dict[str, dict[str, Resources]] = {}
    ports: dict[str, list[str]] = {}
    attachments: dict[str, list[str]] = {}
    guests: dict[str, list[str]] = {}
    volumes: dict[str, str] = {}
    kept: list[str] = []
    unfinished: list[str] = []


def differences(books: Books) -> list[str]:
    """What somebody holds that no living server needs, or lacks though one does; empty when all agree."""
    return [
        *(f"server {s.name} ({uuid}) is {s.status}" for uuid, s in books.servers.items() if s.status != "ACTIVE"),
        *_strangers(books),
        *(text for uuid, server in books.servers.items() for text in _of_server(books, uuid, server)),
        *_volumes(books),
        *books.unfinished,
    ]


def _strangers(books: Books) -> Iterator[str]:
    held = {
        "Placement": books.allocations,
        "Neutron": books.ports,
        "Cinder": books.attachments,
        "the hosts": books.guests,
    }
    for party, book in held.items():
        for uuid in book.keys() - books.servers.keys():
            yield f"{party}: {book[uuid]} is held by {uuid or 'nobody'}, which is no living server"  # type: ignore[index]


def _of_server(books: Books, uuid: str, server: Living) -> Iterator[str]:
    expected: list[tuple[str, object, object]] = [
        ("Placement", books.allocations.get(uuid, {}), {server.host: server.resources}),
        ("ports", len(books.ports.get(uuid, [])), server.ports),
        ("attachments", sorted(books.attachments.get(uuid, [])), sorted(server.volumes)),
        ("hosts", books.guests.get(uuid, []), [server.host]),
    ]
    for what, held, wanted in expected:
        if held != wanted:
            yield f"{what} of server {server.name} ({uuid}): {held!r}, needed is {wanted!r}"


def _volumes(books: Books) -> Iterator[str]:
    used = {volume for server in books.servers.values() for volume in server.volumes}
    for volume, status in books.volumes.items():
        wanted = "in-use" if volume in used else "available"
        if volume not in used and volume not in books.kept:
            yield f"volume {volume} ({status}) was made for a server that is gone"
        elif status != wanted:
            yield f"volume {volume} is {status}, not {wanted}"
    for volume in {*used, *books.kept} - books.volumes.keys():
        yield f"volume {volume} is missing"


def read(cloud: Cloud, admin: User, *, kept: list[str]) -> Books:
    """The books of a composed cloud, all read afresh."""
    servers = {}
    for found in admin.get("/servers/detail?all_tenants=1&limit=1000")["servers"]:
        flavor = found["flavor"]
        volumes = [volume["id"] for volume in found["os-extended-volumes:volumes_attached"]]
        resources = {"VCPU": flavor["vcpus"], "MEMORY_MB": flavor["ram"]}
        if found["image"]:
            resources["DISK_GB"] = flavor["disk"]
        servers[found["id"]] = Living(
            name=found["name"],
            status=found["status"],
            host=found["OS-EXT-SRV-ATTR:host"] or "",
            resources=resources,
            volumes=volumes,
        )
    return Books(
        servers=servers,
        allocations=_allocations(admin),
        ports=_ports(admin),
        attachments=_attachments(admin),
        guests=_guests(cloud),
        volumes={v["id"]: v["status"] for v in _all(admin, "volumes")},
        kept=kept,
        unfinished=_unfinished(cloud),
    )


def _all(admin: User, kind: str) -> list[dict[str, str]]:
    path = f"/{admin.project}/{kind}/detail?all_tenants=1&limit=1000"
    found: list[dict[str, str]] = admin.get(path, service="cinder")[kind]
    return found


def _allocations(admin: User) -> dict[str, dict[str, Resources]]:
    held: dict[str, dict[str, Resources]] = {}
    for provider in admin.get("/resource_providers", service="placement")["resource_providers"]:
        path = f"/resource_providers/{provider['uuid']}/allocations"
        for consumer, record in admin.get(path, service="placement")["allocations"].items():
            held.setdefault(consumer, {})[provider["name"]] = record["resources"]
    return held


def _ports(admin: User) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for port in admin.get("/ports", service="neutron")["ports"]:
        if not port["device_owner"].startswith("network:"):
            held.setdefault(port["device_id"], []).append(port["id"])
    return held


def _attachments(admin: User) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for attachment in _all(admin, "attachments"):
        held.setdefault(attachment["instance"], []).append(attachment["volume_id"])
    return held


def _guests(cloud: Cloud) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for path in (cloud.state / "compute" / "fake").glob("*/*.json"):
        made = json.loads(path.read_text()).get("made")
        held.setdefault(path.stem, []).append(path.parent.name if made else f"{path.parent.name}, half made")
    return held


def _unfinished(cloud: Cloud) -> list[str]:
    found = []
    for path in sorted((cloud.state / "db").glob("nova_*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as database:
            query = "SELECT flow, subject, status, owner FROM flow_runs WHERE status IN ('running', 'stuck')"
            rows = database.execute(query).fetchall()
            found += [f"{path.stem}: run {f} of {s} is {status} (owner {o})" for f, s, status, o in rows]
            if path.stem == "nova_api":
                left = database.execute("SELECT instance_uuid FROM build_requests").fetchall()
                found += [f"the build request of {uuid} is still there" for (uuid,) in left]
    return found
