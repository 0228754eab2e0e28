"""The libvirt driver, held to the suite that every driver is held to, with guests that really boot."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import msgspec
import pytest

from kilonova.virt.libvirt.driver import LibvirtDriver
from kilonova.virt.libvirt.options import LibvirtOptions
from kilonova.virt.roles import GuestPlan
from tests.contracts.driver_suite import Hypervisor, TestDriver, TestLogs, TestPowers, TestWatches, made
from tests.guests.conftest import open_folder

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
