"""The local network plane with real bridges, DHCP, metadata, filters and translation, in namespaces of its own.

One namespace stands for the host, one for the world outside, and one for each guest: a guest's tap is a veth of the
name that libvirt would give it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from cheroot import wsgi

from kilonova.core.metadata import InstanceMetadata, Key
from kilonova.embedded.plane.commands import Commands
from kilonova.embedded.plane.desire import bridge_name
from kilonova.embedded.plane.facts import Port
from kilonova.embedded.plane.observe import observe, server_pid
from kilonova.embedded.plane.plane import Plane, available
from kilonova.metadata.application import make_application
from tests.unit.embedded.plane.cloud import (
    EXTERNAL,
    FLOATING,
    HOST,
    OUTWARD,
    PING,
    PRIVATE,
    PROJECT,
    SSH,
    FakeNeutron,
    cloud,
    guest,
)

POSSIBLE, LACKING = available()
MISSING = [program for program in ("busybox", "curl") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.skipif(not POSSIBLE, reason=LACKING),
    pytest.mark.skipif(bool(MISSING), reason=f"missing: {MISSING}"),
]
SECRET = "shared"
NAME = f"knt{os.getpid()}"
HOST_NS, OUTSIDE_NS = f"{NAME}-host", f"{NAME}-out"

# As a guest's DHCP client does it: option 121 before the router option.
DHCP_SCRIPT = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr flush dev "$interface"
ip addr add "$ip/$mask" dev "$interface"
ip link set "$interface" mtu "$mtu"
set -- $staticroutes
while [ $# -ge 2 ]; do ip route replace "$1" via "$2" dev "$interface"; shift 2; done
echo "$dns"
"""
# Answers every connection with the address that it came from.
SERVER = """import socket, sys
listener = socket.create_server(("", int(sys.argv[1])))
print(flush=True)
while True:
    connection, peer = listener.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""
CLIENT = (
    "import socket,sys;s=socket.create_connection((sys.argv[1],int(sys.argv[2])),2);print(s.recv(99).decode(),end='')"
)


def shell(*words: str, namespace: str = "", check: bool = True) -> str:
    prefix = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run([*prefix, *words], capture_output=True, text=True, check=check, timeout=30).stdout


def reach(namespace: str, address: str, port: int) -> str:
    """The address under which a connection arrives; "" when it does not."""
    return shell(sys.executable, "-c", CLIENT, address, str(port), namespace=namespace, check=False)


def eventually(check: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


class Servers:
    """The metadata of the two guests."""

    def by_instance_id(self, uuid: str) -> InstanceMetadata | None:
        key = Key("mykey", "ssh", "ssh-ed25519 AAAA me")
        return InstanceMetadata(uuid=uuid, name="vm", hostname="vm", project_id=PROJECT, key=key)

    def by_address(self, address: str) -> InstanceMetadata | None:
        return None

    def by_provider(self, provider: str, address: str) -> InstanceMetadata | None:
        return None

    def save_password(self, uuid: str, text: str) -> bool:
        return True


class World:
    """The namespaces of one test, the plane and what it is told."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.neutron = FakeNeutron(cloud(guest(0), guest(1)))
        self.script = folder / "dhcp.sh"
        self.script.write_text(DHCP_SCRIPT)
        self.script.chmod(0o755)
        for name in (HOST_NS, OUTSIDE_NS):
            self.namespace(name)
        shell("ip", "-n", HOST_NS, "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", OUTSIDE_NS)
        for name, device, address in ((HOST_NS, "up0", "198.51.100.1/24"), (OUTSIDE_NS, "eth0", "198.51.100.2/24")):
            shell("ip", "-n", name, "addr", "add", address, "dev", device)
            shell("ip", "-n", name, "link", "set", device, "up")
        self.plane = self.new_plane()

    def new_plane(self) -> Plane:
        return Plane(
            self.folder,
            self.neutron,
            metadata=str(self.folder / "md.sock"),
            secret=SECRET,
            host=HOST,
            host_namespace=HOST_NS,
        )

    def namespace(self, name: str) -> None:
        shell("ip", "netns", "add", name)
        self.stack.callback(shell, "ip", "netns", "del", name, check=False)
        shell("ip", "-n", name, "link", "set", "lo", "up")

    def plug(self, port: Port) -> str:
        """Give a guest its NIC, as libvirt does; the guest's namespace."""
        name = f"{NAME}-{port.id[:4]}"
        self.namespace(name)
        peer = ["peer", "name", "eth0", "address", port.mac_address, "netns", name]
        shell("ip", "-n", HOST_NS, "link", "add", port.tap, "type", "veth", *peer)
        shell("ip", "-n", HOST_NS, "link", "set", port.tap, "master", bridge_name(port.network_id), "up")
        shell("ip", "-n", name, "link", "set", "eth0", "up")
        return name

    def lease(self, name: str) -> str:
        flags = ["-i", "eth0", "-n", "-q", "-f", "-t", "8", "-T", "1", "-O", "mtu", "-O", "staticroutes"]
        return shell("busybox", "udhcpc", *flags, "-s", str(self.script), namespace=name)

    def serve(self, name: str, port: int) -> None:
        command = ["ip", "netns", "exec", name, sys.executable, "-c", SERVER, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout
        self.stack.callback(process.stdout.close)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        process.stdout.readline()

    def state(self) -> object:
        return observe(Commands(HOST_NS), self.plane._place)


@contextmanager
def metadata_service(path: Path) -> Iterator[None]:
    server = wsgi.Server(str(path), make_application(Servers(), SECRET))
    server.prepare()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        made = World(tmp_path, stack)
        stack.callback(made.plane.teardown)
        stack.enter_context(metadata_service(tmp_path / "md.sock"))
        yield made


def test_guests_get_addresses_metadata_and_a_way_out(world: World) -> None:
    assert world.plane.reconcile_once() == ()
    first, second = world.plug(guest(0)), world.plug(guest(1))
    for number, name in enumerate((first, second)):
        world.lease(name)
        eth0 = json.loads(shell("ip", "-n", name, "-j", "addr", "show", "eth0"))[0]
        assert eth0["addr_info"][0]["local"] == f"10.211.0.1{number}"
        assert eth0["mtu"] == 1450
        routes = {route["dst"]: route.get("gateway") for route in json.loads(shell("ip", "-n", name, "-j", "route"))}
        assert routes["default"] == "10.211.0.1"
        assert routes["169.254.169.254"] == "10.211.0.2"
        url = "http://169.254.169.254/openstack/latest/meta_data.json"
        told = json.loads(shell("busybox", "wget", "-q", "-O", "-", url, namespace=name))
        assert told["uuid"] == guest(number).device_id
        assert told["public_keys"] == {"mykey": "ssh-ed25519 AAAA me"}
    # A guest that ignores option 121 finds metadata at its router.
    shell("ip", "-n", first, "route", "del", "169.254.169.254/32")
    url = "http://169.254.169.254/latest/meta-data/hostname"
    assert shell("busybox", "wget", "-q", "-O", "-", url, namespace=first) == "vm.novalocal"
    # Outward, the world sees the host's address.
    world.serve(OUTSIDE_NS, 80)
    assert reach(first, "198.51.100.2", 80) == "198.51.100.1"
    assert reach(second, "198.51.100.2", 80) == "198.51.100.1"
    assert world.plane.status().guests == 2


def test_floating_and_fixed_addresses_are_reached_from_the_host(world: World) -> None:
    world.plane.reconcile_once()
    first, second = world.plug(guest(0)), world.plug(guest(1))
    world.lease(first)
    world.lease(second)
    world.serve(first, 22)
    world.serve(HOST_NS, 99)
    assert reach(HOST_NS, FLOATING, 22) == "172.31.4.1"
    assert reach(HOST_NS, "10.211.0.10", 22) == "172.31.4.1"
    assert reach(second, FLOATING, 22) == EXTERNAL
    # A guest with a floating address goes out under it, another under the router's.
    assert reach(first, "172.31.4.1", 99) == FLOATING
    assert reach(second, "172.31.4.1", 99) == EXTERNAL
    world.neutron.facts = cloud(guest(0), guest(1), floating=False)
    assert world.plane.reconcile_once() == ()
    assert reach(HOST_NS, FLOATING, 22) == ""
    assert reach(first, "172.31.4.1", 99) == EXTERNAL


def test_security_groups_let_through_what_they_say(world: World) -> None:
    world.plane.reconcile_once()
    first, second = world.plug(guest(0)), world.plug(guest(1))
    world.lease(first)
    world.lease(second)
    for port in (22, 23):
        world.serve(first, port)
    assert reach(second, "10.211.0.10", 22) == "10.211.0.11"
    assert reach(second, "10.211.0.10", 23) == ""
    assert "1 packets received" in shell("busybox", "ping", "-c1", "-W2", "10.211.0.10", namespace=second, check=False)
    # Only outward: answers still come back, nothing new comes in.
    world.neutron.facts = cloud(guest(0), guest(1), rules=OUTWARD)
    world.plane.reconcile_once()
    world.serve(HOST_NS, 99)
    assert reach(second, "10.211.0.10", 22) == ""
    assert reach(first, "172.31.4.1", 99) == FLOATING
    # Nothing outward either.
    world.neutron.facts = cloud(guest(0), guest(1), rules=(SSH,))
    world.plane.reconcile_once()
    assert reach(first, "172.31.4.1", 99) == ""
    assert reach(HOST_NS, FLOATING, 22) == "172.31.4.1"
    # A port without port security is not filtered.
    world.neutron.facts = cloud(guest(0, port_security_enabled=False), guest(1, port_security_enabled=False))
    world.plane.reconcile_once()
    assert reach(second, "10.211.0.10", 23) == "10.211.0.11"


def test_guests_cannot_pretend_to_be_another(world: World) -> None:
    world.plane.reconcile_once()
    first, second = world.plug(guest(0)), world.plug(guest(1))
    world.lease(first)
    world.lease(second)
    world.serve(first, 22)
    assert reach(second, "10.211.0.10", 22) == "10.211.0.11"
    for address, answer in (("10.211.0.77", ""), ("10.211.0.11", "10.211.0.11")):
        shell("ip", "-n", second, "addr", "flush", "dev", "eth0")
        shell("ip", "-n", second, "addr", "add", f"{address}/24", "dev", "eth0")
        assert reach(second, "10.211.0.10", 22) == answer
    shell("ip", "-n", second, "link", "set", "eth0", "address", "fa:16:3e:99:99:99")
    assert reach(second, "10.211.0.10", 22) == ""


def test_a_tap_whose_port_is_not_known_yet_sends_nothing(world: World) -> None:
    world.neutron.facts = cloud(guest(0))
    world.plane.reconcile_once()
    first, early = world.plug(guest(0)), world.plug(guest(1))
    world.lease(first)
    world.serve(first, 22)
    shell("ip", "-n", early, "addr", "add", "10.211.0.11/24", "dev", "eth0")
    assert reach(early, "10.211.0.10", 22) == ""
    world.neutron.facts = cloud(guest(0), guest(1))
    world.plane.reconcile_once()
    assert reach(early, "10.211.0.10", 22) == "10.211.0.11"


def test_an_address_given_to_another_port_is_leased_to_it(world: World) -> None:
    world.plane.reconcile_once()
    world.lease(world.plug(guest(0)))
    other = guest(1, fixed_ips=guest(0).fixed_ips)
    world.neutron.facts = cloud(other)
    world.plane.reconcile_once()
    name = world.plug(other)
    world.lease(name)
    assert "10.211.0.10/24" in shell("ip", "-n", name, "addr", "show", "eth0")


def test_leftovers_are_adopted_and_damage_is_mended(world: World) -> None:
    world.plane.reconcile_once()
    before = world.state()
    folder = world.plane._place.dhcp_folder(PRIVATE)
    pid = server_pid(folder)
    world.plane._proxy.close()
    again = world.new_plane()  # as after a kill: nothing is known but what the host has
    assert again.reconcile_once() == ()
    assert server_pid(folder) == pid
    assert world.state() == before

    assert pid
    os.kill(pid, signal.SIGKILL)
    shell("ip", "-n", HOST_NS, "link", "del", f"knd{PRIVATE[:11]}")
    shell("nft", "flush", "ruleset", namespace=HOST_NS)
    router = next(
        name for name in shell("ip", "netns", "list").split() if name.startswith(f"kn-{again._place.tag}-router")
    )
    shell("ip", "netns", "del", router)
    eventually(lambda: server_pid(folder) is None)
    assert again.reconcile_once() == ()
    assert world.state() == before
    world.lease(world.plug(guest(0)))


def test_poked_it_looks_at_once_and_stopped_it_leaves_the_networks(world: World) -> None:
    world.neutron.facts = cloud()
    plane = world.plane
    plane._interval = 60.0
    plane.start()
    eventually(lambda: plane.status().last_good)
    assert plane.status().networks == 0
    world.neutron.facts = cloud(guest(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as driver:
        driver.sendto(b'{"resource": "port", "event": "create", "id": "x"}', str(plane.socket_path))
    eventually(lambda: plane.status().guests == 1, 5)
    assert plane.status().problems == ()
    plane.stop()
    assert not plane.status().running
    name = world.plug(guest(0))
    world.lease(name)
    assert "10.211.0.10/24" in shell("ip", "-n", name, "addr", "show", "eth0")


def test_metadata_says_what_is_wrong(world: World) -> None:
    world.plane.reconcile_once()
    name = world.plug(guest(0))
    world.lease(name)

    def ask(*flags: str) -> str:
        url = "http://169.254.169.254/latest/meta-data/instance-id"
        command = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", *flags, url]
        return shell(*command, namespace=name, check=False)

    assert ask() == "200"
    # What a guest says of itself counts for nothing.
    assert ask("-H", "X-Instance-ID: other", "-H", "X-Forwarded-For: 10.211.0.11") == "200"
    assert ask("-d", "x" * 100_000) == "413"
    world.plane._proxy._service = str(world.folder / "nobody.sock")
    assert ask() == "503"
    world.neutron.facts = cloud(guest(0, device_id=""))
    world.plane.reconcile_once()
    assert ask() == "404"


def test_a_firewall_that_drops_lets_our_bridges_pass(world: World) -> None:
    wall = "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"
    shell("nft", wall, namespace=HOST_NS)
    before = shell("nft", "list", "ruleset", namespace=HOST_NS)
    assert world.plane.reconcile_once() == ()
    first, second = world.plug(guest(0)), world.plug(guest(1))
    world.lease(first)
    world.lease(second)
    world.serve(first, 22)
    world.serve(OUTSIDE_NS, 80)
    assert reach(second, "10.211.0.10", 22) == "10.211.0.11"
    assert reach(second, "10.211.0.10", 23) == ""
    assert reach(second, "198.51.100.2", 80) == "198.51.100.1"
    world.plane.teardown()
    assert shell("nft", "list", "ruleset", namespace=HOST_NS) == before


def test_a_bridge_stays_while_a_guest_is_in_it(world: World) -> None:
    world.plane.reconcile_once()
    world.plug(guest(0))
    world.neutron.facts = cloud()
    world.plane.reconcile_once()
    assert bridge_name(PRIVATE) in shell("ip", "-n", HOST_NS, "-br", "link")
    shell("ip", "-n", HOST_NS, "link", "del", guest(0).tap)
    world.plane.reconcile_once()
    assert bridge_name(PRIVATE) not in shell("ip", "-n", HOST_NS, "-br", "link")


def test_teardown_leaves_nothing(world: World) -> None:
    def kept() -> tuple[str, ...]:
        links = "\n".join(link["ifname"] for link in json.loads(shell("ip", "-n", HOST_NS, "-j", "link")))
        routes = shell("ip", "-n", HOST_NS, "route")
        rules = shell("nft", "list", "ruleset", namespace=HOST_NS)
        return links, routes, rules, shell("cat", "/proc/sys/net/ipv4/ip_forward", namespace=HOST_NS)

    before = kept()
    world.plane.reconcile_once()
    pid = server_pid(world.plane._place.dhcp_folder(PRIVATE))
    assert pid
    assert kept() != before
    world.plug(guest(0))
    shell("ip", "-n", HOST_NS, "link", "del", guest(0).tap)
    assert world.plane.teardown() == []
    assert kept() == before
    assert not [
        name for name in shell("ip", "netns", "list").split() if name.startswith(f"kn-{world.plane._place.tag}")
    ]
    assert not (world.folder / "plane").exists()
    assert world.plane.teardown() == []


def test_a_changed_rule_changes_nothing_but_the_filters(world: World) -> None:
    world.plane.reconcile_once()
    before = world.state()
    world.neutron.facts = cloud(guest(0), guest(1), rules=(*OUTWARD, PING))
    world.plane.reconcile_once()
    after = world.state()
    changed = {type(part).__name__ for part in before.parts ^ after.parts}
    assert changed == {"Ruleset"}
    assert msgspec.structs.asdict(world.plane.status())["problems"] == ()
