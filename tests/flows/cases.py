"""A case of each flow: the world it begins in, its parameters, and what is left when it was unwound."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from kilonova.core.server import Guest
from kilonova.flows.registry import FLOWS
from kilonova.store import build_requests, devices, instance_mappings, servers
from kilonova.store.session import Tx
from tests.flows.stage import Case
from tests.flows.world import SERVER, Picture, World, networks, record, selection, spec

SECOND = "5f5b7c1e-7d0e-4a58-8a67-3a1f6c3b9d03"
Undone = Callable[[Picture, Picture], bool]


def compared(one: object, other: object) -> bool:
    """Equal; pytest shows what differs."""
    assert other == one
    return True


def _case(
    name: str,
    scene: Callable[[World], object],
    state: Any,
    *,
    where: str = "cell",
    same: Undone = compared,
    undone: Undone | None = None,
) -> Case:
    return Case(
        flow=FLOWS[name],
        state=state,
        make_world=lambda: World(where, scene),
        subject=SERVER,
        make_journal=lambda world: world.journal(),  # type: ignore[attr-defined]
        same=same,
        undone=undone,
    )


# --- build


def handed_over(world: World) -> None:
    world.enter(record(volume_backed=True), world.reserve())
    world.claim("h1")


def build_state(world: World) -> dict[str, Any]:
    return {
        "guest": Guest(server=record(volume_backed=True), admin_password="hunter2"),
        "networks": networks(),
        "devices": world.databases["cell"].query(_devices),
        "selections": [selection(host) for host in ("h1", "h2", "h3")],
        "admin_password": "hunter2",
        "files": [("/etc/motd", "aGVsbG8=")],
    }


def _devices(tx: Tx) -> Any:
    return devices.listing(tx, SERVER)


def build_undone(before: Picture, after: Picture) -> bool:
    """In ERROR with a fault that says so; no room, no ports, no guest; the user's volume reserved as it was."""
    wanted = copy.deepcopy(before)
    wanted["claims"] = {}
    mine = wanted["servers"]["cell"][SERVER]
    mine["state"] = ("error", None, 0, False)
    mine["fault"] = after["servers"]["cell"][SERVER]["fault"]
    # The volume that was made stays for the delete of the server, which finds it by its mark.
    wanted["volumes"] += [v for v in after["volumes"] if v[0].startswith(SERVER)]
    wanted["volumes"].sort()
    # The records of attachments are fresh ones; the delete finds them by the server.
    for picture in (wanted, after):
        picture["servers"]["cell"][SERVER]["devices"] = []
    fault = mine["fault"]
    assert fault is not None
    assert fault[0] == 500
    assert "maximum number of retries" in fault[1].lower() or "Exceeded" in fault[1], fault
    for _, status, attachments in [v for v in after["volumes"] if v[0].startswith(SERVER)]:
        assert (status, attachments) in (("available", []), ("reserved", [(SERVER, "reserved", None)])), after[
            "volumes"
        ]
    return compared(wanted, after)


# --- schedule


def two_requests(world: World) -> None:
    world.request()
    world.request(SECOND, volumes=False)


def placed_alike(one: Any, other: Any) -> bool:
    """The same but for the hosts: whoever decides again may choose another one, which is then the one claimed."""
    for picture in (one, other):
        claimed = {server: list(held) for server, held in picture["claims"].items()}
        assert claimed == {subject: [host] for _, subject, _, host in picture["runs"]["cell"]}
    return compared(*(_without_hosts(picture) for picture in (one, other)))


def _without_hosts(picture: Picture) -> Picture:
    claims = {server: list(held.values()) for server, held in picture["claims"].items()}
    return picture | {
        "claims": claims,
        "runs": {kind: [run[:3] for run in runs] for kind, runs in picture["runs"].items()},
    }


def buried(before: Picture, after: Picture) -> bool:
    wanted = copy.deepcopy(before)
    wanted["requests"] = {}
    for server in (SERVER, SECOND):
        wanted["mappings"][server] = ("cell0", False)
        found = after["servers"]["cell0"][server]
        assert found["state"] == ("error", None, 0, False)
        assert found["fault"] is not None
    wanted["servers"]["cell0"] = after["servers"]["cell0"]
    wanted["runs"]["cell0"] = [("build", server, "undone", "") for server in (SERVER, SECOND)]
    return compared(wanted, after)


# --- delete


def running(world: World) -> None:
    world.build(task_state="deleting")


def _own(world: World, **more: Any) -> dict[str, Any]:
    server = world.databases["cell"].query(lambda tx: servers.get(tx, SERVER))
    held = world.databases["cell"].query(_devices)
    return {"guest": Guest(server=server), "host": server.host or "", "devices": held, **more}


def unscheduled(world: World) -> None:
    """The user's delete has taken the request; a scheduler has claimed room meanwhile."""
    world.request()
    world.claim("h2")

    def write(tx: Tx) -> None:
        assert build_requests.delete(tx, SERVER)
        instance_mappings.remove(tx, SERVER)

    world.databases["api"].write(write)


def unscheduled_state(world: World) -> dict[str, Any]:
    kept = world.databases["api"].query(lambda tx: build_requests.kept(tx, SERVER))
    assert kept is not None
    return {"server": SERVER, "devices": kept.devices}


# --- power


def power_undone(before: Picture, after: Picture) -> bool:
    """As before with a fault. What a host did of it before it failed is not taken back, the power sync tells of it."""
    wanted = copy.deepcopy(before)
    mine, found = wanted["servers"]["cell"][SERVER], after["servers"]["cell"][SERVER]
    vm_state, _, power, deleted = mine["state"]
    mine["state"] = (vm_state, None, power, deleted)
    mine["fault"] = found["fault"]
    assert found["fault"] is not None
    assert set(after["guests"]["h1"]) == {SERVER}
    wanted["guests"] = after["guests"]
    return compared(wanted, after)


def _power_state(world: World) -> dict[str, Any]:
    server = _own(world)["guest"].server
    return _own(world, nics=msgspec.to_builtins(server.nics), hard=False)


def stopped(world: World) -> None:
    world.build(vm_state="stopped", power_state=4, task_state="powering-on")
    world.drivers["h1"].power_off(SERVER, grace=0)


CASES: dict[str, Case] = {
    "build": _case("build", handed_over, build_state, undone=build_undone),
    "schedule": _case(
        "schedule",
        two_requests,
        {"servers": [SERVER, SECOND], "request": spec()},
        where="api",
        same=placed_alike,
        undone=buried,
    ),
    "delete": _case("delete", running, _own),
    "delete_unscheduled": _case("delete_unscheduled", unscheduled, unscheduled_state, where="api"),
    "start": _case("start", stopped, _power_state, undone=power_undone),
    "stop": _case("stop", lambda world: world.build(task_state="powering-off"), _power_state, undone=power_undone),
    "reboot": _case("reboot", lambda world: world.build(task_state="rebooting"), _power_state, undone=power_undone),
}
