"""A server's volumes, on top of ``Cinder``: made, attached and let go so that each may be repeated after a crash.

Both the host and, for hosts that are dead, the conductor use them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilonova.base import log
from kilonova.base.errors import BadRequest, BuildAborted, Conflict, NotFound, VolumeNotFound
from kilonova.clients.cinder import Cinder, Volume
from kilonova.core.device import BlockDevice

LOG = log.of(__name__)

MARK = "kilonova"
TRIES = 3

Check = Callable[[], None]


def _mark(server: str, device: BlockDevice) -> dict[str, str]:
    return {MARK: f"{server}:{device.uuid}"}


def _go_on() -> None:
    return


def ensure_volumes(
    cinder: Cinder,
    devices: Sequence[BlockDevice],
    *,
    server: str,
    project_id: str,
    zone: str | None = None,
    seconds: float = 600.0,
    check: Check = _go_on,
) -> list[BlockDevice]:
    """Make the volumes that are to be made, all at once, and wait for them; the devices with their ``volume_id``.

    One that fails is thrown away and made once more: a volume service that is restarted gives up what it was making.
    ``check`` is called between the requests and raises when the work is not wanted any more.
    """
    wanted = [device for device in devices if device.is_volume and device.volume_id is None]
    deadline = time.monotonic() + seconds
    made: dict[str, Volume] = {}
    for left in reversed(range(TRIES)):
        for device in wanted:
            check()
            found = cinder.find_volume(metadata=_mark(server, device), project_id=project_id)
            made[device.uuid] = found or _create(cinder, device, server=server, project_id=project_id, zone=zone)
        well = [_came_off(cinder, made[device.uuid], deadline, check, last=not left) for device in wanted]
        if all(well):
            break
    return [
        msgspec.structs.replace(d, volume_id=made[d.uuid].id, volume_created=True, size=made[d.uuid].size)
        if d.uuid in made
        else d
        for d in devices
    ]


def _came_off(cinder: Cinder, volume: Volume, deadline: float, check: Check, *, last: bool) -> bool:
    """Whether the volume was made; one that was not is gone then, unless it was the last try or time is up."""
    check()
    try:
        cinder.wait_available(volume.id, seconds=max(deadline - time.monotonic(), 0.0))
    except BuildAborted as error:
        if last or time.monotonic() >= deadline:
            raise
        LOG.warning("%s It is made once more.", error.message)
        cinder.delete_volume(volume.id)
        return False
    return True


def _create(cinder: Cinder, device: BlockDevice, *, server: str, project_id: str, zone: str | None) -> Volume:
    size = device.size
    if size is None and device.snapshot_id is not None:
        size = int(cinder.snapshot(device.snapshot_id)["size"])
    if not size:
        raise BadRequest(f"Block device {device.uuid} names no size for its volume.")
    return cinder.create_volume(
        project_id=project_id,
        size=size,
        name="" if device.source_type != "blank" else f"{server}-blank-vol",
        image_id=device.image_id if device.source_type == "image" else None,
        snapshot_id=device.snapshot_id if device.source_type == "snapshot" else None,
        volume_type=device.volume_type,
        zone=zone,
        metadata=_mark(server, device),
    )


def ensure_attached(
    cinder: Cinder,
    devices: Sequence[BlockDevice],
    *,
    server: str,
    connector: dict[str, Any],
    check: Check = _go_on,
) -> list[BlockDevice]:
    """Reserve what is not reserved, connect all to the host that ``connector`` describes, mark them in use."""
    volumes = [device for device in devices if device.is_volume]
    if not volumes:
        return list(devices)
    held = _held(cinder, server) if any(d.attachment_id is None for d in volumes) else {}
    result = []
    for device in devices:
        if not device.is_volume:
            result.append(device)
            continue
        check()
        volume_id = str(device.volume_id)
        attachment = device.attachment_id or held.get(volume_id) or cinder.reserve(volume_id, server)
        try:
            connection = cinder.connect(attachment, connector, device=device.device_name)
        except NotFound:
            # What is written down is of an earlier attempt on another host, which left a fresh record in its place.
            attachment = _held(cinder, server).get(volume_id) or cinder.reserve(volume_id, server)
            connection = cinder.connect(attachment, connector, device=device.device_name)
        cinder.complete(attachment)
        result.append(msgspec.structs.replace(device, attachment_id=attachment, connection=connection))
    return result


def _held(cinder: Cinder, server: str) -> dict[str, str]:
    """Attachments by volume: an interrupted call can have left some that nobody has written down."""
    return {attachment["volume_id"]: attachment["id"] for attachment in cinder.attachments(server=server)}


def release_attachments(cinder: Cinder, devices: Sequence[BlockDevice], *, server: str) -> None:
    """Delete the attachments of a server's volumes, also those that an interrupted call left unwritten."""
    if not any(device.is_volume for device in devices):
        return
    known = {device.attachment_id for device in devices if device.attachment_id}
    known |= {attachment["id"] for attachment in cinder.attachments(server=server)}
    for attachment in sorted(known):
        cinder.release(attachment)


def disconnect(cinder: Cinder, devices: Sequence[BlockDevice], *, server: str, host: str) -> None:
    """Let go of a host but keep the volumes for the server: new records without a host before the old ones go.

    ``ensure_attached`` finds the new ones by the server.
    """
    if not any(device.is_volume for device in devices):
        return
    held = cinder.attachments(server=server)
    hostless = {a["volume_id"] for a in held if a["status"] == "reserved"}
    for attachment in held:
        if attachment["status"] == "reserved" or attachment.get("host", host) not in (host, None):
            continue
        if attachment["volume_id"] not in hostless:
            try:
                cinder.reserve(attachment["volume_id"], server)
            except (BadRequest, Conflict, VolumeNotFound):
                LOG.warning("volume %s cannot be kept for server %s", attachment["volume_id"], server)
        cinder.release(attachment["id"])


def ensure_released(cinder: Cinder, server: str, devices: Sequence[BlockDevice]) -> None:
    """All that a server leaves when it is deleted: no attachment, and none of the volumes that go with it.

    A volume that was made for it but never written down is found by its mark. All are tried; the first failure is
    raised at the end.
    """
    release_attachments(cinder, devices, server=server)
    failure: BadRequest | Conflict | None = None
    for device in devices:
        if not device.is_volume or (device.volume_id is not None and not device.delete_on_termination):
            continue
        volume_id = device.volume_id
        if volume_id is None:
            found = cinder.find_volume(metadata=_mark(server, device))
            volume_id = found.id if found else None
        try:
            if volume_id is not None:
                cinder.delete_volume(volume_id)
        except (BadRequest, Conflict) as error:
            failure = failure or error
    if failure is not None:
        raise failure
