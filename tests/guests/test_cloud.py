"""The composed cloud with real guests: booted, reached over ssh by their keys, stopped, killed with and removed."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.embedded.plane.plane import available
from tests.functional.cloud import Cloud, User, boot_from_new, wait_for
from tests.guests.conftest import open_folder
from tests.services import lack, need_neighbours

OFFSET = 300
READY = "guest: READY"
BOOT_SECONDS = 240.0


@pytest.fixture(scope="module")
def cloud(guest_image: Path, libvirt_daemon: None) -> Iterator[Cloud]:
    need_neighbours()
    usable, reason = available()
    if not usable:
        lack(reason)
    with open_folder() as folder:
        made = Cloud(folder / "state", offset=OFFSET, driver="libvirt")
        try:
            made.up()
            made.discover()
            yield made
        finally:
            made.down()


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> User:
    return cloud.user()


@pytest.fixture(scope="module")
def key(cloud: Cloud, demo: User) -> Path:
    """A private key whose public half is the key pair "ours"."""
    path = cloud.state / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    public = path.with_suffix(".pub").read_text()
    demo.post("/os-keypairs", {"keypair": {"name": "ours", "public_key": public, "type": "ssh"}})
    return path


@pytest.fixture(scope="module")
def server(demo: User, key: Path) -> dict[str, Any]:
    """A guest that most tests share, ready and reachable."""
    user_data = base64.b64encode(b"#!/bin/sh\necho from-user-data > /tmp/user-data-ran\n").decode()
    found = demo.boot("shared", key_name="ours", metadata={"role": "test"}, user_data=user_data)
    await_ready(demo, found["id"])
    return found


def address(server: dict[str, Any]) -> str:
    return str(next(a["addr"] for nics in server["addresses"].values() for a in nics if a["version"] == 4))


def console(user: User, server: str) -> str:
    answer = user.act(server, "os-getConsoleOutput", {})
    assert answer.status == 200, answer
    return str(answer.body["output"])


def await_ready(user: User, server: str, times: int = 1) -> str:
    """The console, once the guest has said READY so many times (it says so at each boot)."""

    def look() -> str | None:
        text = console(user, server)
        return text if text.count(READY) >= times else None

    return str(wait_for(look, what=f"{server} is ready", seconds=BOOT_SECONDS, every=0.5))


def ssh(key: Path, host: str, command: str) -> str:
    options = [f"-o{name}" for name in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")]
    words = ["ssh", *options, "-oConnectTimeout=20", "-i", str(key), f"guest@{host}", command]

    def attempt() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        return None if done.returncode == 255 else done

    done = wait_for(attempt, what=f"ssh to {host}", seconds=90, every=1.0)
    assert done is not None
    assert done.returncode == 0, done.stderr
    return done.stdout


def domains() -> set[str]:
    listed = subprocess.run(
        ["virsh", "-c", "qemu:///system", "list", "--all", "--uuid"], capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def taps() -> set[str]:
    return {path.name for path in Path("/sys/class/net").glob("tap*")}


def test_a_guest_boots_with_what_was_asked(server: dict[str, Any], demo: User) -> None:
    text = await_ready(demo, server["id"])
    ready = next(line for line in text.splitlines() if READY in line)
    assert f"uuid={server['id']}" in ready
    assert f"address={address(server)}" in ready
    assert "hostname=shared" in ready
    assert "source=http-openstack" in ready


def test_ssh_by_the_injected_key(server: dict[str, Any], key: Path) -> None:
    assert ssh(key, address(server), "hostname").startswith("shared")


def test_the_guest_reads_its_metadata(server: dict[str, Any], key: Path) -> None:
    url = "http://169.254.169.254/openstack/latest/meta_data.json"
    found = json.loads(ssh(key, address(server), f"wget -q -O - {url}"))
    assert found["uuid"] == server["id"]
    assert found["meta"] == {"role": "test"}
    assert list(found["public_keys"]) == ["ours"]


def test_user_data_ran(server: dict[str, Any], key: Path) -> None:
    assert ssh(key, address(server), "cat /tmp/user-data-ran").strip() == "from-user-data"


def test_the_disk_is_as_large_as_the_flavor_says(server: dict[str, Any], key: Path) -> None:
    sectors = int(ssh(key, address(server), "cat /sys/block/vda/size"))
    assert sectors * 512 == 1 << 30


def test_stop_start_and_reboot(server: dict[str, Any], demo: User, key: Path) -> None:
    assert demo.act(server["id"], "os-stop").status == 202
    stopped = demo.await_status(server["id"], "SHUTOFF", seconds=120)
    assert stopped["OS-EXT-STS:power_state"] == 4
    assert demo.act(server["id"], "os-start").status == 202
    demo.await_status(server["id"], "ACTIVE", seconds=120)
    await_ready(demo, server["id"], times=2)
    assert demo.act(server["id"], "reboot", {"type": "HARD"}).status == 202
    demo.await_status(server["id"], "ACTIVE", seconds=120)
    await_ready(demo, server["id"], times=3)
    assert ssh(key, address(server), "hostname").startswith("shared")


def test_a_guest_that_shuts_itself_down_is_shown_off(server: dict[str, Any], demo: User, key: Path) -> None:
    ssh(key, address(server), "sudo poweroff 2>/dev/null || poweroff 2>/dev/null || true")
    libvirt_off = ["virsh", "-c", "qemu:///system", "shutdown", server["id"]]
    subprocess.run(libvirt_off, check=False, capture_output=True)
    demo.await_status(server["id"], "SHUTOFF", seconds=120)
    assert demo.act(server["id"], "os-start").status == 202
    demo.await_status(server["id"], "ACTIVE", seconds=120)


def test_config_drive(demo: User, cloud: Cloud) -> None:
    found = demo.boot("with-drive", config_drive=True, key_name="ours")
    text = await_ready(demo, found["id"])
    assert f"uuid={found['id']}" in text
    drive = cloud.state / "compute" / "instances" / found["id"] / "disk.config"
    assert drive.is_file()
    demo.delete(found["id"], seconds=120)
    assert not drive.exists()


def test_boot_from_a_volume(demo: User, cloud: Cloud, key: Path) -> None:
    found = demo.boot("on-volume", key_name="ours", **boot_from_new(cloud.image, size=1))
    await_ready(demo, found["id"])
    assert ssh(key, address(found), "hostname").startswith("on-volume")
    volumes = demo.get("/volumes/detail", service="cinder")
    assert [a["server_id"] for v in volumes["volumes"] for a in v["attachments"]] == [found["id"]]
    demo.delete(found["id"], seconds=120)
    wait_for(lambda: not demo.get("/volumes", service="cinder")["volumes"], what="the volume has gone with it")


def test_guests_of_one_image_share_one_download(server: dict[str, Any], cloud: Cloud) -> None:
    cached = [p for p in (cloud.state / "compute" / "instances" / "_base").iterdir() if p.is_file()]
    assert len([p for p in cached if p.stat().st_size > 1 << 20]) == 1


def test_a_kill_of_the_cloud_leaves_guests_running(server: dict[str, Any], demo: User, cloud: Cloud, key: Path) -> None:
    before = ssh(key, address(server), "cat /proc/sys/kernel/random/boot_id")
    cloud.kill()
    assert server["id"] in domains_without_daemon()
    cloud.up()
    again = cloud.user()
    assert again.await_status(server["id"], "ACTIVE", seconds=60)["OS-EXT-STS:power_state"] == 1
    assert ssh(key, address(server), "cat /proc/sys/kernel/random/boot_id") == before


def domains_without_daemon() -> set[str]:
    """Servers whose QEMU processes live, read from the processes: libvirt may be down."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"qemu-system" in words[0] and b"-uuid" in words:
            found.add(words[words.index(b"-uuid") + 1].decode())
    return found


def test_a_killed_guest_is_noticed(server: dict[str, Any], demo: User, cloud: Cloud) -> None:
    user = cloud.user()
    pids = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if server["id"].encode() in path.read_bytes() and b"qemu-system" in path.read_bytes()
    ]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    user.await_status(server["id"], "SHUTOFF", seconds=120)


def test_nothing_is_left_of_a_deleted_guest(server: dict[str, Any], cloud: Cloud) -> None:
    user = cloud.user()
    ports = user.get(f"/ports?device_id={server['id']}", service="neutron")["ports"]
    user.delete(server["id"], seconds=120)
    assert server["id"] not in domains()
    assert not {f"tap{port['id'][:11]}" for port in ports} & taps()
    assert not (cloud.state / "compute" / "instances" / server["id"]).exists()
    assert not user.get(f"/ports?device_id={server['id']}", service="neutron")["ports"]
