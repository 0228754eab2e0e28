"""The libvirt driver, held to the suite that every driver is held to, with guests that really boot."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kilonova.core.metadata_documents import config_drive_files
from kilonova.core.metadata_record import record_of
from kilonova.virt.libvirt.options import LibvirtOptions
from kilonova.virt.roles import ConfigFile, GuestPlan
from tests.contracts.driver_suite import (
    Hypervisor,
    TestDriver,
    TestLogs,
    TestPowers,
    TestWatches,
    a_guest,
    a_nic,
    made,
    until,
)
from tests.guests.conftest import open_folder

try:
    import libvirt

    from kilonova.virt.libvirt.driver import LibvirtDriver
except ImportError:
    pass  # the fixture ``libvirt_daemon`` says so, and the rest of the folder is still collected

__all__ = ["TestDriver", "TestLogs", "TestPowers", "TestWatches"]


def _with_bridge(plan: GuestPlan, image: Path) -> GuestPlan:
    nics = [msgspec.structs.replace(nic, details={"bridge_name": "kn-test-br"}) for nic in plan.nics]
    server = msgspec.structs.replace(plan.guest.server, id=uuid.UUID(plan.guest.server.uuid).int % 2**31)
    guest = msgspec.structs.replace(plan.guest, server=server)
    return msgspec.structs.replace(plan, guest=guest, image=image, image_format="qcow2", nics=nics)


@pytest.fixture(scope="session")
def bridge(libvirt_daemon: None) -> Iterator[str]:
    """A bridge for the guests' taps, in the place of the network plane's."""
    name = "kn-test-br"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    yield name
    subprocess.run(["ip", "link", "del", name], check=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture
def hypervisor(folder: Path, bridge: str, guest_image: Path) -> Iterator[Hypervisor]:
    drivers: list[LibvirtDriver] = []
    node = str(uuid.uuid4())

    def another() -> LibvirtDriver:
        driver = LibvirtDriver(LibvirtOptions(virt_type="qemu"), host="here", node_uuid=node, state=folder)
        driver.start()
        drivers.append(driver)
        return driver

    def turn_off(server: str) -> None:
        connection = libvirt.open("qemu:///system")
        connection.lookupByUUIDString(server).destroy()
        connection.close()

    first = another()
    plan: Callable[[GuestPlan], GuestPlan] = lambda plan: _with_bridge(plan, guest_image)  # noqa: E731
    yield Hypervisor(driver=first, restarted=another, plan=plan, turn_off=turn_off, seconds=60.0)
    for server in first.guests():
        first.remove_guest(server)
    for driver in drivers:
        driver.close()


def test_a_folder_of_a_removed_guest_is_gone(hypervisor: Hypervisor, folder: Path) -> None:
    server = made(hypervisor).guest.server.uuid
    assert (folder / "instances" / server / "disk").is_file()
    hypervisor.driver.remove_guest(server)
    assert not (folder / "instances" / server).exists()


def test_a_half_made_disk_is_made_anew(hypervisor: Hypervisor, folder: Path) -> None:
    plan = made(hypervisor)
    server = plan.guest.server.uuid
    hypervisor.driver.remove_guest(server)
    disks = folder / "instances" / server
    disks.mkdir()
    (disks / "disk.new").write_bytes(b"half")
    assert hypervisor.driver.ensure_guest(plan) == 1
    assert not (disks / "disk.new").exists()


def test_guests_of_another_folder_are_not_ours(hypervisor: Hypervisor, folder: Path) -> None:
    server = made(hypervisor).guest.server.uuid
    other = LibvirtDriver(
        LibvirtOptions(virt_type="qemu"), host="other", node_uuid=str(uuid.uuid4()), state=folder / "other"
    )
    other.start()
    assert server in hypervisor.driver.guests()
    assert server not in other.guests()
    other.close()


def test_a_guest_on_qemus_own_network_is_reached_by_its_key(
    folder: Path, libvirt_daemon: None, guest_image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a user who is not root: no bridge, a config drive, and ssh forwarded from the loopback address."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    options = LibvirtOptions(virt_type="qemu", connection_uri="qemu:///system")
    driver = LibvirtDriver(options, host="here", node_uuid=str(uuid.uuid4()), state=folder)
    monkeypatch.setattr(driver, "_is_root", False)
    driver.start()
    guest = a_guest("by-key", key_name="k", key_data=key.with_suffix(".pub").read_text().strip(), id=4711)
    record = record_of(guest, [a_nic()], [])
    files = [ConfigFile(path, content) for path, content in config_drive_files(record, seed=bytes(512))]
    plan = GuestPlan(guest=guest, nics=[a_nic()], devices=[], image=guest_image, image_format="qcow2")
    try:
        driver.ensure_guest(msgspec.structs.replace(plan, config_drive=files))
        port = (folder / "instances" / guest.server.uuid / "ssh_port").read_text().strip()
        words = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oConnectTimeout=10"]
        command = ["ssh", *words, "-i", str(key), "-p", port, "guest@127.0.0.1", "hostname"]

        def reached() -> bool:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            return done.returncode == 0 and done.stdout.startswith("by-key")

        until(reached, 180.0)
    finally:
        driver.remove_guest(guest.server.uuid)
        driver.close()
