"""GET of servers: every field at every version, lists with all their rules, and cells that are down."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from kilonova.api.moments import now
from kilonova.base.errors import ErrorRecord
from kilonova.base.versions import supported
from kilonova.core.network import FixedIP, Nic
from kilonova.core.request import RequestSpec
from kilonova.core.server import ServerFault, fault_of_record
from kilonova.store import instance_mappings, request_specs, services
from kilonova.store import servers as rows
from kilonova.store.cells import CELL0_UUID, CellMapping
from kilonova.store.session import Tx
from tests.api.cloud import OTHER_PROJECT, PROJECT
from tests.api.server_cloud import SMALL, ServerCloud, limited

EDGES = ("2.1", "2.2", "2.3", "2.8", "2.9", "2.15", "2.16", "2.18", "2.19", "2.25", "2.26", "2.46", "2.47", "2.62",
         "2.63", "2.68", "2.69", "2.70", "2.71", "2.72", "2.73", "2.74", "2.75", "2.89", "2.90", "2.95", "2.96", "2.97",
         "2.98", "2.99", "2.100", "2.104")  # fmt: skip


@pytest.mark.parametrize("who", ["admin", "member"])
def test_shown_as_the_schemas_have_it(servers: ServerCloud, who: str) -> None:
    """The harness holds each answer against the reference's schema of its version; both kinds of server."""
    running, waiting = servers.running(), servers.created()
    servers.add_host("h1")
    for version in EDGES:
        for uuid in (running.uuid, waiting):
            assert servers.get(f"/servers/{uuid}", version, who=who).code == 200
            body = {"server": {"name": "s"}}
            assert servers.put(f"/servers/{uuid}", version, body, who=who).code == 200
        for path in ("/servers", "/servers/detail"):
            assert len(servers.get(path, version, who=who).body["servers"]) == 2


def test_values_at_the_newest_version(servers: ServerCloud) -> None:
    server = servers.running()
    servers.add_host("h1")
    shown = servers.get(f"/servers/{server.uuid}", "2.104").body["server"]
    bookmark = f"http://falconframework.org/images/{servers.image.id}"
    assert shown["image"] == {
        "id": servers.image.id,
        "links": [{"rel": "bookmark", "href": bookmark}],
        "properties": {"architecture": "x86_64"},
    }
    assert shown["flavor"] == {
        "vcpus": 1, "ram": 512, "disk": 1, "ephemeral": 0, "swap": 0, "original_name": "m1.tiny",
        "extra_specs": {"a:b": "c"},
    }  # fmt: skip
    mac = {"OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01"}
    assert shown["addresses"] == {
        "private": [
            {"version": 4, "addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed", **mac},
            {"version": 4, "addr": "172.24.4.9", "OS-EXT-IPS:type": "floating", **mac},
        ]
    }
    expected = {
        "status": "ACTIVE", "progress": 0, "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": None,
        "OS-EXT-SRV-ATTR:host": "h1", "OS-EXT-SRV-ATTR:hypervisor_hostname": "h1.example", "host_status": "UP",
        "OS-EXT-SRV-ATTR:instance_name": "instance-00000001", "OS-EXT-SRV-ATTR:kernel_id": "",
        "OS-EXT-AZ:availability_zone": "nova", "config_drive": "", "key_name": None, "locked": False,
        "locked_reason": None, "tags": [], "server_groups": [], "trusted_image_certificates": None,
        "pinned_availability_zone": None, "scheduler_hints": {}, "security_groups": [{"name": "default"}],
        "accessIPv4": "", "accessIPv6": "", "OS-SRV-USG:terminated_at": None, "OS-DCF:diskConfig": "MANUAL",
    }  # fmt: skip
    assert {key: shown[key] for key in expected} == expected
    assert len(shown["hostId"]) == 56
    assert server.launched_at is not None
    assert shown["OS-SRV-USG:launched_at"] == server.launched_at.strftime("%Y-%m-%dT%H:%M:%S.%f")
    hidden = servers.get(f"/servers/{server.uuid}", "2.104", who="member").body["server"]
    assert {key for key in shown if key not in hidden} == {
        "OS-EXT-SRV-ATTR:host", "OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:instance_name", "host_status",
        "OS-EXT-SRV-ATTR:kernel_id", "OS-EXT-SRV-ATTR:ramdisk_id", "OS-EXT-SRV-ATTR:launch_index",
        "OS-EXT-SRV-ATTR:reservation_id", "OS-EXT-SRV-ATTR:root_device_name", "OS-EXT-SRV-ATTR:user_data",
    }  # fmt: skip


def test_flavor_before_and_after_it_is_embedded(servers: ServerCloud) -> None:
    server = servers.running()
    link = {"rel": "bookmark", "href": "http://falconframework.org/flavors/1"}
    assert servers.get(f"/servers/{server.uuid}", "2.46").body["server"]["flavor"] == {"id": "1", "links": [link]}
    assert "id" not in servers.get(f"/servers/{server.uuid}", "2.47").body["server"]["flavor"]


def _add_fault(tx: Tx, fault: ServerFault) -> None:
    rows.add_fault(tx, fault)


def _change(tx: Tx, uuid: str, changes: dict[str, Any]) -> None:
    services.update(tx, uuid, **changes)


def test_faults_are_the_same_in_list_and_show(servers: ServerCloud) -> None:
    secret = ErrorRecord(kind="DriverBroke", message="secret text")
    for cell in (servers.cell, CELL0_UUID):
        server = servers.record(vm_state="error")
        servers.put_server(server, cell=cell)
        fault = fault_of_record(server.uuid, secret, at=now())
        servers.cells.database(cell).write(functools.partial(_add_fault, fault=fault))
        shown = servers.get(f"/servers/{server.uuid}", who="member").body["server"]["fault"]
        assert shown == {"code": 500, "message": "DriverBroke", "created": shown["created"]}
        listed = servers.get("/servers/detail?status=ERROR", who="member").body["servers"]
        assert [each["fault"] for each in listed if each["id"] == server.uuid] == [shown]
        told = servers.get(f"/servers/{server.uuid}").body["server"]["fault"]
        assert "secret text" in told["details"]
    assert "fault" not in servers.get(f"/servers/{servers.running().uuid}").body["server"]


def test_groups_and_hints(servers: ServerCloud) -> None:
    made = servers.post("/os-server-groups", "2.64", {"server_group": {"name": "g", "policy": "affinity"}})
    group = made.body["server_group"]["id"]
    body = servers.new("2.71") | {"os:scheduler_hints": {"group": group}}
    uuid = servers.post("/servers", "2.71", body).body["server"]["id"]
    members = servers.request(uuid).request.group
    assert members is not None
    assert members.uuid == group
    for version, shown in (("2.70", None), ("2.71", [group])):
        assert servers.get(f"/servers/{uuid}", version).body["server"].get("server_groups") == shown
        assert "server_groups" not in servers.get("/servers/detail", version).body["servers"][0]
    assert servers.get(f"/servers/{uuid}", "2.100").body["server"]["scheduler_hints"] == {"group": [group]}
    assert servers.get("/servers/detail", "2.100").body["servers"][0]["scheduler_hints"] == {"group": [group]}
    unknown = servers.new("2.71") | {"os:scheduler_hints": {"group": str(uuid4())}}
    assert "could not be found" in servers.post("/servers", "2.71", unknown).fault


def test_others_do_not_find_it(servers: ServerCloud) -> None:
    server = servers.running()
    for method in ("GET", "DELETE"):
        answer = servers.ask(method, f"/servers/{server.uuid}", "2.1", who="other")
        assert (answer.code, answer.fault) == (404, f"Instance {server.uuid} could not be found.")
    assert servers.get("/servers/detail", who="other").body == {"servers": []}
    assert servers.get("/servers/no-uuid").code == 404


def _ids(answer: Any) -> list[str]:
    assert answer.code == 200, answer.body
    return [server["id"] for server in answer.body["servers"]]


def _many(servers: ServerCloud, count: int, **changes: Any) -> list[str]:
    """Servers a minute apart, the oldest first; every second one in cell0."""
    made = []
    for number in range(count):
        at = now() - datetime.timedelta(minutes=count - number)
        server = servers.record(created_at=at, updated_at=at, **changes)
        servers.put_server(server, cell=CELL0_UUID if number % 2 else servers.cell)
        made.append(server.uuid)
    return made


def test_pages_over_cells_and_build_requests(servers: ServerCloud) -> None:
    made = [*_many(servers, 5), servers.created()]
    newest_first = made[::-1]
    assert _ids(servers.get("/servers")) == newest_first
    found: list[str] = []
    path = "/servers?limit=4"
    pages = 0
    while path:
        answer = servers.get(path)
        found += _ids(answer)
        [link] = answer.body.get("servers_links", [None])
        path = link["href"].partition("/v2.1")[2] if link else ""
        pages += 1
    assert (found, pages) == (newest_first, 2)
    link = servers.get("/servers/detail?limit=3&sort_key=created_at&sort_dir=asc").body["servers_links"][0]["href"]
    assert link.endswith(f"/v2.1/servers/detail?limit=3&marker={made[2]}&sort_dir=asc&sort_key=created_at")
    assert "servers_links" in servers.get("/servers?limit=6").body
    assert servers.get("/servers?limit=0").body == {"servers": []}
    answer = servers.get(f"/servers?marker={uuid4()}")
    assert (answer.code, answer.fault[:8], answer.fault[-9:]) == (400, "marker [", "not found")


def test_deleted_servers_page_to_the_end_once(servers: ServerCloud) -> None:
    made = _many(servers, 4)
    for place, uuid in enumerate(made):
        cell = CELL0_UUID if place % 2 else servers.cell
        servers.cells.database(cell).write(functools.partial(rows.mark_deleted, uuid=uuid, at=now()))
    assert _ids(servers.get("/servers/detail")) == []
    first = _ids(servers.get("/servers/detail?deleted=True&all_tenants=1&limit=2"))
    rest = _ids(servers.get(f"/servers/detail?deleted=True&all_tenants=1&limit=2&marker={first[-1]}"))
    assert first + rest == made[::-1]
    assert _ids(servers.get("/servers/detail?deleted=True", who="member")) == []
    assert _ids(servers.get("/servers?status=deleted")) == made[::-1]
    answer = servers.get("/servers?status=DELETED", who="member")
    assert (answer.code, answer.fault) == (403, "Only administrators may list deleted instances")


def test_filters(servers: ServerCloud) -> None:
    nic = Nic(port_id="p", network_id="n", mac="m", fixed_ips=[FixedIP(address="10.9.9.9", version=4),
              FixedIP(address="2001:db8::9", version=6)])  # fmt: skip
    one = servers.running(name="instance1", tags=["a"], locked=True, nics=[nic]).uuid
    two = servers.running(name="instance11", vm_state="stopped", tags=["a", "b"], host="h2", metadata={"k": "v"}).uuid
    waiting = servers.created("2.104", name="waiting")
    other = servers.running(project_id=OTHER_PROJECT).uuid
    everything, both = {one, two, waiting}, {one, two}
    cases: list[tuple[str, str, set[str]]] = [
        ("name=instance1", "2.1", both), ("name=^instance1$", "2.1", {one}), ("name=INSTANCE", "2.1", both),
        ("status=active", "2.1", {one}), ("status=SHUTOFF&status=BUILD", "2.1", {two, waiting}),
        ("status=REBOOT", "2.1", set()), ("ip=10\\.9", "2.1", {one}), ("ip6=2001", "2.5", {one}),
        ("ip6=2001", "2.1", everything), ("tags=a", "2.26", both), ("tags=a,b", "2.26", {two}),
        ("tags-any=b,c", "2.26", {two}), ("not-tags=a,b", "2.26", {one, waiting}),
        ("not-tags-any=a", "2.26", {waiting}), ("locked=true", "2.73", {one}), ("locked=0", "2.73", {two, waiting}),
        ("vm_state=stopped", "2.82", everything), ("vm_state=stopped", "2.83", {two}), ("host=h2", "2.1", everything),
        (f"image={servers.image.id}", "2.1", everything), ("flavor=1", "2.1", everything), ("flavor=2", "2.1", set()),
        ("bogus=1", "2.1", everything), (f"project_id={OTHER_PROJECT}", "2.1", everything),
        ("reservation_id=r-abcdefgh", "2.1", both), ("power_state=1", "2.83", both), ("hostname=^s$", "2.90", both),
    ]  # fmt: skip
    for query, version, expected in cases:
        found = _ids(servers.get(f"/servers?{query}", version, who="member"))
        assert (query, version, set(found)) == (query, version, expected)
        assert len(found) == len(expected)
    assert set(_ids(servers.get("/servers?host=h2"))) == {two}
    assert set(_ids(servers.get("/servers?all_tenants"))) == everything | {other}
    assert set(_ids(servers.get(f"/servers?all_tenants=1&project_id={OTHER_PROJECT}"))) == {other}
    assert set(_ids(servers.get(f"/servers?tenant_id={OTHER_PROJECT}"))) == everything


def test_lists_that_are_refused(servers: ServerCloud) -> None:
    bad = "Invalid input for query parameters"
    for query, version, code, text in (
        ("limit=abc", "2.1", 400, f"{bad} limit. Value: abc. 'abc' does not match '^[0-9]*$'"),
        ("limit=-1", "2.1", 400, f"{bad} limit. Value: -1. '-1' does not match '^[0-9]*$'"),
        ("sort_key=foo", "2.1", 400, f"{bad} sort_key. Value: foo. 'foo' is not one of ["),
        ("sort_key=vcpus", "2.75", 400, "'vcpus' is not one of ["),
        ("sort_key=locked", "2.1", 200, ""),
        ("sort_dir=up&sort_key=uuid", "2.1", 400, "sort direction"),
        ("sort_key=host", "2.1", 403, "Only administrators can sort servers by host"),
        ("bogus=1", "2.75", 400, "bogus"),
        ("_x=1", "2.1", 400, "Invalid filter field: _x."),
        ("metadata=1", "2.1", 400, "Invalid filter field: metadata."),
        ("changes-since=xx", "2.1", 400, f"{bad} changes-since. Value: xx. 'xx' is not a 'date-time'"),
        ("changes-before=2026-01-01T00:00:00Z&changes-since=2026-01-02T00:00:00Z", "2.66", 400, "changes-since"),
        ("status=NOTASTATUS", "2.37", 200, ""), ("status=NOTASTATUS", "2.38", 400, "Invalid status value"),
        ("name=*(", "2.1", 400, "name"), ("name=", "2.1", 400, "name"),
        ("all_tenants=maybe", "2.1", 400, "all_tenants"),
        ("all_tenants=1", "2.1", 403, "Policy doesn't allow os_compute_api:servers:index:get_all_tenants to be"),
        ("locked=maybe", "2.73", 400, "locked"),
    ):  # fmt: skip
        answer = servers.get(f"/servers?{query}", version, who="member")
        assert (query, answer.code) == (query, code)
        assert code == 200 or text in answer.fault, (query, answer.fault)
    assert servers.get("/servers?status=NOTASTATUS", "2.37").body == {"servers": []}


def test_changes_since_shows_the_deleted(servers: ServerCloud) -> None:
    old, new = servers.running(updated_at=now() - datetime.timedelta(days=1)).uuid, servers.running().uuid
    gone = servers.running().uuid
    servers.cells.database(servers.cell).write(lambda tx: rows.mark_deleted(tx, gone, now()))
    since = (now() - datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert set(_ids(servers.get(f"/servers?changes-since={since}", who="member"))) == {new, gone}
    assert set(_ids(servers.get(f"/servers?changes-since={since}&deleted=false"))) == {new}
    assert set(_ids(servers.get(f"/servers?changes-before={since}", "2.66"))) == {old}
    [shown] = [s for s in servers.get(f"/servers/detail?changes-since={since}").body["servers"] if s["id"] == gone]
    assert (shown["status"], shown["OS-SRV-USG:terminated_at"] is not None) == ("DELETED", True)


def test_a_server_that_gets_its_cell_is_listed_once(servers: ServerCloud) -> None:
    uuid = servers.created()
    request = servers.request(uuid)
    servers.cells.database(servers.cell).write(lambda tx: rows.insert(tx, request.server, request.devices))
    assert _ids(servers.get("/servers")) == [uuid]
    servers.cells.database(servers.cell).write(lambda tx: rows.hard_delete(tx, uuid))
    servers.hand_over(uuid)
    assert _ids(servers.get("/servers")) == [uuid]
    assert servers.get(f"/servers/{uuid}").code == 200


def test_cells_that_are_down(servers: ServerCloud) -> None:
    broken = str(uuid4())
    servers.cells.add(
        CellMapping(uuid=broken, name="broken", transport_url="", database_url="sqlite:////nonexistent/x.db")
    )
    lost = servers.running()
    alive = servers.running().uuid
    spec = RequestSpec(project_id=PROJECT, user_id="member-user", flavor=SMALL, image_id=servers.image.id)

    def lose(tx: Any) -> None:
        instance_mappings.set_cell(tx, lost.uuid, broken)
        request_specs.put(tx, lost.uuid, spec)

    servers.cells.api.write(lose)
    servers.cells.database(servers.cell).write(lambda tx: rows.hard_delete(tx, lost.uuid))
    assert _ids(servers.get("/servers", "2.68", who="member")) == [alive]
    listed = servers.get("/servers/detail", "2.69", who="member").body["servers"]
    assert [set(server) for server in listed[:1]] == [{"id", "status", "tenant_id", "created", "links"}]
    assert [server["id"] for server in listed] == [lost.uuid, alive]
    assert _ids(servers.get("/servers?name=s", "2.69", who="member")) == [alive]
    shown = servers.get(f"/servers/{lost.uuid}", "2.104", who="member").body["server"]
    assert (shown["status"], shown["OS-EXT-AZ:availability_zone"]) == ("UNKNOWN", "UNKNOWN")
    assert servers.get(f"/servers/{lost.uuid}", "2.68", who="member").code == 503


def test_the_smallest_create_is_taken_at_every_version(make_server_cloud: Callable[..., ServerCloud]) -> None:
    servers = make_server_cloud(limited(instances=-1, cores=-1, ram=-1))
    for version in supported():
        assert servers.create(str(version)).code == 202, version


def test_host_status(servers: ServerCloud) -> None:
    servers.add_host("h1")
    uuid = servers.running().uuid
    database = servers.cells.database(servers.cell)
    [service] = database.query(services.listing)
    changes: dict[str, Any]
    for changes, expected in (
        ({}, "UP"),
        ({"last_seen_up": now() - datetime.timedelta(hours=1)}, "UNKNOWN"),
        ({"disabled": True}, "MAINTENANCE"),
        ({"forced_down": True}, "DOWN"),
    ):
        database.write(functools.partial(_change, uuid=service.uuid, changes=changes))
        assert servers.get(f"/servers/{uuid}", "2.16").body["server"]["host_status"] == expected
    assert servers.get(f"/servers/{servers.created()}", "2.16").body["server"]["host_status"] == ""
