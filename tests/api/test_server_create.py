"""POST /servers: what it makes, and everything that it refuses, leaving nothing behind."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from kilonova.api.moments import now
from kilonova.base.errors import NeighbourUnavailable
from kilonova.base.flow import Run, Status
from kilonova.core.network import NetworkRequest
from kilonova.store import flavors, keypairs, quotas
from tests.api.cloud import OTHER_PROJECT, PROJECT
from tests.api.server_cloud import SMALL, ServerCloud, limited

VERSIONS = ("2.1", "2.36", "2.37", "2.67", "2.104")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_and_what_is_entered(servers: ServerCloud, version: str) -> None:
    answer = servers.create(version, adminPass="pw")
    assert answer.code == 202
    shown = answer.body["server"]
    assert set(shown) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert shown["adminPass"] == "pw"
    assert shown["security_groups"] == [{"name": "default"}]
    assert answer.headers["location"] == shown["links"][0]["href"]
    request = servers.request(shown["id"])
    assert request.networks == [NetworkRequest(network_id=servers.network.id)]
    assert [(d.source_type, d.destination_type, d.boot_index) for d in request.devices] == [("image", "local", 0)]
    [run] = servers.runs(request.server.reservation_id)
    assert (run.flow, run.state["servers"], run.action) == ("schedule", [shown["id"]], "")
    assert servers.conductor.woken == [(run.id, "")]
    assert request.run == run.id


def test_a_batch_is_one_run_of_numbered_servers(servers: ServerCloud) -> None:
    answer = servers.create("2.1", min_count=2, max_count="3", return_reservation_id="true")
    assert answer.code == 202
    made = servers.requests()
    assert [request.server.name for request in made] == ["s-1", "s-2", "s-3"]
    assert [request.server.launch_index for request in made] == [0, 1, 2]
    assert {request.server.reservation_id for request in made} == {answer.body["reservation_id"]}
    assert len({request.devices[0].uuid for request in made}) == 3
    [run] = servers.runs(answer.body["reservation_id"])
    assert run.state["servers"] == [request.server.uuid for request in made]


def test_all_that_can_be_asked_for(servers: ServerCloud) -> None:
    pair = keypairs.KeyPair(
        user_id="member-user", name="k", type="ssh", public_key="k", fingerprint="", created_at=now()
    )
    servers.cells.api.write(lambda tx: keypairs.insert(tx, pair))
    uuid = servers.created(
        "2.104", key_name="k", metadata={"a": "b"}, tags=["t2", "t1"], description=None, hostname="h.example.org",
        user_data="aGk=", config_drive=True, accessIPv4="192.0.2.1", accessIPv6="2001:db8::1",
    )  # fmt: skip
    server = servers.request(uuid).server
    assert (server.key_name, server.key_data, server.hostname) == ("k", "k", "h.example.org")
    assert (server.metadata, server.tags, server.user_data) == ({"a": "b"}, ["t1", "t2"], "aGk=")
    assert (server.access_ip_v4, server.access_ip_v6, server.config_drive) == ("192.0.2.1", "2001:db8::1", True)


def test_hints_reach_the_request(servers: ServerCloud) -> None:
    other = str(uuid4())
    body = servers.new("2.1") | {"os:scheduler_hints": {"same_host": other, "query": ["=", "$x", 1], "own": "x"}}
    body["os:scheduler_hints"]["query"] = '["=", "$x", 1]'
    answer = servers.post("/servers", "2.1", body, who="member")
    hints = servers.request(answer.body["server"]["id"]).request.hints
    assert hints == {"same_host": [other], "query": ['["=", "$x", 1]'], "own": ["x"]}


BAD: dict[str, tuple[Any, ...]] = {
    "name": (1, None, "", "x" * 256, " x", "a\x00b", []),
    "flavorRef": ("", None, [], 1.5),
    "imageRef": (1, "not-a-uuid", None, {}),
    "adminPass": (1, None, []),
    "metadata": ("x", [], {"a": 1}, {"a": None}, {"k" * 256: "v"}, {"k": "v" * 256}, {"k$": "v"}, {"": "v"}),
    "OS-DCF:diskConfig": ("auto", 1, None),
    "accessIPv4": ("1.2.3", 4, "::1", None),
    "accessIPv6": ("1.2.3.4", 6, None),
    "availability_zone": ("", 1, None, "x" * 256),
    "block_device_mapping": ({}, "x", None),
    "block_device_mapping_v2": ({}, "x", None),
    "config_drive": ("maybe", 2, None, []),
    "key_name": ("", 1, None, "x" * 256),
    "min_count": (0, "0", "abc", -1, None, 1.5, []),
    "max_count": (0, "0", "abc", -1, None, []),
    "return_reservation_id": ("maybe", 1, None),
    "security_groups": ("x", {}, None),
    "user_data": (1, None, "x" * 65536),
    "networks": (1, None, "some", {}),
}
SINCE: dict[str, tuple[int, tuple[Any, ...]]] = {
    "description": (19, (1, "x" * 256, "a\x00")),
    "tags": (52, ("x", ["a,b"], ["a/b"], [""], ["x" * 61], [1], [str(n) for n in range(51)], None)),
    "trusted_image_certificates": (63, ([], "x", [""], ["a", "a"], [1], [str(n) for n in range(51)])),
    "host": (74, ("", 1, None, "a b", "x" * 256)),
    "hypervisor_hostname": (74, ("", 1, None, "a b", "x" * 256)),
    "hostname": (90, ("", 1, None, "a b", "x" * 256)),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_attribute_is_refused_by_name(servers: ServerCloud, version: str) -> None:
    minor = int(version.partition(".")[2])
    bad = dict(BAD)
    bad |= {name: values for name, (since, values) in SINCE.items() if minor >= since}
    bad |= {name: ("x", ["x"], None) for name, (since, _) in SINCE.items() if minor < since}
    bad["personality"] = ("x", {}, [1]) if minor <= 56 else ([],)
    bad["nosuch"] = (1, None)
    for name, values in bad.items():
        for value in values:
            body = servers.new(version)
            body["server"][name] = value
            answer = servers.post("/servers", version, body, who="member")
            assert answer.code == 400, (name, value, answer.body)
            assert list(answer.body) == ["badRequest"]
            assert name in answer.fault, (name, value, answer.fault)
    assert servers.requests() == []
    assert servers.conductor.woken == []


@pytest.mark.parametrize(
    "version, part, inner, name",
    [
        ("2.1", "networks", {"tag": "t"}, "tag"),
        ("2.32", "networks", {"tag": "a,b"}, "tag"),
        ("2.37", "networks", {"tag": "t"}, "tag"),
        ("2.42", "networks", {"tag": ""}, "tag"),
        ("2.37", "networks", {"uuid": "x"}, "uuid"),
        ("2.1", "networks", {"fixed_ip": "x"}, "fixed_ip"),
        ("2.1", "networks", {"port": "x"}, "port"),
        ("2.33", "block_device_mapping_v2", {"tag": "t"}, "tag"),
        ("2.66", "block_device_mapping_v2", {"volume_type": "t"}, "volume_type"),
        ("2.67", "block_device_mapping_v2", {"volume_type": 1}, "volume_type"),
        ("2.1", "block_device_mapping_v2", {"boot_index": "x"}, "boot_index"),
        ("2.1", "block_device_mapping_v2", {"volume_size": 0}, "volume_size"),
        ("2.1", "block_device_mapping_v2", {"source_type": "x"}, "source_type"),
        ("2.1", "block_device_mapping_v2", {"destination_type": "x"}, "destination_type"),
        ("2.1", "block_device_mapping_v2", {"device_name": "a b"}, "device_name"),
        ("2.1", "block_device_mapping", {"source_type": "image"}, "source_type"),
        ("2.1", "security_groups", {"name": ""}, "name"),
        ("2.1", "personality", {"contents": 1}, "contents"),
    ],
)
def test_inner_attributes_are_refused_by_name(
    servers: ServerCloud, version: str, part: str, inner: dict[str, Any], name: str
) -> None:
    body = servers.new(version)
    body["server"][part] = [inner]
    answer = servers.post("/servers", version, body, who="member")
    assert answer.code == 400
    assert name in answer.fault


def _refusals(cloud: ServerCloud) -> list[tuple[dict[str, Any], int, str]]:
    """Attributes of a create at the newest version, the code and the text of its refusal."""
    nothing = "11111111-1111-1111-1111-111111111111"
    foreign = cloud.neighbours.neutron.add_port(cloud.network.id, project_id=OTHER_PROJECT)["id"]
    used = cloud.neighbours.neutron.add_port(cloud.network.id, project_id=PROJECT)
    used["device_id"] = str(uuid4())
    free = cloud.neighbours.neutron.add_port(cloud.network.id, project_id=PROJECT)["id"]
    external = cloud.neighbours.neutron.add_network("public", external=True).id
    volume = cloud.neighbours.cinder.add_volume(project_id=PROJECT, bootable=False)
    big = cloud.neighbours.glance.add_image("big")
    cloud.neighbours.glance.records[big.id] = cloud.image.__class__(id=big.id, min_ram=1024)
    wide = cloud.neighbours.glance.add_image("wide")
    cloud.neighbours.glance.records[wide.id] = cloud.image.__class__(id=wide.id, min_disk=2)
    queued = cloud.neighbours.glance.add_image("queued")
    cloud.neighbours.glance.records[queued.id] = cloud.image.__class__(id=queued.id, status="queued")

    def bdm(**more: Any) -> dict[str, Any]:
        return {"block_device_mapping_v2": [more]}

    image_root = {"source_type": "image", "uuid": cloud.image.id, "boot_index": 0, "destination_type": "volume"}
    return [
        ({"flavorRef": "nope"}, 400, "Flavor nope could not be found."),
        ({"imageRef": nothing}, 400, "Can not find requested image"),
        ({"imageRef": None}, 400, "Missing imageRef attribute"),
        ({"imageRef": ""}, 400, "Missing imageRef attribute"),
        ({"imageRef": queued.id}, 400, f"Image {queued.id} is not active."),
        ({"imageRef": big.id}, 400, "Flavor's memory is too small for requested image."),
        ({"imageRef": wide.id}, 400, "Flavor's disk is smaller than the minimum size"),
        ({"key_name": "nokey"}, 400, "Invalid key_name provided."),
        ({"availability_zone": "nozone"}, 400, "The requested availability zone is not available"),
        ({"availability_zone": "a:b:c:d"}, 400, "availability_zone"),
        ({"availability_zone": "nova:h1"}, 403, "Policy doesn't allow os_compute_api:servers:create:forced_host"),
        ({"host": "h1"}, 403, "Policy doesn't allow compute:servers:create:requested_destination to be performed."),
        ({"min_count": 3, "max_count": 2}, 400, "min_count must be <= max_count"),
        ({"max_count": 2, "hostname": "h1"}, 400, "Unable to allocate a single hostname to multiple instances"),
        ({"networks": [{"uuid": nothing}]}, 400, f"Network {nothing} could not be found."),
        ({"networks": [{"port": nothing}]}, 400, f"Port id {nothing} could not be found."),
        ({"networks": [{"port": foreign}]}, 400, f"Port id {foreign} could not be found."),
        ({"networks": [{"port": used["id"]}]}, 409, f"Port {used['id']} is still in use."),
        ({"networks": [{"port": free}, {"port": free}]}, 400, free),
        ({"networks": [{"port": free}], "max_count": 2}, 400, "single configured port ID"),
        ({"networks": [{"uuid": cloud.network.id, "fixed_ip": "10.0.0.9"}], "max_count": 2}, 400, "fixed_ip"),
        ({"networks": [{}]}, 400, "Bad networks format"),
        ({"networks": [{"uuid": external}]}, 403, f"not allowed to create an interface on external network {external}"),
        ({"security_groups": [{"name": "nosg"}]}, 400, "Security group nosg not found"),
        ({"metadata": {str(n): "v" for n in range(129)}}, 403, "Maximum number of metadata items exceeds 128"),
        (bdm(boot_index=0, source_type="volume"), 400, "Missing device UUID."),
        (bdm(boot_index=0, uuid=volume.id), 400, "Missing source_type field"),
        (bdm(source_type="volume", uuid=nothing, boot_index=None), 400, f"failed to get volume {nothing}."),
        (bdm(source_type="snapshot", uuid=nothing), 400, f"failed to get snapshot {nothing}."),
        (bdm(source_type="blank", destination_type="volume"), 400, "Blank volumes"),
        (bdm(source_type="blank", destination_type="local", volume_size=5), 400, "Ephemeral disks requested"),
        (bdm(source_type="blank", guest_format="swap", volume_size=5), 400, "Swap drive requested is larger"),
        (bdm(source_type="volume", uuid=volume.id, boot_index=2), 400, "Boot sequence"),
        (bdm(source_type="volume", uuid=volume.id, boot_index=0), 400, "Boot sequence"),
        (bdm(source_type="volume", uuid=volume.id, boot_index=0) | {"imageRef": ""}, 400, "is not bootable"),
        (bdm(source_type="image", uuid=cloud.image.id, destination_type="local"), 400, "Mapping image to local"),
        (bdm(**image_root) | {"imageRef": ""}, 400,
         "Images with destination_type 'volume' need to have a non-zero size specified"),
        (bdm(**image_root, volume_size=1, volume_type="no") | {"imageRef": ""}, 400, "Volume type no could not"),
        (bdm(source_type="volume", uuid=volume.id) | {"max_count": 2}, 400, "multiple instances"),
        (bdm(source_type="volume", uuid=volume.id) | {"block_device_mapping": [{"volume_id": volume.id}]}, 400,
         "Using different block_device_mapping syntaxes"),
    ]  # fmt: skip


def test_refusals_name_the_reason_and_leave_nothing(servers: ServerCloud) -> None:
    for changes, code, text in _refusals(servers):
        answer = servers.create("2.104", **changes)
        assert (answer.code, text in answer.fault) == (code, True), (changes, answer.body)
    assert servers.requests() == []
    assert servers.neighbours.cinder.records == {}


def test_hosts_that_are_not_there(servers: ServerCloud) -> None:
    for changes in ({"host": "nohost"}, {"hypervisor_hostname": "nohost"}, {"availability_zone": "nova:nohost"}):
        answer = servers.create("2.104", who="admin", **changes)
        assert (answer.code, answer.fault) == (400, "Compute host nohost could not be found.")


def test_hosts_that_are_there(servers: ServerCloud) -> None:
    servers.add_host("h1")
    forced = servers.request(servers.created("2.1", who="admin", availability_zone="nova:h1")).request
    assert (forced.force_host, forced.availability_zone) == ("h1", "nova")
    asked = servers.request(servers.created("2.74", who="admin", host="h1")).request
    assert (asked.requested_host, asked.force_host) == ("h1", None)
    zone = servers.request(servers.created("2.1", availability_zone="nova"))
    assert (zone.request.availability_zone, zone.server.requested_zone) == ("nova", "nova")


def test_networks_by_default(servers: ServerCloud) -> None:
    assert servers.request(servers.created("2.37", networks="none")).networks == []
    servers.neighbours.neutron.add_network("second", project_id=PROJECT)
    for version, networks in (("2.36", None), ("2.37", "auto")):
        answer = servers.create(version, networks=networks)
        assert (answer.code, list(answer.body)) == (409, ["conflictingRequest"])
        assert answer.fault == "Multiple possible networks found, use a Network ID to be more specific."


def test_without_any_network(servers: ServerCloud) -> None:
    servers.neighbours.neutron.nets.clear()
    assert servers.request(servers.created("2.36")).networks == []
    assert servers.create("2.37", networks="auto").code == 400
    servers.neighbours.neutron.add_network("public", external=True)
    made = servers.request(servers.created("2.37", networks="auto")).networks
    assert made is not None
    assert servers.neighbours.neutron.nets[str(made[0].network_id)].name == "auto"


def _from_volume(volume: str, **more: Any) -> dict[str, Any]:
    device = {"source_type": "volume", "uuid": volume, "boot_index": 0, **more}
    return {"imageRef": "", "block_device_mapping_v2": [device]}


def test_an_existing_volume_is_reserved(servers: ServerCloud) -> None:
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True, size=3)
    uuid = servers.created("2.1", **_from_volume(volume.id))
    request = servers.request(uuid)
    [record] = servers.neighbours.cinder.attachments(server=uuid)
    assert (request.devices[0].attachment_id, request.devices[0].size) == (record["id"], 3)
    assert request.server.volume_backed
    assert servers.get(f"/servers/{uuid}", "2.1", who="member").body["server"]["image"] == ""
    assert servers.create("2.1", **_from_volume(volume.id)).code == 400


def test_the_old_syntax_boots_from_its_first_volume(servers: ServerCloud) -> None:
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    mapping = [{"device_name": "vda", "volume_id": volume.id, "delete_on_termination": "1"}]
    [device] = servers.request(servers.created("2.1", imageRef="", block_device_mapping=mapping)).devices
    assert (device.boot_index, device.volume_id, device.delete_on_termination) == (0, volume.id, True)


def test_a_failure_after_reserving_gives_the_volumes_back(
    servers: ServerCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    second = servers.neighbours.cinder.add_volume(project_id=PROJECT)
    devices = [
        {"source_type": "volume", "uuid": first.id, "boot_index": 0},
        {"source_type": "volume", "uuid": second.id},
    ]
    real = servers.neighbours.cinder.reserve

    def reserve(volume_id: str, server: str) -> str:
        if volume_id == second.id:
            raise NeighbourUnavailable(neighbour="volume", reason="it is away")
        return real(volume_id, server)

    monkeypatch.setattr(servers.neighbours.cinder, "reserve", reserve)
    answer = servers.create("2.1", imageRef="", block_device_mapping_v2=devices)
    assert (answer.code, list(answer.body)) == (503, ["serviceUnavailable"])
    assert "volume" in answer.fault
    assert servers.neighbours.cinder.records == {}
    assert servers.neighbours.cinder.volumes[first.id].status == "available"
    assert servers.requests() == []


@pytest.mark.parametrize("neighbour", ["glance", "neutron"])
def test_a_neighbour_that_is_down_is_named(servers: ServerCloud, neighbour: str) -> None:
    getattr(servers.neighbours, neighbour).orders.down = True
    answer = servers.create("2.1")
    assert (answer.code, neighbour in answer.fault) == (503, True)
    assert servers.requests() == []


def test_quotas(make_server_cloud: Callable[..., ServerCloud]) -> None:
    servers = make_server_cloud(limited(instances=2, cores=20, ram=1024))
    servers.created()
    answer = servers.create(min_count=2)
    assert answer.fault == (
        "Quota exceeded for instances, ram: Requested 2, 1024, but already used 1, 512 of 2, 1024 instances, ram"
    )
    assert (answer.code, list(answer.body)) == (403, ["forbidden"])
    assert len(servers.requests()) == 1
    assert servers.create(min_count=1, max_count=5).code == 202
    assert len(servers.requests()) == 2
    answer = servers.create()
    assert answer.fault.startswith("Quota exceeded for instances, ram: Requested 1, 512, but already used 2, 1024")


def test_a_create_counted_twice_takes_itself_back(
    make_server_cloud: Callable[..., ServerCloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = make_server_cloud(limited(instances=1))
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    real = servers.neighbours.cinder.reserve
    rivals: list[str] = []

    def reserve(volume_id: str, server: str) -> str:
        if not rivals:
            rivals.append("")
            rivals.append(servers.created())  # the other create is counted and done between our count and our entry
        return real(volume_id, server)

    monkeypatch.setattr(servers.neighbours.cinder, "reserve", reserve)
    answer = servers.create("2.1", **_from_volume(volume.id))
    assert answer.code == 403
    assert [request.server.uuid for request in servers.requests()] == [rivals[1]]
    assert servers.neighbours.cinder.records == {}


def test_flavors_that_are_not_for_the_project(servers: ServerCloud) -> None:
    hidden = SMALL.__class__(flavorid="9", name="hidden", vcpus=1, memory_mb=1, root_gb=1, is_public=False)
    servers.cells.api.write(lambda tx: flavors.insert(tx, hidden))
    assert servers.create(flavorRef="9").fault == "Flavor 9 could not be found."
    servers.cells.api.write(lambda tx: flavors.add_access(tx, "9", PROJECT))
    assert servers.create(flavorRef="9").code == 202
    assert servers.create(flavorRef="http://host/v2.1/flavors/9").code == 202


def test_who_may(servers: ServerCloud) -> None:
    assert servers.create(who="reader").fault == ("Policy doesn't allow os_compute_api:servers:create to be performed.")


def test_a_flavor_with_devices_that_nobody_defined(servers: ServerCloud) -> None:
    odd = SMALL.__class__(
        flavorid="9", name="pci", vcpus=1, memory_mb=1, root_gb=1, extra_specs={"pci_passthrough:alias": "nosuch:1"}
    )
    servers.cells.api.write(lambda tx: flavors.insert(tx, odd))
    answer = servers.create(flavorRef="9")
    assert (answer.code, answer.fault) == (400, "PCI alias nosuch is not defined")


def test_a_user_may_have_less_than_the_project(servers: ServerCloud) -> None:
    servers.cells.api.write(lambda tx: quotas.put_user(tx, PROJECT, "member-user", {"instances": 1}))
    servers.created()
    assert servers.create().fault == "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"
    assert servers.create(who="admin").code == 202


def test_a_group_that_is_full(make_server_cloud: Callable[..., ServerCloud]) -> None:
    servers = make_server_cloud(limited(server_group_members=1))
    made = servers.post("/os-server-groups", "2.64", {"server_group": {"name": "g", "policy": "affinity"}})
    hints = {"os:scheduler_hints": {"group": made.body["server_group"]["id"]}}
    assert servers.post("/servers", "2.1", servers.new("2.1") | hints).code == 202
    answer = servers.post("/servers", "2.1", servers.new("2.1") | hints)
    assert (answer.code, answer.fault) == (403, "Quota exceeded, too many servers in group")
    assert len(servers.requests()) == 1


def test_a_guard_stands_by_while_volumes_are_reserved(servers: ServerCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process that dies before it has made the server leaves behind is a run that gives the volume back."""
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    real = servers.neighbours.cinder.reserve
    seen: list[Run] = []

    def reserve(volume_id: str, server: str) -> str:
        seen.extend(servers.runs(server))
        return real(volume_id, server)

    monkeypatch.setattr(servers.neighbours.cinder, "reserve", reserve)
    uuid = servers.created("2.1", **_from_volume(volume.id, delete_on_termination=True))
    [guard] = seen
    assert (guard.flow, guard.status, guard.state["server"]) == ("delete_unscheduled", Status.RUNNING, uuid)
    assert guard.due_at is not None
    assert guard.due_at > now()
    assert [d["delete_on_termination"] for d in guard.state["devices"]] == [False], "the volume itself is to stay"
    assert [run.status for run in servers.runs(uuid)] == [Status.CANCELLED], "the server is made: nothing to give back"


def test_a_server_is_not_made_once_its_guard_may_be_at_work(
    servers: ServerCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = servers.neighbours.cinder.add_volume(project_id=PROJECT, bootable=True)
    monkeypatch.setattr("kilonova.api.servers.volumes.HELD", datetime.timedelta(0))
    answer = servers.create("2.1", **_from_volume(volume.id))
    assert (answer.code, "volume service" in answer.fault) == (503, True)
    assert servers.requests() == []
    assert servers.neighbours.cinder.records == {}


def test_a_server_that_waits_for_a_host_has_a_trace(servers: ServerCloud) -> None:
    uuid = servers.created()
    told = servers.get(f"/servers/{uuid}/kilonova-trace", who="admin").body["trace"]
    assert [(run["flow"], run["status"]) for run in told["runs"]] == [("schedule", "running")]
