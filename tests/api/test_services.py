"""Compute services, their zones, and the hypervisors that they report."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import uuid4

import pytest

from kilonova.api.moments import now
from kilonova.store import aggregates, nodes, services
from tests.api.cloud import Cloud


def uuid_of(cloud: Cloud, host: str) -> str:
    rows = cloud.get(f"/os-services?host={host}", "2.53").body["services"]
    return str(rows[0]["id"])


def add_conductor(cloud: Cloud) -> None:
    cloud.cells.database(cloud.cell).write(lambda tx: services.ensure(tx, "nova-conductor", "ctl", 1))


def test_rows_by_version(cloud: Cloud) -> None:
    cloud.add_host("one")
    add_conductor(cloud)
    first = cloud.get("/os-services", "2.1").body["services"]
    assert {row["binary"]: row["zone"] for row in first} == {"nova-compute": "nova", "nova-conductor": "internal"}
    row = first[0] | {"updated_at": ""}
    assert row == {
        "id": row["id"], "binary": "nova-compute", "host": "one", "zone": "nova", "status": "enabled", "state": "up",
        "updated_at": "", "disabled_reason": None,
    }  # fmt: skip
    assert isinstance(row["id"], int)
    assert cloud.get("/os-services", "2.11").body["services"][0]["forced_down"] is False
    assert len(cloud.get("/os-services", "2.53").body["services"][0]["id"]) == 36
    assert len(cloud.get("/os-services?binary=nova-conductor", "2.53").body["services"]) == 1
    assert cloud.get("/os-services?host=none", "2.53").body == {"services": []}
    assert cloud.get("/os-services?bogus=1", "2.75").code == 400
    assert cloud.get("/os-services", who="member").code == 403


def test_a_late_heartbeat_is_down(cloud: Cloud) -> None:
    cloud.add_host("one")
    late = now() - datetime.timedelta(seconds=61)
    cloud.cells.database(cloud.cell).write(lambda tx: services.beat(tx, "nova-compute", "one", late))
    assert cloud.get("/os-services").body["services"][0]["state"] == "down"


def test_old_forms_until_2_52(cloud: Cloud) -> None:
    cloud.add_host("one")
    named: dict[str, Any] = {"host": "one", "binary": "nova-compute"}
    off = cloud.put("/os-services/disable", "2.1", named)
    assert off.body == {"service": named | {"status": "disabled"}}
    why = cloud.put("/os-services/disable-log-reason", "2.52", named | {"disabled_reason": "fan"})
    assert why.body == {"service": named | {"status": "disabled", "disabled_reason": "fan"}}
    row = cloud.get("/os-services").body["services"][0]
    assert (row["status"], row["disabled_reason"]) == ("disabled", "fan")
    assert cloud.put("/os-services/enable", "2.1", named).body == {"service": named | {"status": "enabled"}}
    assert cloud.get("/os-services").body["services"][0]["disabled_reason"] is None
    down = cloud.put("/os-services/force-down", "2.11", named | {"forced_down": "true"})
    assert down.body == {"service": named | {"forced_down": True}}
    assert cloud.get("/os-services").body["services"][0]["state"] == "down"


@pytest.mark.parametrize(
    "verb, version, change, code, text",
    [
        ("force-down", "2.10", {}, 404, "Unknown action"),
        ("bogus", "2.1", {}, 404, "Unknown action"),
        ("enable", "2.53", {}, 400, "host"),
        ("enable", "2.1", {"binary": "nova-x"}, 404, "Could not find binary nova-x on host one."),
        ("enable", "2.1", {"host": "a b"}, 400, "host"),
        ("enable", "2.1", {"forced_down": True}, 400, "forced_down"),
        ("disable-log-reason", "2.1", {}, 400, "Missing disabled reason field"),
        ("force-down", "2.11", {}, 400, "Missing forced_down field"),
    ],
)
def test_bad_old_forms(cloud: Cloud, verb: str, version: str, change: dict[str, Any], code: int, text: str) -> None:
    cloud.add_host("one")
    answer = cloud.put(f"/os-services/{verb}", version, {"host": "one", "binary": "nova-compute"} | change)
    assert (answer.code, text in answer.fault) == (code, True), answer.body


def test_by_uuid_since_2_53(cloud: Cloud) -> None:
    cloud.add_host("one")
    path = f"/os-services/{uuid_of(cloud, 'one')}"
    off = cloud.put(path, "2.53", {"status": "disabled", "disabled_reason": "fan"}).body["service"]
    assert (off["status"], off["disabled_reason"], off["zone"]) == ("disabled", "fan", "nova")
    down = cloud.put(path, "2.53", {"forced_down": True}).body["service"]
    assert (down["state"], down["forced_down"], down["disabled_reason"]) == ("down", True, "fan")
    on = cloud.put(path, "2.53", {"status": "enabled", "forced_down": False}).body["service"]
    assert (on["state"], on["status"], on["disabled_reason"]) == ("up", "enabled", None)


@pytest.mark.parametrize(
    "body, text",
    [
        ({}, "No updates were requested."),
        ({"disabled_reason": "x"}, "Specifying 'disabled_reason' when status is 'None' is invalid."),
        ({"status": "enabled", "disabled_reason": "x"}, "when status is 'enabled' is invalid"),
        ({"status": "off"}, "status"),
        ({"forced_down": 7}, "forced_down"),
        ({"bogus": 1}, "bogus"),
    ],
)
def test_bad_changes(cloud: Cloud, body: dict[str, Any], text: str) -> None:
    cloud.add_host("one")
    answer = cloud.put(f"/os-services/{uuid_of(cloud, 'one')}", "2.53", body)
    assert (answer.code, text in answer.fault) == (400, True), answer.body


def test_only_computes_change_and_unknown_ones_do_not(cloud: Cloud) -> None:
    add_conductor(cloud)
    refused = cloud.put(f"/os-services/{uuid_of(cloud, 'ctl')}", "2.53", {"status": "disabled"})
    assert refused.code == 400
    assert refused.fault == (
        "Updating a nova-conductor service is not supported. Only nova-compute services can be updated."
    )
    assert cloud.put(f"/os-services/{uuid4()}", "2.53", {"status": "disabled"}).code == 404
    assert cloud.put("/os-services/1", "2.53", {"status": "disabled"}).code == 400


def test_delete_takes_all_of_an_empty_host(cloud: Cloud) -> None:
    node = cloud.add_host("one")
    cloud.cells.api.write(lambda tx: aggregates.add_host(tx, aggregates.insert(tx, "a").id, "one"))
    assert cloud.delete(f"/os-services/{uuid_of(cloud, 'one')}", "2.53").code == 204
    assert cloud.placement.deleted == [node.uuid]
    assert cloud.get("/os-services").body == {"services": []}
    assert cloud.get("/os-hypervisors").body == {"hypervisors": []}
    assert cloud.cells.host_mapping("one") is None
    assert cloud.get("/os-aggregates").body["aggregates"][0]["hosts"] == []


def test_delete_refuses_a_host_with_servers(cloud: Cloud) -> None:
    cloud.add_host("one")
    cloud.add_server(host="one")
    number = cloud.get("/os-services").body["services"][0]["id"]
    for path, version in ((f"/os-services/{number}", "2.52"), (f"/os-services/{uuid_of(cloud, 'one')}", "2.53")):
        refused = cloud.delete(path, version)
        assert (refused.code, "hosting instances" in refused.fault) == (409, True)
    assert cloud.placement.deleted == []
    assert cloud.delete("/os-services/abc", "2.52").code == 400
    assert cloud.delete("/os-services/99", "2.52").code == 404
    assert cloud.delete("/os-services/99", "2.53").code == 400


def test_silent_cells_since_2_69(cloud: Cloud) -> None:
    cloud.add_host("one")
    cloud.break_cell()
    assert cloud.get("/os-services", "2.68").body == {"services": []}
    known = {"binary": "nova-compute", "host": "one", "status": "UNKNOWN"}
    assert cloud.get("/os-services", "2.69").body == {"services": [known]}
    assert cloud.get("/os-services?host=two", "2.69").body == {"services": []}


def test_zones(cloud: Cloud) -> None:
    cloud.add_host("one")
    cloud.add_host("two")
    add_conductor(cloud)
    made = cloud.cells.api.write(lambda tx: aggregates.insert(tx, "a", metadata={"availability_zone": "east"}))
    cloud.cells.api.write(lambda tx: aggregates.add_host(tx, made.id, "two"))
    brief = cloud.get("/os-availability-zone", who="reader").body["availabilityZoneInfo"]
    up = {"available": True}
    assert brief == [
        {"zoneName": "east", "zoneState": up, "hosts": None},
        {"zoneName": "nova", "zoneState": up, "hosts": None},
    ]
    cloud.put("/os-services/disable", "2.1", {"host": "two", "binary": "nova-compute"})
    closed = cloud.get("/os-availability-zone").body["availabilityZoneInfo"]
    assert [(zone["zoneName"], zone["zoneState"]["available"]) for zone in closed] == [("nova", True), ("east", False)]
    detail = cloud.get("/os-availability-zone/detail").body["availabilityZoneInfo"]
    assert [zone["zoneName"] for zone in detail] == ["internal", "nova", "east"]
    state = detail[1]["hosts"]["one"]["nova-compute"]
    assert (state["active"], state["available"], detail[2]["hosts"]) == (True, True, None)
    assert cloud.get("/os-availability-zone/detail", who="member").code == 403


FIRST = {
    "hypervisor_hostname", "state", "status", "vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used",
    "local_gb_used", "hypervisor_type", "hypervisor_version", "host_ip", "free_ram_mb", "free_disk_gb",
    "current_workload", "running_vms", "disk_available_least", "cpu_info", "service", "id",
}  # fmt: skip
SINCE_2_88 = {
    "hypervisor_hostname", "state", "status", "hypervisor_type", "hypervisor_version", "host_ip", "service", "id",
    "uptime",
}  # fmt: skip


def test_hypervisors_by_version(cloud: Cloud) -> None:
    node = cloud.add_host("one", stats={"uptime": "up 3 days"})
    for version, keys, key in (
        ("2.1", FIRST, 1), ("2.28", FIRST, 1), ("2.52", FIRST, 1), ("2.53", FIRST, node.uuid),
        ("2.87", FIRST, node.uuid), ("2.88", SINCE_2_88, node.uuid),
    ):  # fmt: skip
        listed = cloud.get("/os-hypervisors/detail", version).body["hypervisors"][0]
        assert (set(listed), listed["id"]) == (keys, key), version
        assert cloud.get(f"/os-hypervisors/{key}", version).body["hypervisor"] == listed
        brief = cloud.get("/os-hypervisors", version).body["hypervisors"][0]
        assert brief == {name: listed[name] for name in ("id", "hypervisor_hostname", "state", "status")}
    assert cloud.get("/os-hypervisors/detail", "2.27").body["hypervisors"][0]["cpu_info"] == '{"arch": "x86_64"}'
    assert cloud.get("/os-hypervisors/detail", "2.28").body["hypervisors"][0]["cpu_info"] == {"arch": "x86_64"}
    assert cloud.get(f"/os-hypervisors/{node.uuid}", "2.88").body["hypervisor"]["uptime"] == "up 3 days"
    assert cloud.get("/os-hypervisors", who="member").code == 403


def test_hypervisors_with_servers(cloud: Cloud) -> None:
    node = cloud.add_host("one")
    cloud.add_host("two")
    server = cloud.add_server(host="one")
    theirs = [{"uuid": server.uuid, "name": "s"}]
    for version, others in (("2.74", [None]), ("2.75", [[]])):
        listed = cloud.get("/os-hypervisors?with_servers=True", version).body["hypervisors"]
        assert [item.get("servers") for item in listed] == [theirs, *others]
    assert cloud.get(f"/os-hypervisors/{node.uuid}?with_servers=1", "2.53").body["hypervisor"]["servers"] == theirs
    old = cloud.get("/os-hypervisors/one/servers", "2.52").body["hypervisors"]
    assert old[0]["servers"] == theirs
    assert cloud.get("/os-hypervisors/one/servers", "2.53").code == 404


def test_hypervisor_search(cloud: Cloud) -> None:
    cloud.add_host("one")
    cloud.add_host("two")
    assert len(cloud.get("/os-hypervisors/example/search", "2.1").body["hypervisors"]) == 2
    assert cloud.get("/os-hypervisors/t.o/search", "2.1").code == 404
    found = cloud.get("/os-hypervisors?hypervisor_hostname_pattern=two.ex", "2.53").body["hypervisors"]
    assert [item["hypervisor_hostname"] for item in found] == ["two.example"]
    none = cloud.get("/os-hypervisors?hypervisor_hostname_pattern=zzz", "2.53")
    assert (none.code, none.fault) == (404, "No hypervisor matching 'zzz' could be found.")
    both = cloud.get("/os-hypervisors?hypervisor_hostname_pattern=two&limit=1", "2.53")
    assert (both.code, "is not supported" in both.fault) == (400, True)


def test_hypervisor_pages(cloud: Cloud) -> None:
    made = [cloud.add_host(host) for host in ("one", "two", "three")]
    for version, keys in (("2.33", [1, 2, 3]), ("2.53", [node.uuid for node in made])):
        first = cloud.get("/os-hypervisors?limit=2", version).body
        assert [item["id"] for item in first["hypervisors"]] == keys[:2]
        assert first["hypervisors_links"][0]["href"].endswith(f"/os-hypervisors?limit=2&marker={keys[1]}")
        rest = cloud.get(f"/os-hypervisors/detail?limit=2&marker={keys[1]}", version).body
        assert [item["id"] for item in rest["hypervisors"]] == keys[2:]
        assert "hypervisors_links" not in rest
        unknown = cloud.get("/os-hypervisors?marker=zzz", version)
        assert (unknown.code, unknown.fault) == (400, "marker [zzz] not found")
    assert len(cloud.get("/os-hypervisors?limit=1", "2.32").body["hypervisors"]) == 3
    assert cloud.get("/os-hypervisors?bogus=1", "2.53").code == 400


def test_hypervisor_statistics_uptime_and_the_unknown(cloud: Cloud) -> None:
    node = cloud.add_host("one", stats={"uptime": "up"})
    cloud.add_host("two")
    sums = cloud.get("/os-hypervisors/statistics", "2.87").body["hypervisor_statistics"]
    assert (sums["count"], sums["vcpus"], sums["memory_mb_used"], sums["free_disk_gb"]) == (2, 16, 1024, 2056)
    assert cloud.get("/os-hypervisors/statistics", "2.88").code == 404
    assert cloud.get("/os-hypervisors/1/uptime", "2.52").body["hypervisor"]["uptime"] == "up"
    assert cloud.get(f"/os-hypervisors/{node.uuid}/uptime", "2.87").code == 200
    assert cloud.get(f"/os-hypervisors/{node.uuid}/uptime", "2.88").code == 404
    assert cloud.get("/os-hypervisors/2/uptime", "2.1").code == 501
    missing = cloud.get("/os-hypervisors/99", "2.1")
    assert (missing.code, missing.fault) == (404, "Hypervisor with ID '99' could not be found.")
    assert cloud.get("/os-hypervisors/abc", "2.1").code == 404
    assert cloud.get("/os-hypervisors/99", "2.53").code == 400
    assert cloud.get(f"/os-hypervisors/{uuid4()}", "2.53").code == 404


def test_a_node_without_service_is_not_shown(cloud: Cloud) -> None:
    node = cloud.add_host("one")
    database = cloud.cells.database(cloud.cell)
    database.write(lambda tx: services.delete(tx, services.listing(tx)[0].uuid))
    assert cloud.get("/os-hypervisors").body == {"hypervisors": []}
    assert cloud.get(f"/os-hypervisors/{node.uuid}", "2.53").code == 404
    with database.read() as tx:
        assert nodes.get(tx, node.uuid).host == "one"
