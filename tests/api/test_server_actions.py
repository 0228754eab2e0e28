"""What is done to servers: update, delete, power, locks, state, console, metadata, tags, addresses."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from kilonova.api.moments import now
from kilonova.base.flow import Status
from kilonova.core.device import BlockDevice
from kilonova.store import devices, journal
from kilonova.store import servers as rows
from kilonova.store.cells import CELL0_UUID
from tests.api.cloud import PROJECT, Answered
from tests.api.server_cloud import ServerCloud


def act(servers: ServerCloud, uuid: str, action: str, value: Any = None, *, version: str = "2.1",
        who: str = "member") -> Answered:  # fmt: skip
    """POST of one action."""
    return servers.post(f"/servers/{uuid}/action", version, {action: value}, who=who)


# --- one over another


def test_a_hard_reboot_goes_over_a_soft_one(servers: ServerCloud) -> None:
    server = servers.running()
    assert act(servers, server.uuid, "reboot", {"type": "SOFT"}).code == 202
    assert act(servers, server.uuid, "reboot", {"type": "SOFT"}).code == 409
    assert act(servers, server.uuid, "reboot", {"type": "HARD"}).code == 202
    soft, hard = servers.runs(server.uuid, cell=servers.cell)
    assert (soft.status, hard.status, hard.state["hard"]) == (Status.CANCELLED, Status.RUNNING, True)
    assert act(servers, server.uuid, "os-stop").code == 409


# --- update


def test_update_of_a_server_and_of_a_build_request(servers: ServerCloud) -> None:
    for uuid in (servers.running().uuid, servers.created()):
        body = {"name": "new", "accessIPv4": "192.0.2.7", "description": None, "OS-DCF:diskConfig": "AUTO"}
        answer = servers.put(f"/servers/{uuid}", "2.90", {"server": body | {"hostname": "host-2"}}, who="member")
        shown = servers.get(f"/servers/{uuid}", "2.90", who="member").body["server"]
        assert answer.body["server"] == shown
        assert (shown["name"], shown["accessIPv4"], shown["OS-EXT-SRV-ATTR:hostname"]) == ("new", "192.0.2.7", "host-2")
        assert (shown["description"], shown["OS-DCF:diskConfig"]) == (None, "AUTO")


@pytest.mark.parametrize(
    "version, body, name",
    [
        ("2.1", {"name": ""}, "name"),
        ("2.1", {"name": None}, "name"),
        ("2.18", {"description": "x"}, "description"),
        ("2.19", {"description": 1}, "description"),
        ("2.1", {"accessIPv4": ""}, "accessIPv4"),
        ("2.89", {"hostname": "abc"}, "hostname"),
        ("2.90", {"hostname": "a.b"}, "hostname"),
        ("2.103", {"pinned_availability_zone": None}, "pinned_availability_zone"),
        ("2.104", {"pinned_availability_zone": ""}, "pinned_availability_zone"),
    ],
)
def test_updates_that_are_refused(servers: ServerCloud, version: str, body: dict[str, Any], name: str) -> None:
    answer = servers.put(f"/servers/{servers.running().uuid}", version, {"server": body})
    assert (answer.code, name in answer.fault) == (400, True)


def test_pinning_a_zone(servers: ServerCloud) -> None:
    uuid = servers.running(availability_zone="z1").uuid

    def pin(zone: str | None) -> Answered:
        return servers.put(f"/servers/{uuid}", "2.104", {"server": {"pinned_availability_zone": zone}})

    assert pin("z2").code == 409
    assert pin("z1").body["server"]["pinned_availability_zone"] == "z1"
    assert pin(None).body["server"]["pinned_availability_zone"] is None


# --- delete


def test_delete_before_there_is_a_cell(servers: ServerCloud) -> None:
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    device = {"source_type": "volume", "uuid": volume.id, "boot_index": 0}
    uuid = servers.created(imageRef="", block_device_mapping_v2=[device])
    assert servers.delete(f"/servers/{uuid}", who="member").code == 204
    assert servers.get(f"/servers/{uuid}").code == 404
    [run] = [run for run in servers.runs(uuid) if run.status is Status.RUNNING]
    assert (run.flow, run.state["server"]) == ("delete_unscheduled", uuid)
    assert run.state["devices"][0]["attachment_id"] in servers.neighbours.cinder.records
    assert servers.conductor.woken[-1] == (run.id, "")
    assert servers.delete(f"/servers/{uuid}", who="member").code == 404


def test_delete_in_a_cell_cancels_what_goes_on(servers: ServerCloud) -> None:
    server = servers.running()
    device = BlockDevice(uuid=str(uuid4()), source_type="volume", destination_type="volume", volume_id=str(uuid4()))
    servers.cells.database(servers.cell).write(lambda tx: devices.add(tx, server.uuid, device))
    assert act(servers, server.uuid, "reboot", {"type": "HARD"}).code == 202
    assert servers.delete(f"/servers/{server.uuid}", who="member").code == 204
    reboot, delete = servers.runs(server.uuid, cell=servers.cell)
    assert (reboot.status, delete.status, delete.action) == (Status.CANCELLED, Status.RUNNING, "delete")
    assert (delete.state["host"], delete.state["cancelled"]) == ("h1", [reboot.id])
    assert delete.state["devices"][0]["volume_id"] == device.volume_id
    assert delete.state["guest"]["server"]["uuid"] == server.uuid
    assert servers.in_cell(server.uuid).task_state == "deleting"
    assert servers.conductor.woken[-1] == (delete.id, servers.cell)
    assert servers.delete(f"/servers/{server.uuid}", who="member").code == 204
    assert len(servers.runs(server.uuid, cell=servers.cell)) == 2


def test_delete_of_a_failed_build(servers: ServerCloud) -> None:
    server = servers.record(host=None, vm_state="error", launched_at=None)
    servers.put_server(server, cell=CELL0_UUID)
    assert servers.delete(f"/servers/{server.uuid}", who="member").code == 204
    [run] = servers.runs(server.uuid, cell=CELL0_UUID)
    assert (run.state["host"], servers.conductor.woken[-1]) == ("", (run.id, CELL0_UUID))


def test_a_boot_that_is_faster_than_the_delete(servers: ServerCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = servers.created()
    moved: list[bool] = []
    find = servers.cells.find

    def find_then_move(server: str, **more: Any) -> Any:
        found = find(server, **more)
        if not moved:
            moved.append(True)
            servers.hand_over(uuid)
        return found

    monkeypatch.setattr(servers.cells, "find", find_then_move)
    assert servers.delete(f"/servers/{uuid}", who="member").code == 204
    [run] = servers.runs(uuid, cell=servers.cell)
    assert run.flow == "delete"
    assert servers.runs(uuid) == []


# --- power


@pytest.mark.parametrize(
    "state, action, value, flow, task",
    [
        ("stopped", "os-start", None, "start", "powering-on"),
        ("active", "os-stop", None, "stop", "powering-off"),
        ("error", "os-stop", {}, "stop", "powering-off"),
        ("active", "reboot", {"type": "soft"}, "reboot", "rebooting"),
        ("active", "reboot", {"type": "HARD"}, "reboot", "rebooting_hard"),
        ("suspended", "reboot", {"type": "Hard"}, "reboot", "rebooting_hard"),
    ],
)
def test_power(servers: ServerCloud, state: str, action: str, value: Any, flow: str, task: str) -> None:
    server = servers.running(vm_state=state)
    assert act(servers, server.uuid, action, value).code == 202
    [run] = servers.runs(server.uuid, cell=servers.cell)
    assert (run.flow, run.action, run.state["host"]) == (flow, flow, "h1")
    assert run.state["hard"] is (task == "rebooting_hard")
    assert run.state["nics"][0]["network_name"] == "private"
    assert servers.in_cell(server.uuid).task_state == task
    assert servers.conductor.woken == [(run.id, servers.cell)]
    refused = act(servers, server.uuid, "os-stop" if flow != "start" else "os-start")
    expected = f"Cannot '{'start' if flow == 'start' else 'stop'}' instance {server.uuid} while it is in "
    assert (refused.code, list(refused.body)) == (409, ["conflictingRequest"])
    assert refused.fault.startswith(expected), refused.fault


@pytest.mark.parametrize(
    "changes, action, value, text",
    [
        ({"vm_state": "active"}, "os-start", None, "Cannot 'start' instance {uuid} while it is in vm_state active"),
        ({"vm_state": "stopped"}, "os-stop", None, "Cannot 'stop' instance {uuid} while it is in vm_state stopped"),
        ({"vm_state": "stopped"}, "reboot", {"type": "SOFT"},
         "Cannot 'reboot' instance {uuid} while it is in vm_state stopped"),
        ({"task_state": "spawning"}, "reboot", {"type": "HARD"},
         "Cannot 'reboot' instance {uuid} while it is in task_state spawning"),
        ({"launched_at": None}, "os-stop", None, "Cannot 'stop' instance {uuid} while it is in launched_at None"),
        ({"host": None}, "os-stop", None, "Instance {uuid} is not ready"),
        ({"locked": True}, "os-stop", None, "Instance {uuid} is locked"),
        ({"locked": True}, "reboot", {"type": "HARD"}, "Instance {uuid} is locked"),
    ],
)  # fmt: skip
def test_states_that_forbid(servers: ServerCloud, changes: dict[str, Any], action: str, value: Any, text: str) -> None:
    uuid = servers.running(**changes).uuid
    answer = act(servers, uuid, action, value)
    assert (answer.code, answer.fault) == (409, text.format(uuid=uuid))
    assert servers.runs(uuid, cell=servers.cell) == []


def test_actions_on_a_server_that_is_built(servers: ServerCloud) -> None:
    uuid = servers.created()
    assert act(servers, uuid, "os-start").fault == f"Instance {uuid} is not ready"
    assert act(servers, uuid, "reboot", {"type": "HARD"}).fault == (
        f"Cannot 'reboot' instance {uuid} while it is in vm_state building"
    )


@pytest.mark.parametrize(
    "action, value, name",
    [
        ("reboot", None, "reboot"),
        ("reboot", {}, "type"),
        ("reboot", {"type": "warm"}, "type"),
        ("reboot", {"type": "SOFT", "x": 1}, "x"),
        ("os-resetState", {"state": "paused"}, "state"),
        ("os-getConsoleOutput", {"length": "x"}, "length"),
        ("os-getConsoleOutput", {"length": -2}, "length"),
    ],
)
def test_bad_bodies_of_actions(servers: ServerCloud, action: str, value: Any, name: str) -> None:
    answer = act(servers, servers.running().uuid, action, value, who="admin")
    assert (answer.code, name in answer.fault) == (400, True), answer.body


# --- locks, state, console


def test_locks(servers: ServerCloud) -> None:
    server = servers.running()
    answer = act(servers, server.uuid, "lock", {"locked_reason": "because"}, version="2.73")
    shown = servers.get(f"/servers/{server.uuid}", "2.73").body["server"]
    assert (answer.code, shown["locked"], shown["locked_reason"]) == (202, True, "because")
    assert servers.delete(f"/servers/{server.uuid}", who="member").fault == f"Instance {server.uuid} is locked"
    assert act(servers, server.uuid, "unlock").code == 202
    assert act(servers, server.uuid, "lock", {"anything": 1}, version="2.72").code == 202
    database = servers.cells.database(servers.cell)
    shown_actions = database.query(lambda tx: [a.action for a in journal.actions(tx, server.uuid)])
    assert shown_actions == ["lock", "unlock", "lock"]
    events = database.query(
        lambda tx: journal.action(tx, server.uuid, journal.actions(tx, server.uuid)[0].request_id).events
    )
    assert [(event.event, event.result) for event in events] == [("api_lock", "Success")]
    assert act(servers, server.uuid, "lock", None, version="2.73").code == 202
    assert act(servers, server.uuid, "lock", {"locked_reason": ""}, version="2.73").code == 400


def test_only_who_may_override_unlocks_what_an_administrator_locked(servers: ServerCloud) -> None:
    uuid = servers.running(locked=True, locked_by="admin").uuid
    assert act(servers, uuid, "unlock").code == 403
    assert act(servers, uuid, "unlock", who="admin").code == 202
    assert not servers.in_cell(uuid).locked


def test_reset_state_is_recorded(servers: ServerCloud) -> None:
    server = servers.running(task_state="rebooting")
    assert act(servers, server.uuid, "os-resetState", {"state": "error"}).code == 403
    assert act(servers, server.uuid, "os-resetState", {"state": "error"}, who="admin").code == 202
    found = servers.in_cell(server.uuid)
    assert (found.vm_state, found.task_state) == ("error", None)
    database = servers.cells.database(servers.cell)
    assert database.query(lambda tx: [a.action for a in journal.actions(tx, server.uuid)]) == ["resetState"]


def test_console_output(servers: ServerCloud) -> None:
    uuid = servers.running().uuid
    for body, lines in (({}, "one\ntwo\nthree"), ({"length": "2"}, "two\nthree"), ({"length": None}, "one\ntwo\nthree"),
                        ({"length": -1}, "one\ntwo\nthree")):  # fmt: skip
        assert act(servers, uuid, "os-getConsoleOutput", body).body == {"output": lines}
    waiting = servers.created()
    assert act(servers, waiting, "os-getConsoleOutput", {}).fault == f"Instance {waiting} is not ready"
    assert act(servers, uuid, "os-getConsoleOutput", {}, who="reader").code == 403


# --- metadata, tags, addresses


def test_metadata(servers: ServerCloud) -> None:
    path = f"/servers/{servers.running(metadata={'a': '1'}).uuid}/metadata"
    assert servers.get(path, who="reader").body == {"metadata": {"a": "1"}}
    assert servers.post(path, "2.1", {"metadata": {"b": "2"}}).body == {"metadata": {"a": "1", "b": "2"}}
    assert servers.put(path, "2.1", {"metadata": {"c": "3"}}).body == {"metadata": {"c": "3"}}
    assert servers.put(f"{path}/d", "2.1", {"meta": {"d": "4"}}).body == {"meta": {"d": "4"}}
    assert servers.get(f"{path}/d").body == {"meta": {"d": "4"}}
    assert servers.delete(f"{path}/c").code == 204
    assert servers.get(path).body == {"metadata": {"d": "4"}}
    assert servers.get(f"{path}/c").fault == servers.delete(f"{path}/c").fault == "Metadata item was not found"
    assert servers.put(f"{path}/x", "2.1", {"meta": {"y": "4"}}).fault == "Request body and URI mismatch"
    bad: list[dict[str, Any]] = [{}, {"x": "1", "y": "2"}, {"x": 1}, {"x": "v" * 256}]
    for meta in bad:
        answer = servers.put(f"{path}/x", "2.1", {"meta": meta})
        assert (answer.code, "meta" in answer.fault) == (400, True)
    many = {"metadata": {str(n): "v" for n in range(128)}}
    assert servers.post(path, "2.1", many).fault == "Maximum number of metadata items exceeds 128"
    assert servers.put(path, "2.1", many).code == 200


def test_metadata_of_servers_that_may_not_change(servers: ServerCloud) -> None:
    offloaded = servers.running(vm_state="shelved_offloaded").uuid
    for method, path, word in (("POST", "", "create metadata"), ("PUT", "", "update metadata")):
        answer = servers.ask(method, f"/servers/{offloaded}/metadata{path}", "2.1", {"metadata": {"a": "b"}})
        assert (answer.code, answer.fault) == (
            409,
            f"Cannot '{word}' instance {offloaded} while it is in vm_state shelved_offloaded",
        )
    locked = servers.running(locked=True).uuid
    answer = servers.put(f"/servers/{locked}/metadata", "2.1", {"metadata": {}}, who="member")
    assert (answer.code, answer.fault) == (409, f"Instance {locked} is locked")
    waiting = servers.created(metadata={"k": "v"})
    assert servers.get(f"/servers/{waiting}/metadata").body == {"metadata": {"k": "v"}}
    assert servers.post(f"/servers/{waiting}/metadata", "2.1", {"metadata": {"a": "b"}}).code == 409


def test_tags(servers: ServerCloud) -> None:
    uuid = servers.running().uuid
    path = f"/servers/{uuid}/tags"
    assert servers.get(path, "2.25").code == 404
    assert servers.put(path, "2.26", {"tags": ["b", "a", "a"]}).body == {"tags": ["a", "b"]}
    answer = servers.put(f"{path}/c", "2.26", None)
    assert (answer.code, answer.headers["location"][-len(path) - 2 :]) == (201, f"{path}/c")
    assert servers.put(f"{path}/c", "2.26", None).code == 204
    assert servers.get(f"{path}/c", "2.26").code == 204
    assert servers.get(path, "2.26").body == {"tags": ["a", "b", "c"]}
    assert servers.delete(f"{path}/b", "2.26").code == 204
    for method in ("GET", "DELETE"):
        assert servers.ask(method, f"{path}/b", "2.26").fault == f"Server {uuid} has no tag 'b'"
    assert servers.put(f"{path}/a,b", "2.26", None).code == 400
    assert servers.put(f"{path}/{'x' * 61}", "2.26", None).code == 400
    assert servers.put(path, "2.26", {"tags": ["x" * 61]}).code == 400
    full = [str(number) for number in range(50)]
    assert servers.put(path, "2.26", {"tags": full}).code == 200
    assert "exceeded the per-server limit 50" in servers.put(f"{path}/new", "2.26", None).fault
    assert servers.delete(path, "2.26").code == 204
    assert servers.get(path, "2.26").body == {"tags": []}


def test_tags_of_a_server_that_may_not_change(servers: ServerCloud) -> None:
    uuid = servers.running(vm_state="error").uuid
    answer = servers.put(f"/servers/{uuid}/tags/x", "2.26", None)
    assert (answer.code, answer.fault) == (409, f"Cannot 'update tag' instance {uuid} while it is in vm_state error")


def test_addresses(servers: ServerCloud) -> None:
    path = f"/servers/{servers.running().uuid}/ips"
    both = [{"version": 4, "addr": "10.0.0.5"}, {"version": 4, "addr": "172.24.4.9"}]
    assert servers.get(path).body == {"addresses": {"private": both}}
    assert servers.get(f"{path}/private").body == {"private": both}
    assert servers.get(f"{path}/none").fault == "Instance is not a member of specified network"


def test_deleted_servers_are_not_found(servers: ServerCloud) -> None:
    uuid = servers.running().uuid
    servers.cells.database(servers.cell).write(lambda tx: rows.mark_deleted(tx, uuid, now()))
    assert servers.get(f"/servers/{uuid}").code == 404
    assert servers.delete(f"/servers/{uuid}").code == 404
    assert act(servers, uuid, "os-start").code == 404
