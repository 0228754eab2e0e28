"""The block devices of a new server: read from the request, checked with Cinder, reserved, and given back."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UnsetType

from kilonova.api.call import Call
from kilonova.api.moments import now
from kilonova.api.servers import lookup
from kilonova.api.servers.bodies import DeviceEntry, LegacyDevice, NewServer, given
from kilonova.base import log
from kilonova.base.errors import BadRequest, Fault, NotFound
from kilonova.base.flow import Run
from kilonova.clients.cinder import Volume
from kilonova.core.device import BlockDevice
from kilonova.core.disks import DeviceRequest
from kilonova.store import journal, runs
from kilonova.store.session import Tx

LOG = log.of(__name__)
HELD = datetime.timedelta(seconds=90)
_INVALID = "Block Device Mapping is Invalid"


def requested_devices(server: NewServer) -> list[DeviceRequest]:
    """The block devices asked for, in either syntax."""
    legacy, entries = given(server.block_device_mapping, []), given(server.block_device_mapping_v2, [])
    if legacy and entries:
        raise BadRequest("Using different block_device_mapping syntaxes is not allowed in the same request.")
    if entries:
        return [_request(entry) for entry in entries]
    return _legacy_requests(legacy, image_given=bool(given(server.image, "")))


def _request(entry: DeviceEntry) -> DeviceRequest:
    source = given(entry.source_type, None)
    by_source = {
        "volume": given(entry.volume_id, None),
        "snapshot": given(entry.snapshot_id, None),
        "image": given(entry.image_id, None),
    }
    tag: str | None = given(entry.tag, given(entry.early_tag, "")) or None
    return DeviceRequest(
        source_type=source,
        destination_type=given(entry.destination_type, None),
        uuid=given(entry.uuid, "") or by_source.get(source or ""),
        boot_index=given(entry.boot_index, None),  # type: ignore[arg-type]  # its check made it a number
        size=_size(entry),
        device_name=given(entry.device_name, None),
        device_type=given(entry.device_type, None),
        disk_bus=given(entry.disk_bus, None),
        guest_format=given(entry.guest_format, None),
        delete_on_termination=bool(given(entry.delete_on_termination, False)),
        no_device=bool(entry.no_device),
        volume_type=given(entry.volume_type, None),
        tag=tag,
    )


def _size(entry: LegacyDevice) -> int | None:
    size = entry.volume_size
    return None if isinstance(size, UnsetType) else int(size)


def _legacy_requests(entries: Sequence[LegacyDevice], *, image_given: bool) -> list[DeviceRequest]:
    """The old syntax knows volumes and snapshots; without an image the first one is the root."""
    found: list[DeviceRequest] = []
    for entry in entries:
        volume, snapshot = given(entry.volume_id, None), given(entry.snapshot_id, None)
        if entry.no_device or (volume is None and snapshot is None):
            continue
        first = not found and not image_given
        found.append(
            DeviceRequest(
                source_type="volume" if volume else "snapshot",
                destination_type="volume",
                uuid=volume or snapshot,
                boot_index=0 if first else None,
                size=_size(entry),
                device_name=given(entry.device_name, None),
                delete_on_termination=bool(given(entry.delete_on_termination, False)),
            )
        )
    return found


def check_devices(call: Call[Any], devices: Sequence[BlockDevice], *, servers: int, zone: str | None) -> dict[str, str]:
    """Look every volume, snapshot and volume type up; sizes left out are filled in.

    The answer is what the root volume remembers of its image, {} where the root is none or remembers nothing.
    """
    remembered: dict[str, str] = {}
    types: list[dict[str, Any]] | None = None
    for device in devices:
        if device.volume_type:
            types = call.services.cinder.volume_types() if types is None else types
            if not any(device.volume_type in (known["id"], known["name"]) for known in types):
                raise BadRequest(f"Volume type {device.volume_type} could not be found.")
        if device.volume_id:
            volume = _check_volume(call, device, servers=servers, zone=zone)
            if device.is_root:
                remembered = volume.image
        elif device.snapshot_id:
            _check_snapshot(call, device)
    return remembered


def _check_volume(call: Call[Any], device: BlockDevice, *, servers: int, zone: str | None) -> Volume:
    volume = _volume(call, str(device.volume_id))
    if volume.multiattach and not call.since("2.60"):
        raise BadRequest("Multiattach volumes are only supported starting with compute API version 2.60.")
    if servers > 1 and not volume.multiattach:
        raise BadRequest("Cannot attach one or more volumes to multiple instances")
    if volume.status != "available" and not (volume.multiattach and volume.status in ("in-use", "reserved")):
        raise BadRequest(f"Invalid volume: Volume {volume.id} status must be available, but is {volume.status}")
    if device.is_root and not volume.bootable:
        raise BadRequest(f"Block Device {volume.id} is not bootable.")
    if zone and not call.options.volume.cross_az_attach and volume.availability_zone not in (None, zone):
        raise BadRequest(
            f"Invalid volume: Server and volumes are not in the same availability zone. Server is in: {zone}. "
            f"Volumes are in: {volume.availability_zone}"
        )
    device.size, device.multiattach, device.encrypted = volume.size, volume.multiattach, volume.encrypted
    return volume


def _volume(call: Call[Any], volume_id: str) -> Volume:
    try:
        volume = call.services.cinder.volume(volume_id)
    except NotFound:
        raise BadRequest(f"{_INVALID}: failed to get volume {volume_id}.") from None
    if volume.project_id and volume.project_id != call.context.project_id and not call.context.is_admin:
        raise BadRequest(f"{_INVALID}: failed to get volume {volume_id}.")
    return volume


def _check_snapshot(call: Call[Any], device: BlockDevice) -> None:
    try:
        snapshot = call.services.cinder.snapshot(str(device.snapshot_id))
    except NotFound:
        raise BadRequest(f"{_INVALID}: failed to get snapshot {device.snapshot_id}.") from None
    owner = snapshot.get("os-extended-snapshot-attributes:project_id") or snapshot.get("project_id")
    if owner and owner != call.context.project_id and not call.context.is_admin:
        raise BadRequest(f"{_INVALID}: failed to get snapshot {device.snapshot_id}.")
    device.size = device.size or int(snapshot["size"])


def reserve(call: Call[Any], server: str, devices: Sequence[BlockDevice], reserved: list[str]) -> list[BlockDevice]:
    """Reserve the volumes that are there already; ``reserved`` gets each attachment as soon as it is made."""
    found = []
    for device in devices:
        if device.volume_id:
            attachment = call.services.cinder.reserve(device.volume_id, server)
            reserved.append(attachment)
            device = msgspec.structs.replace(device, attachment_id=attachment)
        found.append(device)
    return found


def guard(call: Call[Any], servers: Sequence[str], devices: Sequence[BlockDevice]) -> list[Run]:
    """Enter runs that give back what will be reserved, should this process die before the servers are committed.

    They begin after ``HELD``; ``lift`` takes them away in the transaction that makes the servers.
    """
    held = [msgspec.structs.replace(d, delete_on_termination=False) for d in devices if d.volume_id]
    if not held:
        return []
    due = now() + HELD
    made = []
    for server in servers:
        run = lookup.run_of(call, "delete_unscheduled", server, state={"server": server, "devices": _plain(held)})
        made.append(msgspec.structs.replace(run, due_at=due))

    def write(tx: Tx) -> None:
        for run in made:
            journal.start_in(tx, run)

    call.services.cells.api.write(write)
    return made


def _plain(devices: Sequence[BlockDevice]) -> list[Any]:
    return [msgspec.to_builtins(device) for device in devices]


def lift(tx: Tx, guards: Sequence[Run]) -> None:
    """The servers are being made; ReservationLapsed when that took so long that a guard may be at work."""
    at = now()
    for run in guards:
        if (run.due_at is not None and run.due_at <= at) or not runs.cancel_in(tx, run.id, at=at):
            raise ReservationLapsed


class ReservationLapsed(Fault):
    code, text = 503, "The volume service took too long to reserve the volumes."


def give_back(call: Call[Any], reserved: Sequence[str], guards: Sequence[Run] = ()) -> None:
    """Undo reservations. What cannot be undone now is left to the guards, which are due from now on."""
    for attachment in reserved:
        try:
            call.services.cinder.release(attachment)
        except Fault as error:
            LOG.warning("attachment %s of a refused create was not released: %s", attachment, error.message)
    if guards:
        call.services.cells.api.write(lambda tx: runs.hurry(tx, [run.id for run in guards], now()))
