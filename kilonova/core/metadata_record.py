"""From a server and what it holds to the record that its metadata is made of, for config drives and the service."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from kilonova.core.device import BlockDevice
from kilonova.core.metadata import InjectedFile, InstanceMetadata, Key
from kilonova.core.network import Nic
from kilonova.core.server import Guest


def record_of(
    guest: Guest,
    nics: Sequence[Nic],
    devices: Sequence[BlockDevice],
    *,
    domain: str = "novalocal",
    password: str = "",
) -> InstanceMetadata:
    """What the guest may learn of itself."""
    server = guest.server
    key = None
    if server.key_name is not None and server.key_data is not None:
        key = Key(server.key_name, "x509" if server.key_type == "x509" else "ssh", server.key_data)
    return InstanceMetadata(
        uuid=server.uuid,
        name=server.name,
        hostname=server.hostname or server.name,
        project_id=server.project_id,
        user_id=server.user_id,
        domain=domain,
        reservation_id=server.reservation_id,
        launch_index=server.launch_index,
        number=server.id or None,
        image_id=server.image_id or "",
        kernel_id=server.kernel_id or "",
        ramdisk_id=server.ramdisk_id or "",
        flavor=server.flavor.name,
        availability_zone=server.availability_zone,
        key=key,
        user_data=_decoded(server.user_data),
        metadata=server.metadata,
        security_groups=tuple(server.security_groups),
        nics=tuple(nics),
        block_devices=_block_devices(server.root_device_name, devices),
        files=tuple(InjectedFile(path, _decoded(content) or b"") for path, content in guest.files),
        admin_pass=guest.admin_password,
        password=password,
    )


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return text.encode()


def _block_devices(root: str | None, devices: Sequence[BlockDevice]) -> dict[str, str]:
    """EC2's names: the root twice, ephemeral disks and volumes counted, swap."""
    name = root or "/dev/vda"
    found = {"ami": name.removeprefix("/dev/"), "root": name}
    counts = {"ephemeral": 0, "ebs": 0}
    for device in devices:
        if device.device_name is None or device.is_root:
            continue
        if device.guest_format == "swap":
            found["swap"] = device.device_name
            continue
        kind = "ebs" if device.is_volume else "ephemeral"
        found[f"{kind}{counts[kind]}"] = device.device_name
        counts[kind] += 1
    return found
