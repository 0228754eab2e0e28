"""What is done to a server that runs, and what its list of actions tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cloud import User

MADE = ("create", "stop", "start", "reboot", "lock", "unlock")


@pytest.fixture(scope="module")
def server(demo: User) -> Iterator[str]:
    """A server that has been through what users do every day."""
    made = str(demo.boot("daily")["id"])
    for action, argument, status in (
        ("os-stop", None, "SHUTOFF"),
        ("os-start", None, "ACTIVE"),
        ("reboot", {"type": "SOFT"}, "ACTIVE"),
        ("reboot", {"type": "HARD"}, "ACTIVE"),
        ("lock", None, "ACTIVE"),
        ("unlock", None, "ACTIVE"),
    ):
        assert demo.act(made, action, argument).status == 202
        demo.await_status(made, status)
    yield made
    demo.delete(made)


def _told(user: User, server: str) -> dict[str, list[str]]:
    """The events of each action, by its name."""
    path = f"/servers/{server}/os-instance-actions"
    told: dict[str, list[str]] = {}
    for action in user.get(path)["instanceActions"]:
        found = user.get(f"{path}/{action['request_id']}")["instanceAction"]
        told[found["action"]] = [event["event"] for event in found["events"]]
        assert {event["result"] for event in found["events"]} == {"Success"}
    return told


def test_actions_and_events_have_the_names_that_clients_know(demo: User, server: str, reference: Path) -> None:
    trace = json.loads((reference / "golden" / "lifecycle.json").read_text())["trace"]
    answers = [entry["response"] for entry in trace if "os-instance-actions/req-" in entry.get("path", "")]
    known: dict[str, list[str]] = {}
    for answer in answers:
        action: dict[str, Any] = answer["instanceAction"]
        known[action["action"]] = [event["event"] for event in action["events"]]
    assert _told(demo, server) == {name: known[name] for name in MADE}


def test_the_newest_action_comes_first(demo: User, server: str) -> None:
    actions = demo.get(f"/servers/{server}/os-instance-actions")["instanceActions"]
    assert [a["action"] for a in actions] == ["unlock", "lock", "reboot", "reboot", "start", "stop", "create"]


def test_metadata(demo: User, server: str) -> None:
    path = f"/servers/{server}/metadata"
    assert demo.post(path, {"metadata": {"a": "1", "b": "2"}})["metadata"] == {"a": "1", "b": "2"}
    assert demo.call("PUT", f"{path}/a", {"meta": {"a": "3"}}).body == {"meta": {"a": "3"}}
    assert demo.call("DELETE", f"{path}/b").status == 204
    assert demo.show(server)["metadata"] == {"a": "3"}


def test_tags(demo: User, server: str) -> None:
    path = f"/servers/{server}/tags"
    assert demo.call("PUT", path, {"tags": ["red", "blue"]}).status == 200
    assert demo.call("PUT", f"{path}/green").status == 201
    assert demo.call("DELETE", f"{path}/red").status == 204
    assert sorted(demo.show(server)["tags"]) == ["blue", "green"]
    assert [s["id"] for s in demo.get("/servers?tags=green,blue")["servers"]] == [server]
    assert demo.get("/servers?tags=green,red")["servers"] == []


def test_a_locked_server_is_left_alone(demo: User, admin: User, server: str) -> None:
    assert demo.act(server, "lock", {"locked_reason": "payday"}).status == 202
    shown = demo.show(server)
    assert (shown["locked"], shown["locked_reason"]) == (True, "payday")
    for refused in (demo.act(server, "os-stop"), demo.call("DELETE", f"/servers/{server}")):
        assert (refused.status, refused.fault) == (409, "conflictingRequest")
    assert demo.act(server, "unlock").status == 202
    assert demo.show(server)["locked"] is False


def test_the_state_is_for_administrators_to_reset(demo: User, admin: User, server: str) -> None:
    refused = demo.act(server, "os-resetState", {"state": "error"})
    assert (refused.status, refused.fault) == (403, "forbidden")
    assert admin.act(server, "os-resetState", {"state": "error"}).status == 202
    assert demo.show(server)["status"] == "ERROR"
    assert demo.act(server, "reboot", {"type": "HARD"}).status == 202
    demo.await_status(server, "ACTIVE")


def test_what_a_state_does_not_allow_is_a_conflict(demo: User, server: str) -> None:
    refused = demo.act(server, "os-start")
    assert (refused.status, refused.fault) == (409, "conflictingRequest")
    assert refused.message == f"Cannot 'start' instance {server} while it is in vm_state active"


def test_the_console(demo: User, server: str) -> None:
    answer = demo.act(server, "os-getConsoleOutput", {"length": 3})
    assert answer.status == 200
    assert len(answer.body["output"].splitlines()) <= 3
