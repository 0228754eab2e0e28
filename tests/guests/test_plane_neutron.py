"""A real guest on the plane's networks as the real Neutron describes them: DHCP, metadata, ssh by both addresses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cheroot import wsgi
from keystoneauth1 import session as sessions
from keystoneauth1.identity import v3

from kilonova.core.metadata import InstanceMetadata, Key
from kilonova.embedded.install import is_installed
from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.plane.facts import RestFacts
from kilonova.embedded.plane.plane import Plane, available
from kilonova.embedded.ports import Ports
from kilonova.embedded.prefix import find_prefix
from kilonova.metadata.application import make_application

POSSIBLE, LACKING = available()
pytestmark = [
    pytest.mark.skipif(not POSSIBLE, reason=LACKING),
    pytest.mark.skipif(not is_installed(find_prefix()), reason="the neighbours are not installed here"),
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is missing"),
]
ROOT = Path(__file__).resolve().parent.parent.parent
HOST_NS = f"knq{os.getpid()}"
SERVER = "0c0ffee0-1111-4222-8333-444444444444"


def shell(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def eventually(check: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
    return found


class OneServer:
    """The metadata of the one guest."""

    def __init__(self, project_id: str, key: str) -> None:
        self.record = InstanceMetadata(
            uuid=SERVER, name="first", hostname="first", project_id=project_id, key=Key("mykey", "ssh", key)
        )

    def by_instance_id(self, uuid: str) -> InstanceMetadata | None:
        return self.record if uuid == SERVER else None

    def by_address(self, address: str) -> InstanceMetadata | None:
        return None

    def by_provider(self, provider: str, address: str) -> InstanceMetadata | None:
        return None

    def save_password(self, uuid: str, text: str) -> bool:
        return False


@pytest.fixture(scope="module")
def image() -> Path:
    done = subprocess.run([ROOT / "guest" / "build.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the guest image cannot be built here: {done.stderr.strip()}")
    return ROOT / "build" / "guest"


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, stack: ExitStack) -> Neighbours:
    neighbours = Neighbours(tmp_path_factory.mktemp("cloud"), ports=Ports.moved(4600))
    stack.callback(neighbours.stop)
    neighbours.start()
    neighbours.bootstrap()
    return neighbours


class Network:
    """Neutron's API as an administrator of the demo project."""

    def __init__(self, cloud: Neighbours) -> None:
        site = cloud.site
        user = {"username": "admin", "password": site.secrets["admin"], "user_domain_id": "default"}
        login = v3.Password(site.auth_url, project_name="demo", project_domain_id="default", **user)
        self.session = sessions.Session(login)
        self.project_id = str(self.session.get_project_id())

    def _call(self, method: str, path: str, **options: Any) -> Any:
        url = f"/v2.0/{path}"
        return self.session.request(url, method, endpoint_filter={"service_type": "network"}, **options).json()

    def named(self, kind: str, name: str) -> str:
        return str(self._call("GET", f"{kind}?name={name}")[kind][0]["id"])

    def create(self, kind: str, **body: Any) -> dict[str, Any]:
        made: dict[str, Any] = self._call("POST", f"{kind}s", json={kind: body})[kind]
        return made

    def delete(self, kind: str, key: str) -> None:
        self.session.delete(f"/v2.0/{kind}s/{key}", endpoint_filter={"service_type": "network"})


class Site:
    """The cloud, the plane that serves it and its metadata."""

    def __init__(self, cloud: Neighbours, folder: Path, stack: ExitStack) -> None:
        self.network = Network(cloud)
        shell("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
        self.key = folder / "key"
        secret = cloud.credentials.metadata_proxy_shared_secret
        told = OneServer(self.network.project_id, self.key.with_suffix(".pub").read_text().strip())
        service = wsgi.Server(str(folder / "md.sock"), make_application(told, secret))
        service.prepare()
        serving = threading.Thread(target=service.serve)
        serving.start()
        stack.callback(serving.join)
        stack.callback(service.stop)
        shell("ip", "netns", "add", HOST_NS)
        stack.callback(shell, "ip", "netns", "del", HOST_NS)
        self.plane = Plane(
            cloud.state,
            RestFacts(self.network.session),
            metadata=str(folder / "md.sock"),
            secret=secret,
            host="here",
            interval=30.0,
            host_namespace=HOST_NS,
        )
        stack.callback(self.plane.teardown)
        self.plane.start()
        eventually(lambda: self.plane.status().last_good, 20)

    def bind(self, network_id: str, server: str) -> dict[str, Any]:
        return self.network.create(
            "port",
            network_id=network_id,
            device_id=server,
            device_owner="compute:nova",
            **{"binding:host_id": "here"},
        )


@pytest.fixture(scope="module")
def site(cloud: Neighbours, tmp_path_factory: pytest.TempPathFactory, stack: ExitStack) -> Site:
    return Site(cloud, tmp_path_factory.mktemp("site"), stack)


def test_a_users_network_comes_and_goes(site: Site) -> None:
    made = site.network.create("network", name="mine")
    site.network.create("subnet", network_id=made["id"], cidr="10.77.0.0/24", ip_version=4)
    port = site.bind(made["id"], "0c0ffee0-2222-4222-8333-444444444444")
    # The mechanism driver's word, not the interval, brings the network up.
    eventually(lambda: site.plane.status().guests == 1, 10)
    assert site.plane.status().problems == ()
    assert site.plane.status().networks == 1
    site.network.delete("port", port["id"])
    eventually(lambda: site.plane.status().networks == 0, 10)
    # The DHCP server's port does not keep a user from deleting the network.
    site.network.delete("network", made["id"])


def test_a_real_guest(site: Site, image: Path, stack: ExitStack, tmp_path: Path) -> None:
    network, plane = site.network, site.plane
    port = site.bind(network.named("networks", "private"), SERVER)
    assert port["binding:vif_type"] == "bridge"
    eventually(lambda: plane.status().guests == 1, 10)
    assert plane.status().problems == ()
    tap, bridge = f"tap{port['id'][:11]}", port["binding:vif_details"]["bridge_name"]
    shell("ip", "-n", HOST_NS, "tuntap", "add", tap, "mode", "tap")
    shell("ip", "-n", HOST_NS, "link", "set", tap, "mtu", "1450", "master", bridge, "up")
    log = tmp_path / "console.log"
    guest = subprocess.Popen(
        [
            *("ip", "netns", "exec", HOST_NS, "qemu-system-x86_64", "-nodefaults", "-display", "none", "-m", "256"),
            *("-kernel", str(image / "vmlinuz"), "-initrd", str(image / "initrd.img")),
            *("-append", "console=ttyS0 quiet", "-serial", f"file:{log}"),
            *("-netdev", f"tap,id=n,ifname={tap},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=n,mac={port['mac_address']}"),
        ]
    )
    stack.callback(guest.wait)
    stack.callback(guest.kill)
    fixed = port["fixed_ips"][0]["ip_address"]
    eventually(lambda: log.exists() and "guest: READY" in log.read_text(errors="replace"), 120)
    told = log.read_text(errors="replace")
    ready = next(line for line in told.splitlines() if "guest: READY" in line)
    assert f"hostname=first.novalocal address={fixed} source=http-openstack" in ready
    assert f"guest: metadata uuid={SERVER} name=first keys=mykey" in told

    floating = network.create("floatingip", floating_network_id=network.named("networks", "public"), port_id=port["id"])
    outside = floating["floating_ip_address"]
    eventually(lambda: outside in json.dumps([str(part) for part in plane_addresses(plane)]), 10)
    for address in (fixed, outside):
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=20"]
        command = ["ssh", "-q", "-i", str(site.key), *options, f"root@{address}", "hostname"]
        assert shell("ip", "netns", "exec", HOST_NS, *command).strip() == "first.novalocal"

    guest.kill()
    guest.wait()
    shell("ip", "-n", HOST_NS, "link", "del", tap)
    network.delete("floatingip", floating["id"])
    network.delete("port", port["id"])
    eventually(lambda: plane.status().guests == 0 and plane.status().networks == 0, 10)
    assert "kn" not in shell("ip", "-n", HOST_NS, "-br", "link").replace(HOST_NS, "")


def plane_addresses(plane: Plane) -> list[str]:
    listed = shell("ip", "netns", "list").split()
    routers = [name for name in listed if name.startswith(plane._place.router_namespace("")[:-1])]
    return [shell("ip", "-n", name, "-br", "addr") for name in routers]
