"""What can be asked of a create, and what becomes of it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from tests.functional.cloud import Cloud, User, boot_from, boot_from_new, wait_for


@pytest.fixture
def servers(admin: User) -> Iterator[list[str]]:
    """Servers that a test leaves here are deleted after it."""
    left: list[str] = []
    yield left
    for server in left:
        admin.call("DELETE", f"/servers/{server}")
    for server in left:
        admin.await_gone(server)


def _host(admin: User, server: str) -> str:
    return str(admin.show(server)["OS-EXT-SRV-ATTR:host"])


def test_boot_from_a_volume_that_is_there(demo: User, servers: list[str]) -> None:
    volume = demo.bootable()
    server = demo.boot("existing", **boot_from(volume))
    assert server["os-extended-volumes:volumes_attached"] == [{"id": volume, "delete_on_termination": False}]
    assert demo.show_volume(volume)["status"] == "in-use"
    demo.delete(server["id"])
    demo.await_volume(volume, "available")
    assert demo.attachments(volume) == []
    demo.delete_volume(volume)


def test_boot_from_a_volume_made_of_an_image(cloud: Cloud, demo: User) -> None:
    server = demo.boot("fresh", **boot_from_new(cloud.image))
    (attached,) = server["os-extended-volumes:volumes_attached"]
    assert demo.show_volume(attached["id"])["status"] == "in-use"
    demo.delete(server["id"])
    path = f"/{demo.project}/volumes/{attached['id']}"
    wait_for(lambda: demo.call("GET", path, service="cinder").status == 404, what="the volume went with its server")


def test_boot_on_a_users_port_which_outlives_the_server(demo: User) -> None:
    port = demo.port(name="mine")
    server = demo.boot("on-port", networks=[{"port": port}])
    assert [p["id"] for p in demo.ports(server["id"])] == [port]
    demo.delete(server["id"])
    left = demo.get(f"/ports/{port}", service="neutron")["port"]
    assert (left["device_id"], left["device_owner"]) == ("", "")
    assert demo.call("DELETE", f"/ports/{port}", service="neutron").status == 204


def test_several_at_once(admin: User, demo: User, servers: list[str]) -> None:
    body = demo.wanted("batch", min_count=3, max_count=3, return_reservation_id=True)
    reservation = demo.post("/servers", body)["reservation_id"]
    found = admin.get(f"/servers?all_tenants=1&reservation_id={reservation}")["servers"]
    servers += [server["id"] for server in found]
    assert sorted(server["name"] for server in found) == ["batch-1", "batch-2", "batch-3"]
    hosts = set()
    for server in servers:
        demo.await_status(server, "ACTIVE")
        hosts.add(_host(admin, server))
    assert len(hosts) > 1, "a batch spreads"


@pytest.mark.parametrize("policy, hosts", [("affinity", 1), ("anti-affinity", 3)])
def test_server_groups(admin: User, demo: User, servers: list[str], policy: str, hosts: int) -> None:
    made = demo.post("/os-server-groups", {"server_group": {"name": policy, "policy": policy}})
    group = made["server_group"]["id"]
    servers += [demo.create(f"{policy}-{number}", hints={"group": group}) for number in range(3)]
    for server in servers:
        demo.await_status(server, "ACTIVE")
    assert len({_host(admin, server) for server in servers}) == hosts
    assert sorted(demo.get(f"/os-server-groups/{group}")["server_group"]["members"]) == sorted(servers)
    if policy == "anti-affinity":
        servers.append(demo.create("one-too-many", hints={"group": group}))
        fault = demo.await_status(servers[-1], "ERROR")["fault"]
        assert fault["message"].startswith("No valid host was found.")
    assert demo.call("DELETE", f"/os-server-groups/{group}").status == 204


def test_a_deleted_server_leaves_its_group(cloud: Cloud, demo: User) -> None:
    made = demo.post("/os-server-groups", {"server_group": {"name": "left", "policy": "anti-affinity"}})
    group = made["server_group"]["id"]
    server = demo.create("leaves", hints={"group": group})
    demo.await_status(server, "ACTIVE")
    assert _memberships(cloud, server) == 1
    demo.delete(server)
    assert _memberships(cloud, server) == 0
    assert demo.call("DELETE", f"/os-server-groups/{group}").status == 204


def _memberships(cloud: Cloud, server: str) -> int:
    """Read in the database: the API shows living members only."""
    path = f"file:{cloud.state / 'db' / 'nova_api.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
        query = "select count(*) from instance_group_member where instance_uuid = ?"
        return int(database.execute(query, (server,)).fetchone()[0])


def test_availability_zone_by_aggregate(admin: User, demo: User, servers: list[str]) -> None:
    body = {"aggregate": {"name": "east", "availability_zone": "zone-east"}}
    aggregate = admin.post("/os-aggregates", body)["aggregate"]["id"]
    path = f"/os-aggregates/{aggregate}"
    try:
        admin.post(f"{path}/action", {"add_host": {"host": "host-2"}})
        servers.append(demo.create("eastern", availability_zone="zone-east"))
        shown = demo.await_status(servers[0], "ACTIVE")
        assert shown["OS-EXT-AZ:availability_zone"] == "zone-east"
        assert _host(admin, servers[0]) == "host-2"
        refused = demo.call("POST", "/servers", demo.wanted("nowhere", availability_zone="zone-west"))
        assert (refused.status, refused.fault) == (400, "badRequest")
        demo.delete(servers.pop())
    finally:
        admin.call("POST", f"{path}/action", {"remove_host": {"host": "host-2"}})
        assert admin.call("DELETE", path).status == 200


def test_no_valid_host_says_why(cloud: Cloud, admin: User, demo: User, servers: list[str]) -> None:
    body = {"flavor": {"name": "giant", "id": "giant", "ram": 10_000_000, "vcpus": 1, "disk": 1}}
    admin.post("/flavors", body)
    try:
        servers.append(demo.create("giant", flavorRef="giant"))
        fault = demo.await_status(servers[0], "ERROR")["fault"]
        assert fault["code"] == 500
        assert fault["message"].startswith("No valid host was found.")
        why = cloud.kilonova("why", servers[0], "--state-dir", str(cloud.state)).stdout
        assert "MEMORY_MB" in why
        actions = demo.get(f"/servers/{servers[0]}/os-instance-actions")["instanceActions"]
        assert [(a["action"], a["message"]) for a in actions] == [("create", "Error")]
        path = f"/servers/{servers[0]}/os-instance-actions/{actions[0]['request_id']}"
        (event,) = demo.get(path)["instanceAction"]["events"]
        assert (event["event"], event["result"]) == ("conductor_schedule_and_build_instances", "Error")
    finally:
        assert admin.call("DELETE", "/flavors/giant").status == 202


def test_quota(admin: User, demo: User) -> None:
    used = demo.get("/limits")["limits"]["absolute"]["totalInstancesUsed"]
    admin.set_quota(demo.project, instances=used)
    try:
        refused = demo.call("POST", "/servers", demo.wanted("too-many"))
        assert (refused.status, refused.fault) == (403, "forbidden")
        assert refused.message.startswith("Quota exceeded for instances")
        assert demo.get("/servers?name=too-many")["servers"] == []
    finally:
        admin.set_quota(demo.project)


def test_an_alternate_takes_over_what_a_host_cannot_do(admin: User, demo: User, servers: list[str]) -> None:
    """``kilonova:fail`` fails on each host: the server is in ERROR after as many as may be tried, nothing is held."""
    servers.append(demo.create("failing", metadata={"kilonova:fail": "spawn"}))
    shown = demo.await_status(servers[0], "ERROR")
    assert shown["fault"]["message"].startswith("Exceeded maximum number of retries.")
    request = demo.get(f"/servers/{servers[0]}/os-instance-actions")["instanceActions"][0]["request_id"]
    events = admin.get(f"/servers/{servers[0]}/os-instance-actions/{request}")["instanceAction"]["events"]
    tried = [e["host"] for e in events if e["event"] == "compute__do_build_and_run_instance" and e["result"] == "Error"]
    assert sorted(tried) == ["host-1", "host-2", "host-3"]
    held = admin.get(f"/allocations/{servers[0]}", service="placement")["allocations"]
    assert held == {}
    assert demo.ports(servers[0]) == []


def test_a_build_that_no_other_host_would_do_better_is_not_tried_again(demo: User, servers: list[str]) -> None:
    servers.append(demo.create("aborting", metadata={"kilonova:fail": "spawn-abort"}))
    demo.await_status(servers[0], "ERROR")
    request = demo.get(f"/servers/{servers[0]}/os-instance-actions")["instanceActions"][0]["request_id"]
    events = demo.get(f"/servers/{servers[0]}/os-instance-actions/{request}")["instanceAction"]["events"]
    assert len(events) == 1
