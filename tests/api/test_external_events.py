"""What other services report of servers."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.api.server_cloud import ServerCloud

PATH = "/os-server-external-events"


def event(server: str, name: str = "network-changed", **more: Any) -> dict[str, Any]:
    return {"name": name, "server_uuid": server, **more}


def test_network_events_have_the_ports_read_afresh(servers: ServerCloud) -> None:
    one, two = servers.running().uuid, servers.running().uuid
    answer = servers.post(PATH, "2.1", {"events": [event(one), event(two, "network-vif-plugged", tag=str(uuid4()))]})
    assert answer.code == 200
    assert [(e["status"], e["code"]) for e in answer.body["events"]] == [("completed", 200)] * 2
    assert sorted(servers.conductor.refreshed) == sorted([one, two])


def test_events_that_cannot_be_taken_are_told_apart(servers: ServerCloud) -> None:
    taken, homeless = servers.running().uuid, servers.running(host=None, node=None).uuid
    answer = servers.post(PATH, "2.1", {"events": [event(taken), event(str(uuid4())), event(homeless)]})
    assert answer.code == 207
    assert [(e["status"], e["code"]) for e in answer.body["events"]] == [
        ("completed", 200),
        ("failed", 404),
        ("failed", 422),
    ]
    assert servers.conductor.refreshed == [taken]


def test_a_server_that_is_being_built_brings_its_ports_itself(servers: ServerCloud) -> None:
    building = servers.running(vm_state="building").uuid
    assert servers.post(PATH, "2.1", {"events": [event(building)]}).code == 200
    assert servers.conductor.refreshed == []


@pytest.mark.parametrize(
    "version, body, name",
    [
        ("2.1", {"events": []}, "events"),
        ("2.1", {"events": [{"name": "network-changed"}]}, "server_uuid"),
        ("2.1", {"events": [event("no-uuid")]}, "server_uuid"),
        ("2.1", {"events": [event(str(uuid4()), "no-such-event")]}, "name"),
        ("2.50", {"events": [event(str(uuid4()), "volume-extended", tag="x")]}, "name"),
        ("2.1", {"events": [event(str(uuid4()), status="odd")]}, "status"),
        ("2.1", {"events": [event(str(uuid4()), tag="t" * 256)]}, "tag"),
        ("2.1", {"events": [event(str(uuid4()), more=1)]}, "more"),
    ],
)
def test_what_does_not_fit_is_refused(servers: ServerCloud, version: str, body: Any, name: str) -> None:
    answer = servers.post(PATH, version, body)
    assert answer.code == 400
    assert name in answer.body["badRequest"]["message"]


def test_a_plain_user_may_not_report(servers: ServerCloud) -> None:
    server = servers.running().uuid
    assert servers.post(PATH, "2.1", {"events": [event(server)]}, who="member").code == 403
