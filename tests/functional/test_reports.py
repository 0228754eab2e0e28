"""Reports from the field about the original service and its clients, each as a test named after its number.

Elsewhere: C-38 in ``test_deletes``; N-17 (a) there too. Not here, because what they are about is made later: N-05,
N-25, C-35 (attaching volumes to servers), N-11's second half and C-15, C-17 (resize), C-19's first half (detaching an
interface), C-21 (shelve), C-29 (remote consoles), C-37 (snapshots). N-15 on other databases: ``tests/db``.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.functional.cloud import Cloud, User, boot_from, wait_for


@pytest.fixture(scope="module")
def resting(demo: User) -> Iterator[dict[str, Any]]:
    """A server that tests look at and leave as it is."""
    server = demo.boot("resting")
    yield server
    demo.delete(server["id"])


@pytest.fixture(scope="module")
def failed(demo: User, admin: User) -> Iterator[list[str]]:
    """A server whose host failed, and one that found no host."""
    made = [
        demo.create("failed-0", metadata={"kilonova:fail": "spawn-abort"}),
        demo.create("failed-1", flavorRef=_huge(admin)),
    ]
    for server in made:
        demo.await_status(server, "ERROR")
    yield made
    for server in made:
        demo.delete(server)


@pytest.fixture
def servers(admin: User) -> Iterator[list[str]]:
    """Servers that a test leaves here are deleted after it."""
    left: list[str] = []
    yield left
    for server in left:
        admin.call("DELETE", f"/servers/{server}")
    for server in left:
        admin.await_gone(server)


def _huge(admin: User) -> str:
    body = {"flavor": {"name": "huge", "id": "huge", "ram": 5_000_000, "vcpus": 1, "disk": 1}}
    assert admin.call("POST", "/flavors", body).status in (200, 409)
    return "huge"


# --- servers: lists and shows


def test_n_01_the_fault_is_in_the_list_as_in_the_show(demo: User, admin: User, failed: list[str]) -> None:
    for user, more in ((demo, ""), (admin, "&all_tenants=1")):
        listed = {s["id"]: s for s in user.get(f"/servers/detail?status=ERROR{more}")["servers"]}
        for server in failed:
            assert listed[server]["fault"] == user.show(server)["fault"]
            assert {"code", "created", "message"} <= listed[server]["fault"].keys()


def test_n_03_a_marker_in_one_cell_pages_into_another(
    demo: User, admin: User, resting: dict[str, Any], servers: list[str]
) -> None:
    servers += [demo.create(f"buried-{number}", flavorRef=_huge(admin)) for number in range(2)]
    for server in servers:
        demo.await_status(server, "ERROR")
    everything = [s["id"] for s in demo.get("/servers")["servers"]]
    assert resting["id"] in everything
    for place, marker in enumerate(everything):
        page = demo.get(f"/servers?limit=3&marker={marker}")["servers"]
        assert [s["id"] for s in page] == everything[place + 1 : place + 4]


@pytest.mark.parametrize("who", ["demo", "admin"])
def test_n_13_an_unknown_status(cloud: Cloud, who: str) -> None:
    user = cloud.user({"demo": "kilonova-demo", "admin": "kilonova"}[who])
    assert user.get("/servers?status=NOTASTATUS", mv="2.37")["servers"] == []
    refused = user.call("GET", "/servers?status=NOTASTATUS", mv="2.38")
    assert (refused.status, refused.fault) == (400, "badRequest")


def test_c_07_the_flavor_in_a_server(demo: User, resting: dict[str, Any]) -> None:
    old, new = (demo.show(resting["id"], mv=mv)["flavor"] for mv in ("2.46", "2.47"))
    assert old.keys() == {"id", "links"}
    assert new.keys() == {"vcpus", "ram", "disk", "ephemeral", "swap", "original_name", "extra_specs"}


def test_c_11_the_image_of_a_server_that_boots_from_a_volume(demo: User, servers: list[str]) -> None:
    volume = demo.bootable()
    servers.append(demo.boot("from-volume", **boot_from(volume))["id"])
    assert demo.show(servers[0])["image"] == ""
    listed = demo.get("/servers/detail?name=from-volume")["servers"]
    assert [s["image"] for s in listed] == [""]
    demo.delete(servers.pop())
    demo.await_volume(volume, "available")
    demo.delete_volume(volume)


def test_c_13_names_and_markers(demo: User, resting: dict[str, Any]) -> None:
    by_name = demo.call("GET", f"/servers/{resting['name']}")
    assert (by_name.status, by_name.fault) == (404, "itemNotFound")
    page = demo.get(f"/servers?limit=5&name={resting['name']}")
    assert "servers_links" not in page
    full = demo.get(f"/servers?limit=1&name={resting['name']}")
    assert full["servers_links"][0]["rel"] == "next"
    assert demo.get(f"/servers?limit=1&marker={resting['id']}&name={resting['name']}")["servers"] == []
    unknown = demo.call("GET", "/servers?marker=8e2c1c5f-0f9f-4b52-9f63-6b0a5f3ad9d3")
    assert (unknown.status, unknown.fault) == (400, "badRequest")


def test_c_27_deleted_servers_page_to_the_end_exactly_once(admin: User, demo: User) -> None:
    gone = [demo.create(f"deleted-{number}", networks="none") for number in range(3)]
    for server in gone:
        demo.await_status(server, "ACTIVE")
        demo.delete(server)
    seen: list[str] = []
    path = "/servers/detail?deleted=True&all_tenants=1&limit=2&name=deleted-"
    page = admin.get(path)["servers"]
    while page:
        seen += [server["id"] for server in page]
        assert len(seen) < 1000
        page = admin.get(f"{path}&marker={seen[-1]}")["servers"]
    assert len(seen) == len(set(seen))
    assert set(gone) <= set(seen)


def test_c_33_names_are_searched_by_pattern(demo: User, servers: list[str]) -> None:
    servers += [demo.create(name, networks="none") for name in ("instance1", "instance11")]
    assert {s["name"] for s in demo.get("/servers?name=instance1")["servers"]} == {"instance1", "instance11"}
    assert [s["name"] for s in demo.get("/servers?name=^instance1$")["servers"]] == ["instance1"]


def test_c_39_the_group_of_a_server(demo: User, servers: list[str]) -> None:
    body = {"server_group": {"name": "few", "policy": "affinity"}}
    group = demo.post("/os-server-groups", body)["server_group"]["id"]
    servers.append(demo.boot("grouped", hints={"group": group})["id"])
    assert "server_groups" not in demo.show(servers[0], mv="2.70")
    assert demo.show(servers[0], mv="2.71")["server_groups"] == [group]
    updated = demo.call("PUT", f"/servers/{servers[0]}", {"server": {"name": "grouped-2"}}, mv="2.71")
    assert updated.body["server"]["server_groups"] == [group]
    (listed,) = demo.get("/servers/detail?name=grouped", mv="2.71")["servers"]
    assert "server_groups" not in listed
    assert demo.call("DELETE", f"/os-server-groups/{group}").status == 204
    assert demo.show(servers[0], mv="2.71")["server_groups"] == []


def test_c_41_addresses(demo: User, resting: dict[str, Any]) -> None:
    (port,) = demo.ports(resting["id"])
    shown = demo.show(resting["id"])
    (found,) = shown["addresses"].values()
    fixed = port["fixed_ips"][0]["ip_address"]
    assert {(a["addr"], a["OS-EXT-IPS:type"], a["OS-EXT-IPS-MAC:mac_addr"]) for a in found} == {
        (fixed, "fixed", port["mac_address"])
    }
    assert (shown["accessIPv4"], shown["accessIPv6"]) == ("", "")


def test_c_41_a_floating_address_that_comes_later(demo: User, resting: dict[str, Any]) -> None:
    """Neutron tells of it by an event."""
    (port,) = demo.ports(resting["id"])
    (external,) = demo.get("/networks?router:external=True", service="neutron")["networks"]
    wanted = {"floatingip": {"floating_network_id": external["id"], "port_id": port["id"]}}
    made = demo.post("/floatingips", wanted, service="neutron")["floatingip"]

    def kinds() -> set[tuple[str, str]]:
        (found,) = demo.show(resting["id"])["addresses"].values()
        return {(a["addr"], a["OS-EXT-IPS:type"]) for a in found}

    fixed = (port["fixed_ips"][0]["ip_address"], "fixed")
    floating = (made["floating_ip_address"], "floating")
    try:
        wait_for(lambda: kinds() == {fixed, floating}, what="the floating address is shown")
    finally:
        demo.call("DELETE", f"/floatingips/{made['id']}", service="neutron")
    wait_for(lambda: kinds() == {fixed}, what="the floating address is gone")


# --- creates


def test_n_09_one_port_twice(demo: User) -> None:
    port = demo.port()
    before = demo.get("/limits")["limits"]["absolute"]["totalInstancesUsed"]
    refused = demo.call("POST", "/servers", demo.wanted("twin", networks=[{"port": port}, {"port": port}]))
    assert (refused.status, refused.fault) == (400, "badRequest")
    assert demo.get("/servers?name=twin")["servers"] == []
    assert demo.get("/limits")["limits"]["absolute"]["totalInstancesUsed"] == before
    demo.call("DELETE", f"/ports/{port}", service="neutron")


def test_n_29_an_unknown_pci_alias(admin: User) -> None:
    flavor = {"flavor": {"name": "pci", "id": "pci", "ram": 128, "vcpus": 1, "disk": 1}}
    admin.post("/flavors", flavor)
    specs = {"extra_specs": {"pci_passthrough:alias": "nosuch:1"}}
    assert admin.call("POST", "/flavors/pci/os-extra_specs", specs).status == 200
    refused = admin.call("POST", "/servers", admin.wanted("pci", flavorRef="pci"))
    assert (refused.status, refused.fault) == (400, "badRequest")
    assert admin.call("DELETE", "/flavors/pci").status == 202


def test_n_33_a_name_given_at_once_stays(demo: User, servers: list[str]) -> None:
    servers.append(demo.create("old-name"))
    changed = demo.call("PUT", f"/servers/{servers[0]}", {"server": {"name": "new-name"}})
    assert changed.status == 200
    assert demo.await_status(servers[0], "ACTIVE")["name"] == "new-name"


def test_c_25_an_image_onto_a_volume_without_a_size(cloud: Cloud, demo: User) -> None:
    device = {"boot_index": 0, "uuid": cloud.image, "source_type": "image", "destination_type": "volume"}
    refused = demo.call("POST", "/servers", demo.wanted("sizeless", imageRef=None, block_device_mapping_v2=[device]))
    assert (refused.status, refused.fault) == (400, "badRequest")
    assert "Images with destination_type 'volume' need to have a non-zero size specified" in refused.message


def test_c_31_two_networks_and_none_named(demo: User) -> None:
    second = demo.post("/networks", {"network": {"name": "second"}}, service="neutron")["network"]["id"]
    body = {"subnet": {"network_id": second, "cidr": "10.77.0.0/24", "ip_version": 4}}
    demo.post("/subnets", body, service="neutron")
    try:
        refused = demo.call("POST", "/servers", demo.wanted("unsure", networks=None), mv="2.36")
        assert (refused.status, refused.fault) == (409, "conflictingRequest")
        assert refused.message == "Multiple possible networks found, use a Network ID to be more specific."
    finally:
        assert demo.call("DELETE", f"/networks/{second}", service="neutron").status == 204


# --- deletes


def test_n_17_a_volume_is_free_again_after_no_valid_host(demo: User, admin: User) -> None:
    volume = demo.bootable()
    server = demo.create("b", flavorRef=_huge(admin), **boot_from(volume))
    demo.await_status(server, "ERROR")
    demo.delete(server)
    demo.await_volume(volume, "available")
    assert demo.attachments(volume) == []
    demo.delete_volume(volume)


def test_n_17_a_volume_is_free_again_after_creates_that_were_over_quota_together(demo: User, admin: User) -> None:
    volumes = [demo.bootable() for _ in range(2)]
    used = demo.get("/limits")["limits"]["absolute"]["totalInstancesUsed"]
    admin.set_quota(demo.project, instances=used + 1)
    try:
        with ThreadPoolExecutor(2) as pool:
            bodies = [demo.wanted("c", **boot_from(volume)) for volume in volumes]
            answers = list(pool.map(lambda body: demo.call("POST", "/servers", body), bodies))
        assert {answer.status for answer in answers} <= {202, 403}
        assert [answer.status for answer in answers].count(202) <= 1
    finally:
        admin.set_quota(demo.project)
    for answer in answers:
        if answer.status == 202:
            demo.delete(answer.body["server"]["id"])
    for volume in volumes:
        demo.await_volume(volume, "available")
        assert demo.attachments(volume) == []
        demo.delete_volume(volume)


def test_n_17_a_volume_is_free_again_after_a_delete_while_building(demo: User) -> None:
    volume = demo.bootable()
    server = demo.create("d", metadata={"kilonova:delay": "spawn=60"}, tags=["seen"], **boot_from(volume))
    wait_for(lambda: demo.show(server)["OS-EXT-STS:task_state"] == "spawning", what="it is being made")
    assert demo.show(server)["tags"] == ["seen"]
    demo.delete(server)
    demo.await_volume(volume, "available")
    assert demo.attachments(volume) == []
    demo.delete_volume(volume)


def test_n_18_a_delete_while_the_host_is_down(cloud: Cloud, demo: User, admin: User) -> None:
    """Several, as it takes conductors up to a second to hear that a host was forced down."""
    body = {"server_group": {"name": "left-behind", "policy": "affinity"}}
    group = demo.post("/os-server-groups", body)["server_group"]["id"]
    made = [demo.boot("left-behind", hints={"group": group})["id"] for _ in range(3)]
    host = admin.show(made[0])["OS-EXT-SRV-ATTR:host"]
    guests = {server: cloud.state / "compute" / "fake" / host / f"{server}.json" for server in made}
    assert all(guest.exists() for guest in guests.values())
    (service,) = admin.get(f"/os-services?host={host}&binary=nova-compute")["services"]
    path = f"/os-services/{service['id']}"
    assert admin.call("PUT", path, {"forced_down": True}).status == 200
    try:
        for server in made:
            demo.delete(server)
            assert admin.get(f"/allocations/{server}", service="placement")["allocations"] == {}
        assert guests[made[-1]].exists(), "nobody told the host"
        seen = admin.get(f"/os-services?host={host}&binary=nova-compute")["services"][0]["updated_at"]
        wait_for(
            lambda: admin.get(f"/os-services?host={host}&binary=nova-compute")["services"][0]["updated_at"] != seen,
            what="the host beats, and hears that it counts as down",
            seconds=30,
            every=0.5,
        )
    finally:
        assert admin.call("PUT", path, {"forced_down": False}).status == 200
    assert demo.call("DELETE", f"/os-server-groups/{group}").status == 204
    for guest in guests.values():
        wait_for(lambda g=guest: not g.exists(), what="the host that returns removes the guest", seconds=40)  # type: ignore[misc]


def test_c_19_the_delete_of_a_server_in_error_frees_its_port(demo: User, admin: User) -> None:
    port = demo.port()
    server = demo.boot("broken", networks=[{"port": port}])["id"]
    admin.act(server, "os-resetState", {"state": "error"})
    assert demo.show(server)["status"] == "ERROR"
    demo.delete(server)
    assert demo.get(f"/ports/{port}", service="neutron")["port"]["device_id"] == ""
    demo.call("DELETE", f"/ports/{port}", service="neutron")


def test_c_23_a_port_is_in_use_until_its_server_is_gone(demo: User, servers: list[str]) -> None:
    port = demo.port()
    first = demo.boot("first", networks=[{"port": port}])["id"]
    body = demo.wanted("second", networks=[{"port": port}])
    refused = demo.call("POST", "/servers", body)
    assert (refused.status, refused.fault) == (409, "conflictingRequest")
    assert refused.message == f"Port {port} is still in use."
    assert demo.call("DELETE", f"/servers/{first}").status == 204
    while demo.call("GET", f"/servers/{first}").status == 200:
        again = demo.call("POST", "/servers", body)
        if again.status == 202:
            break
        assert again.status == 409
    else:
        again = demo.call("POST", "/servers", body)
    assert again.status == 202
    servers.append(again.body["server"]["id"])
    demo.await_status(servers[0], "ACTIVE")
    demo.delete(servers.pop())
    demo.call("DELETE", f"/ports/{port}", service="neutron")


# --- actions and faults


def test_n_19_a_drivers_own_error_is_not_for_users(demo: User, admin: User, servers: list[str]) -> None:
    servers.append(demo.create("secretive", metadata={"kilonova:fail": "spawn-crash"}))
    demo.await_status(servers[0], "ERROR")
    seen, full = demo.show(servers[0])["fault"], admin.show(servers[0])["fault"]
    assert "secret" not in str(seen)
    assert "details" not in seen
    assert "secret" in full["details"]


def test_n_27_a_reset_is_among_the_actions(admin: User, resting: dict[str, Any]) -> None:
    for state in ("error", "active"):
        assert admin.act(resting["id"], "os-resetState", {"state": state}).status == 202
    actions = admin.get(f"/servers/{resting['id']}/os-instance-actions")["instanceActions"]
    assert [a["action"] for a in actions][:2] == ["resetState", "resetState"]


# --- the rest of the cloud


def test_n_07_a_group_without_a_policy(demo: User) -> None:
    for mv in ("2.1", "2.15", "2.63"):
        refused = demo.call("POST", "/os-server-groups", {"server_group": {"name": "g", "policies": []}}, mv=mv)
        assert (refused.status, refused.fault) == (400, "badRequest")


def test_c_01_soft_policies(demo: User) -> None:
    body = {"server_group": {"name": "soft", "policies": ["soft-anti-affinity"]}}
    for mv in ("2.1", "2.14"):
        assert demo.call("POST", "/os-server-groups", body, mv=mv).status == 400
    for mv in ("2.15", "2.63"):
        made = demo.call("POST", "/os-server-groups", body, mv=mv)
        assert made.status == 200
        assert made.body["server_group"]["policies"] == ["soft-anti-affinity"]
        demo.call("DELETE", f"/os-server-groups/{made.body['server_group']['id']}")


def test_c_03_a_group_at_every_microversion(demo: User) -> None:
    body = {"server_group": {"name": "any", "policies": ["affinity"]}}
    group = demo.post("/os-server-groups", body, mv="2.1")["server_group"]["id"]
    old = demo.get(f"/os-server-groups/{group}", mv="2.63")["server_group"]
    new = demo.get(f"/os-server-groups/{group}", mv="2.64")["server_group"]
    assert old["policies"] == ["affinity"]
    assert "policy" not in old
    assert (new["policy"], new["rules"]) == ("affinity", {})
    assert "policies" not in new
    demo.call("DELETE", f"/os-server-groups/{group}")


@pytest.mark.parametrize("path", ["/images/detail", "/os-floating-ips", "/os-security-groups", "/os-networks"])
def test_c_05_proxies_are_gone_from_2_36_on(demo: User, path: str) -> None:
    """The proxies themselves are not made yet; what they answer below 2.36 comes with them."""
    assert demo.call("GET", path, mv="2.36").status == 404


def test_c_09_hypervisors_page(admin: User) -> None:
    seen: list[str] = []
    path = "/os-hypervisors?limit=2"
    page = admin.get(path)
    while page["hypervisors"]:
        seen += [h["hypervisor_hostname"] for h in page["hypervisors"]]
        if len(seen) == 2:
            assert page["hypervisors_links"][0]["rel"] == "next"
        page = admin.get(f"{path}&marker={page['hypervisors'][-1]['id']}")
    assert sorted(seen) == ["host-1", "host-2", "host-3"]


def test_n_11_a_service_whose_host_has_servers(admin: User, resting: dict[str, Any]) -> None:
    host = admin.show(resting["id"])["OS-EXT-SRV-ATTR:host"]
    (service,) = admin.get(f"/os-services?host={host}&binary=nova-compute")["services"]
    refused = admin.call("DELETE", f"/os-services/{service['id']}")
    assert (refused.status, refused.fault) == (409, "conflictingRequest")


def test_n_15_ids_of_aggregates(admin: User) -> None:
    for method, body in (("GET", None), ("PUT", {"aggregate": {"name": "x"}}), ("DELETE", None)):
        assert admin.call(method, "/os-aggregates/abc", body).status == 400
        assert admin.call(method, "/os-aggregates/987654", body).status == 404


def test_n_21_a_zone_with_servers_keeps_its_name(admin: User, resting: dict[str, Any]) -> None:
    bad = {"aggregate": {"name": "colon", "availability_zone": "a:b"}}
    assert admin.call("POST", "/os-aggregates", bad).status == 400
    body = {"aggregate": {"name": "busy"}}
    aggregate = admin.post("/os-aggregates", body)["aggregate"]["id"]
    path = f"/os-aggregates/{aggregate}"
    host = admin.show(resting["id"])["OS-EXT-SRV-ATTR:host"]
    admin.post(f"{path}/action", {"add_host": {"host": host}})
    try:
        change = {"aggregate": {"name": "busy", "availability_zone": "other"}}
        assert admin.call("PUT", path, change).status == 400
        metadata = {"set_metadata": {"metadata": {"availability_zone": "other"}}}
        assert admin.call("POST", f"{path}/action", metadata).status == 400
    finally:
        admin.call("POST", f"{path}/action", {"remove_host": {"host": host}})
        admin.call("DELETE", path)


def test_n_23_a_quota_below_what_is_used(admin: User, demo: User, resting: dict[str, Any]) -> None:
    path = f"/os-quota-sets/{demo.project}"
    try:
        refused = admin.call("PUT", path, {"quota_set": {"instances": 0}}, mv="2.36")
        assert (refused.status, refused.fault) == (400, "badRequest")
        assert admin.call("PUT", path, {"quota_set": {"instances": 0, "force": True}}, mv="2.36").status == 200
    finally:
        admin.set_quota(demo.project)


def test_n_31_flavors_too_large(admin: User) -> None:
    good = {"name": "bounds", "ram": 128, "vcpus": 1, "disk": 1}
    for field in ("ram", "vcpus", "disk", "swap", "OS-FLV-EXT-DATA:ephemeral"):
        refused = admin.call("POST", "/flavors", {"flavor": {**good, field: 2147483648}})
        assert (refused.status, refused.fault) == (400, "badRequest"), field
    refused = admin.call("POST", "/flavors", {"flavor": {**good, "rxtx_factor": 1e300}})
    assert (refused.status, refused.fault) == (400, "badRequest")
