"""The host's steps with volumes, images and config drives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.base.errors import BuildAborted
from kilonova.clients.vendordata import VendorData
from kilonova.compute.images import Images
from kilonova.compute.steps import Steps
from kilonova.core.device import BlockDevice
from kilonova.virt.roles import RUNNING, GuestPlan
from tests.contracts.driver_suite import a_guest
from tests.unit.compute.scene import UNDO, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    yield scene
    scene.close()


def root(**more: Any) -> BlockDevice:
    fields: dict[str, Any] = {
        "uuid": str(uuid.uuid4()),
        "source_type": "image",
        "destination_type": "volume",
        "image_id": "an-image",
        "boot_index": 0,
        "size": 1,
        "device_name": "/dev/vda",
        "delete_on_termination": True,
    }
    return BlockDevice(**{**fields, **more})


class Recording:
    """A driver that keeps the plans it gets."""

    def __init__(self, inner: Any) -> None:
        self.plans: list[GuestPlan] = []
        self._inner = inner

    def ensure_guest(self, plan: GuestPlan) -> int:
        self.plans.append(plan)
        power: int = self._inner.ensure_guest(plan)
        return power

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_boot_from_a_new_volume_and_back(scene: Scene) -> None:
    cinder, guest = scene.neighbours.cinder, a_guest(project_id="project", volume_backed=True)
    device = root()
    work = scene.work(guest, devices=(device,))
    assert [ok for _, ok in scene.finish(work)] == [True, True, True]
    volume = next(iter(cinder.volumes.values()))
    assert (volume.status, volume.project_id, volume.image) == ("in-use", "project", {"image_id": "an-image"})
    attached = msgspec.convert(scene.conductor.reports[1].output["devices"], list[BlockDevice])
    assert attached[0].volume_id == volume.id
    assert attached[0].connection
    assert attached[0].volume_created
    scene.finish(scene.work(guest, UNDO, run=work.run, undo=True, devices=tuple(attached)))
    assert cinder.volumes[volume.id].status == "reserved"
    scene.finish(scene.work(guest, run=work.run, attempt=1, devices=tuple(attached)))
    assert len(cinder.volumes) == 1
    assert [record["status"] for record in cinder.records.values()] == ["attached"]


def test_a_volume_that_fails_aborts_the_build(scene: Scene) -> None:
    scene.neighbours.cinder.broken.add("an-image")
    work = scene.work(a_guest(project_id="project"), devices=(root(),))
    assert scene.finish(work)[-1] == ("attach_volumes", False)
    error = scene.conductor.reports[-1].error
    assert error is not None
    assert error.kind == "BuildAborted"
    assert "ended in status error" in error.message


def test_a_crash_between_making_and_reporting_makes_no_second_volume(scene: Scene) -> None:
    guest, device = a_guest(project_id="project"), root()
    scene.host.attach_volumes(guest=guest, devices=[device], host="sim-0001")
    scene.host.attach_volumes(guest=guest, devices=[device], host="sim-0001")
    assert len(scene.neighbours.cinder.volumes) == 1
    assert len(scene.neighbours.cinder.records) == 1


def test_a_driver_that_stages_images_gets_the_file(scene: Scene, tmp_path: Path) -> None:
    image = scene.neighbours.glance.add_image(content=b"a disk", disk_format="qcow2")
    kernel = scene.neighbours.glance.add_image(content=b"a kernel")
    driver = Recording(scene.host.driver)
    tools = scene.host._tools._replace(driver=driver, images=Images(tmp_path, scene.neighbours.glance))
    guest = a_guest(image_id=image.id, kernel_id=kernel.id)
    assert Steps(tools).spawn_guest(guest=guest, nics=[], devices=[]).power_state == RUNNING
    plan = driver.plans[0]
    assert plan.image is not None
    assert plan.kernel is not None
    assert (plan.image.read_bytes(), plan.image_format, plan.kernel.read_bytes()) == (b"a disk", "qcow2", b"a kernel")
    assert plan.ramdisk is None
    volume_backed = a_guest(image_id=image.id, volume_backed=True)
    Steps(tools).spawn_guest(guest=volume_backed, nics=[], devices=[])
    assert driver.plans[1].image is None
    with pytest.raises(BuildAborted, match="Image nowhere"):
        Steps(tools).spawn_guest(guest=a_guest(image_id="nowhere"), nics=[], devices=[])


def test_a_config_drive_tells_who_the_guest_is(scene: Scene, tmp_path: Path) -> None:
    driver = Recording(scene.host.driver)
    (tmp_path / "vendor.json").write_text('{"who": "the operator"}')
    tools = scene.host._tools._replace(driver=driver, vendor=VendorData(tmp_path / "vendor.json"))
    plain, told = a_guest("plain"), msgspec.structs.replace(a_guest("told", config_drive=True), admin_password="pw")
    for guest in (plain, told):
        Steps(tools).spawn_guest(guest=guest, nics=[], devices=[])
    assert driver.plans[0].config_drive is None
    files = {file.path: file.content for file in driver.plans[1].config_drive or []}
    document = msgspec.json.decode(files["openstack/latest/meta_data.json"])
    assert document["uuid"] == told.server.uuid
    assert document["hostname"] == "told.novalocal"
    assert document["admin_pass"] == "pw"
    assert msgspec.json.decode(files["openstack/latest/vendor_data.json"]) == {"who": "the operator"}


def test_an_image_may_insist_on_a_config_drive(scene: Scene) -> None:
    driver = Recording(scene.host.driver)
    guest = a_guest(image_properties={"img_config_drive": "mandatory"})
    Steps(scene.host._tools._replace(driver=driver)).spawn_guest(guest=guest, nics=[], devices=[])
    assert driver.plans[0].config_drive
