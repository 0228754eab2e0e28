"""Which block devices a new server gets: from what was asked, its image and its flavor. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from kilonova.base.errors import BadRequest
from kilonova.core.device import BlockDevice
from kilonova.core.flavor import Flavor

_INVALID = "Block Device Mapping is Invalid"
_BUSES = frozenset({"virtio", "scsi", "ide", "usb", "sata", "fdc", "xen", "uml", "lxc"})
GIB = 1024**3


class DeviceRequest(msgspec.Struct, kw_only=True):
    """One block device as asked for. ``uuid`` names the image, volume or snapshot."""

    source_type: str | None = None
    destination_type: str | None = None
    uuid: str | None = None
    boot_index: int | None = None
    size: int | None = None
    device_name: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    guest_format: str | None = None
    delete_on_termination: bool = False
    no_device: bool = False
    volume_type: str | None = None
    tag: str | None = None


def plan_devices(
    asked: Sequence[DeviceRequest], *, image_id: str | None, flavor: Flavor, max_local: int
) -> list[BlockDevice]:
    """The devices in full, the root first; BadRequest where they do not fit together.

    The root is the one asked for with boot index 0, else a local disk of the image. Local disks for the flavor's
    ephemeral storage and swap are added where none was asked for.
    """
    devices = [_device(request, image_given=image_id is not None) for request in asked if not request.no_device]
    if image_id is not None and not any(_is_image_root(device, image_id) for device in devices):
        devices.insert(0, _local_root(image_id))
    _check_boot_order(devices)
    _check_sizes(devices, flavor)
    devices += _of_flavor(devices, flavor)
    local = sum(device.destination_type == "local" for device in devices)
    if 0 <= max_local < local:
        raise BadRequest(f"{_INVALID}: You specified more local devices than the limit allows")
    return sorted(devices, key=lambda device: not device.is_root)


def _is_image_root(device: BlockDevice, image_id: str) -> bool:
    return device.is_root and device.source_type == "image" and device.image_id == image_id


def _local_root(image_id: str) -> BlockDevice:
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type="image",
        destination_type="local",
        boot_index=0,
        image_id=image_id,
        device_type="disk",
        delete_on_termination=True,
    )


def _device(request: DeviceRequest, *, image_given: bool) -> BlockDevice:
    source = request.source_type
    if source is None:
        raise BadRequest(f"{_INVALID}: Missing source_type field")
    if source == "blank" and request.uuid:
        raise BadRequest(f"{_INVALID}: Invalid device UUID.")
    if source != "blank" and not request.uuid:
        raise BadRequest(f"{_INVALID}: Missing device UUID.")
    destination = request.destination_type or ("volume" if source in ("volume", "snapshot") else "local")
    if destination == "local":
        _check_local(request, image_given=image_given)
    if request.volume_type and source == "volume":
        raise BadRequest(f"{_INVALID}: Specifying a volume_type with source_type=volume is not supported.")
    if request.disk_bus is not None and request.disk_bus not in _BUSES:
        raise BadRequest(f"{_INVALID}: disk_bus {request.disk_bus} is not known.")
    boot_index = request.boot_index
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type=source,
        destination_type=destination,
        boot_index=None if boot_index is None or boot_index < 0 else boot_index,
        device_name=request.device_name,
        device_type=request.device_type,
        disk_bus=request.disk_bus,
        guest_format=request.guest_format,
        size=request.size,
        image_id=request.uuid if source == "image" else None,
        snapshot_id=request.uuid if source == "snapshot" else None,
        volume_id=request.uuid if source == "volume" else None,
        volume_type=request.volume_type,
        delete_on_termination=request.delete_on_termination or destination == "local",
        tag=request.tag,
    )


def _check_local(request: DeviceRequest, *, image_given: bool) -> None:
    if request.source_type == "image" and not (image_given and request.boot_index == 0):
        raise BadRequest(f"{_INVALID}: Mapping image to local is not supported.")
    if request.source_type in ("volume", "snapshot"):
        raise BadRequest(f"{_INVALID}: Mapping {request.source_type} to local is not supported.")
    if request.volume_type:
        raise BadRequest(f"{_INVALID}: Specifying a volume_type with destination_type=local is not supported.")


def _check_boot_order(devices: Sequence[BlockDevice]) -> None:
    order = sorted(device.boot_index for device in devices if device.boot_index is not None)
    if not order or order != list(range(len(order))):
        raise BadRequest(
            f"{_INVALID}: Boot sequence for the instance and image/block device mapping combination is not valid."
        )


def _is_swap(device: BlockDevice) -> bool:
    return device.source_type == "blank" and device.destination_type == "local" and device.guest_format == "swap"


def _is_ephemeral(device: BlockDevice) -> bool:
    return device.source_type == "blank" and device.destination_type == "local" and device.guest_format != "swap"


def _check_sizes(devices: Sequence[BlockDevice], flavor: Flavor) -> None:
    """Every size is there and within the flavor's; those left out are filled in."""
    for device in devices:
        if device.is_volume and not device.size:
            if device.source_type == "image":
                raise BadRequest("Images with destination_type 'volume' need to have a non-zero size specified")
            if device.source_type == "blank":
                raise BadRequest("Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size")
    swaps = [device for device in devices if _is_swap(device)]
    if len(swaps) > 1:
        raise BadRequest(f"{_INVALID}: More than one swap drive requested.")
    for swap in swaps:
        swap.size = flavor.swap if swap.size is None else swap.size
        if swap.size > flavor.swap:
            raise BadRequest("Swap drive requested is larger than instance type allows.")
    ephemerals = [device for device in devices if _is_ephemeral(device)]
    for ephemeral in ephemerals:
        ephemeral.size = flavor.ephemeral_gb if ephemeral.size is None else ephemeral.size
    if sum(ephemeral.size or 0 for ephemeral in ephemerals) > flavor.ephemeral_gb:
        raise BadRequest(
            "Ephemeral disks requested are larger than the instance type allows. If no size is given in one block "
            "device mapping, flavor ephemeral size will be used."
        )


def _of_flavor(devices: Sequence[BlockDevice], flavor: Flavor) -> list[BlockDevice]:
    added = []
    if flavor.ephemeral_gb and not any(map(_is_ephemeral, devices)):
        added.append(_blank(flavor.ephemeral_gb, None))
    if flavor.swap and not any(map(_is_swap, devices)):
        added.append(_blank(flavor.swap, "swap"))
    return added


def _blank(size: int, guest_format: str | None) -> BlockDevice:
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type="blank",
        destination_type="local",
        guest_format=guest_format,
        size=size,
        delete_on_termination=True,
    )


def with_fresh_uuids(devices: Sequence[BlockDevice]) -> list[BlockDevice]:
    """The same devices for another server."""
    return [msgspec.structs.replace(device, uuid=str(uuid.uuid4())) for device in devices]
