"""The real neighbours, started on a temporary state directory and used as a compute service uses them."""

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kilonova.embedded.bootstrap import POOL_CIDR
from kilonova.embedded.failures import StateInUse
from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.ports import Ports
from kilonova.embedded.supervisor import PartEvent
from kilonova.embedded.wire import Refused, Wire, log_in

OFFSET = 4200


class Compute(BaseHTTPRequestHandler):
    """Stands in for the compute API: keeps the external events it gets, knows no attachment."""

    events: ClassVar[list[dict[str, Any]]] = []

    def answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if "os-volume_attachments" in self.path:
            self.answer(404, {"itemNotFound": {"code": 404, "message": "no such attachment"}})
        else:
            self.answer(
                200,
                {"version": {"id": "v2.1", "status": "CURRENT", "version": "2.104", "min_version": "2.1", "links": []}},
            )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.events.extend(body["events"])
        self.answer(200, {"events": [event | {"code": 200, "status": "completed"} for event in body["events"]]})

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def compute() -> Iterator[type[Compute]]:
    server = ThreadingHTTPServer(("127.0.0.1", Ports.moved(OFFSET).nova), Compute)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Compute
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def happened() -> list[PartEvent]:
    return []


@pytest.fixture(scope="module")
def cloud(
    tmp_path_factory: pytest.TempPathFactory, compute: type[Compute], happened: list[PartEvent]
) -> Iterator[Neighbours]:
    state = tmp_path_factory.mktemp("cloud")
    neighbours = Neighbours(state, ports=Ports.moved(OFFSET), on_event=happened.append)
    neighbours.start()
    try:
        neighbours.bootstrap()
        neighbours.wait_ready()
        yield neighbours
    finally:
        neighbours.stop()
    assert all(part.pid is None for part in neighbours.status())


def connect(
    cloud: Neighbours, name: str, path: str, *, user: str = "admin", project: str = "demo", **headers: str
) -> Wire:
    site = cloud.site
    token = log_in(site.auth_url, user, site.secrets[user], project)
    return Wire(name, site.ports.url(name, path), token, {key.replace("_", "-"): text for key, text in headers.items()})


def wait_for(read: Callable[[], Any], wanted: Callable[[Any], bool], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not wanted(value := read()):
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(0.05)
    return value


def volume_in(wire: Wire, volume: str, *statuses: str) -> dict[str, Any]:
    found = wait_for(lambda: wire.get(f"/volumes/{volume}")["volume"], lambda it: it["status"] in (*statuses, "error"))
    assert found["status"] in statuses, found
    return dict(found)


def test_all_parts_are_healthy_and_small(cloud: Neighbours) -> None:
    parts = cloud.status()
    assert [part.name for part in parts] == ["keystone", "glance", "placement", "neutron", "cinder"]
    assert all(part.healthy and part.pid and part.restarts == 0 and part.log.exists() for part in parts), parts
    assert sum(part.rss_mib for part in parts) < 700, parts


def test_a_state_directory_in_use_is_refused_and_left_alone(cloud: Neighbours) -> None:
    with pytest.raises(StateInUse, match=f"in use by process {os.getpid()}"):
        Neighbours(cloud.state, ports=Ports.moved(OFFSET + 50)).start()
    assert all(part.healthy for part in cloud.status())


def test_bootstrap_again_changes_nothing(cloud: Neighbours) -> None:
    def everything() -> object:
        with (
            connect(cloud, "neutron", "/v2.0") as neutron,
            connect(cloud, "keystone", "/v3", project="admin") as keystone,
        ):
            return (
                [
                    sorted(item["id"] for item in neutron.get(f"/{kind}")[kind.replace("-", "_")])
                    for kind in ("networks", "subnets", "routers", "ports", "security-group-rules", "subnetpools")
                ],
                [
                    sorted(item["id"] for item in keystone.get(f"/{kind}")[kind])
                    for kind in ("users", "projects", "roles", "services", "endpoints")
                ],
            )

    before = everything()
    cloud.bootstrap()
    assert everything() == before


def test_a_plain_user_sees_the_demo_project_alone(cloud: Neighbours, tmp_path: Path) -> None:
    with connect(cloud, "neutron", "/v2.0", user="demo") as demo:
        assert {net["name"] for net in demo.get("/networks")["networks"]} == {"private", "public"}
        (group,) = demo.get("/security-groups")["security_groups"]
        opened = {
            (rule["protocol"], rule["port_range_min"])
            for rule in group["security_group_rules"]
            if rule["direction"] == "ingress" and not rule["remote_group_id"]
        }
        assert opened == {("tcp", 22), ("icmp", None)}
        with pytest.raises(Refused) as refusal:
            demo.post("/networks", {"network": {"name": "mine", "provider:network_type": "flat"}})
        assert refusal.value.code == 403
    cloud.write_clouds_yaml(tmp_path / "clouds.yaml")
    assert (tmp_path / "clouds.yaml").stat().st_mode & 0o077 == 0


def test_ports_are_bound_at_once_and_the_compute_api_hears_of_it(cloud: Neighbours, compute: type[Compute]) -> None:
    with connect(cloud, "neutron", "/v2.0") as neutron:
        extensions = {item["alias"] for item in neutron.get("/extensions")["extensions"]}
        assert {
            "binding",
            "binding-extended",
            "port-security",
            "ip-substring-filtering",
            "auto-allocated-topology",
            "port-resource-request",
            "external-net",
            "qos",
        } <= extensions
        network = neutron.get("/networks?name=private")["networks"][0]
        assert network["mtu"] == 1500
        server = str(uuid.uuid4())
        port = neutron.post(
            "/ports",
            {
                "port": {
                    "network_id": network["id"],
                    "device_id": server,
                    "device_owner": "compute:nova",
                    "binding:host_id": "any-host",
                }
            },
        )["port"]
        assert (port["status"], port["binding:vif_type"]) == ("ACTIVE", "bridge")
        details = port["binding:vif_details"]
        assert details["bridge_name"] == "brq" + network["id"][:11]
        assert details["port_filter"] is True
        with connect(cloud, "neutron", "/v2.0", user="nova", project="service") as service:
            other = service.post(f"/ports/{port['id']}/bindings", {"binding": {"host": "second-host"}})["binding"]
        assert (other["status"], other["vif_type"]) == ("INACTIVE", "bridge")
        neutron.delete(f"/ports/{port['id']}")
    named = ("network-vif-plugged", server), ("network-vif-deleted", server)
    wait_for(
        lambda: [(event["name"], event["server_uuid"]) for event in compute.events],
        lambda seen: set(named) <= set(seen),
    )


def test_networks_are_allocated_on_demand(cloud: Neighbours) -> None:
    with connect(cloud, "neutron", "/v2.0", user="demo") as demo:
        project = demo.get("/quotas/tenant")["tenant"]["tenant_id"]
        made = demo.get(f"/auto-allocated-topology/{project}?fields=dry-run")["auto_allocated_topology"]
        assert made["id"] == "dry-run=pass"
        made = demo.get(f"/auto-allocated-topology/{project}")["auto_allocated_topology"]
        subnets = demo.get(f"/subnets?network_id={made['id']}")["subnets"]
        assert any(subnet["cidr"].startswith(POOL_CIDR[:6]) for subnet in subnets)
        demo.delete(f"/auto-allocated-topology/{project}")


def test_concurrent_writes_are_all_taken(cloud: Neighbours, tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(2**20))
    with connect(cloud, "neutron", "/v2.0") as neutron:
        network = neutron.get("/networks?name=private")["networks"][0]["id"]

    def one(number: int) -> None:
        if number < 6:
            image = cloud.ensure_image(f"image-{number}", tmp_path / "disk", "raw")
            with connect(cloud, "glance", "/v2") as glance:
                glance.delete(f"/images/{image}")
        with (
            connect(cloud, "neutron", "/v2.0") as neutron,
            connect(cloud, "placement", "", OpenStack_API_Version="placement 1.38") as placement,
        ):
            port = neutron.post("/ports", {"port": {"network_id": network}})["port"]["id"]
            provider = str(uuid.uuid4())
            placement.post("/resource_providers", {"name": provider, "uuid": provider})
            placement.put(
                f"/resource_providers/{provider}/inventories",
                {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}},
            )
            consumer = str(uuid.uuid4())
            placement.put(
                f"/allocations/{consumer}",
                {
                    "allocations": {provider: {"resources": {"VCPU": 1}}},
                    "project_id": "p",
                    "user_id": "u",
                    "consumer_generation": None,
                    "consumer_type": "INSTANCE",
                },
            )
            placement.delete(f"/allocations/{consumer}")
            placement.delete(f"/resource_providers/{provider}")
            neutron.delete(f"/ports/{port}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(16)))


def test_a_volume_from_an_image_is_attached_grown_copied_and_let_go(cloud: Neighbours, tmp_path: Path) -> None:
    content = b"\x55" * 512 + bytes(3 * 2**20)
    (tmp_path / "disk").write_bytes(content)
    image = cloud.ensure_image("tiny", tmp_path / "disk", "raw", {"hw_rng_model": "virtio"})
    assert cloud.ensure_image("tiny", tmp_path / "disk", "raw") == image
    with connect(cloud, "cinder", "/v3", OpenStack_API_Version="volume 3.59") as cinder:
        volume = cinder.post("/volumes", {"volume": {"size": 1, "imageRef": image}})["volume"]["id"]
        found = volume_in(cinder, volume, "available")
        assert (found["bootable"], found["volume_type"]) == ("true", "local")
        path = cloud.state / "data" / "cinder" / "volumes" / f"volume-{volume}"
        assert path.stat().st_size == 2**30
        assert path.read_bytes()[: len(content)] == content
        assert path.stat().st_mode & 0o077 == 0

        attachment = cinder.post(
            "/attachments", {"attachment": {"volume_uuid": volume, "instance_uuid": str(uuid.uuid4())}}
        )["attachment"]["id"]
        bound = cinder.put(
            f"/attachments/{attachment}",
            {"attachment": {"connector": {"ip": "127.0.0.1", "host": "h", "initiator": "i", "mountpoint": "/dev/vdb"}}},
        )["attachment"]
        assert bound["connection_info"]["driver_volume_type"] == "local"
        assert bound["connection_info"]["device_path"] == str(path)
        cinder.post(f"/attachments/{attachment}/action", {"os-complete": None})
        volume_in(cinder, volume, "in-use")
        cinder.delete(f"/attachments/{attachment}")
        volume_in(cinder, volume, "available")

        snapshot = cinder.post("/snapshots", {"snapshot": {"volume_id": volume}})["snapshot"]["id"]
        wait_for(lambda: cinder.get(f"/snapshots/{snapshot}")["snapshot"]["status"], lambda it: it == "available")
        copy = cinder.post("/volumes", {"volume": {"size": 2, "snapshot_id": snapshot}})["volume"]["id"]
        clone = cinder.post("/volumes", {"volume": {"size": 1, "source_volid": volume}})["volume"]["id"]
        for made, size in ((copy, 2), (clone, 1)):
            volume_in(cinder, made, "available")
            file = path.with_name(f"volume-{made}")
            assert (file.stat().st_size, file.open("rb").read(512)) == (size * 2**30, content[:512])
        cinder.post(f"/volumes/{clone}/action", {"os-extend": {"new_size": 3}})
        volume_in(cinder, clone, "available")
        assert path.with_name(f"volume-{clone}").stat().st_size == 3 * 2**30
        uploaded = cinder.post(
            f"/volumes/{volume}/action",
            {"os-volume_upload_image": {"image_name": "back", "disk_format": "qcow2", "container_format": "bare"}},
        )["os-volume_upload_image"]
        volume_in(cinder, volume, "available")
        with connect(cloud, "glance", "/v2") as glance:
            wait_for(lambda: glance.get(f"/images/{uploaded['image_id']}")["status"], lambda it: it == "active")
        again = cinder.post("/volumes", {"volume": {"size": 1, "imageRef": uploaded["image_id"]}})["volume"]["id"]
        volume_in(cinder, again, "available")
        assert path.with_name(f"volume-{again}").open("rb").read(512) == content[:512]

        assert " ERROR " not in (cloud.state / "logs" / "cinder.log").read_text()

        cinder.delete(f"/snapshots/{snapshot}")
        wait_for(lambda: cinder.get("/snapshots")["snapshots"], lambda left: not left)
        for made in (volume, copy, clone, again):
            cinder.delete(f"/volumes/{made}")
        wait_for(lambda: cinder.get("/volumes")["volumes"], lambda left: not left)
        assert not list(path.parent.iterdir())


def test_a_part_that_dies_comes_back(cloud: Neighbours, happened: list[PartEvent]) -> None:
    victim = next(part for part in cloud.status() if part.name == "placement")
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    wait_for(
        lambda: [event.kind for event in happened if event.name == "placement"],
        lambda kinds: kinds[-2:] == ["died", "restarted"],
    )
    cloud.wait_ready(parts=("placement",))
    assert next(part for part in cloud.status() if part.name == "placement").restarts == 1
