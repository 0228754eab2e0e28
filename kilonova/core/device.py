"""Block devices of a server, asked for or attached."""

from __future__ import annotations

from typing import Any

import msgspec


class BlockDevice(msgspec.Struct, kw_only=True):
    """One block device mapping.

    ``source_type``: image, volume, snapshot or blank; ``destination_type``: local or volume. ``boot_index`` 0 is the
    root disk, None is not bootable. ``size`` GiB (swap: MiB). ``connection`` is what the volume service gave for the
    host: its ``driver_volume_type`` with the connection's own keys beside it (secrets inside: never logged);
    ``attachment_id`` is the volume service's record of it.
    """

    uuid: str
    source_type: str
    destination_type: str
    boot_index: int | None = None
    device_name: str | None = None
    device_type: str | None = None
    disk_bus: str | None = None
    guest_format: str | None = None
    size: int | None = None
    image_id: str | None = None
    snapshot_id: str | None = None
    volume_id: str | None = None
    volume_type: str | None = None
    delete_on_termination: bool = False
    no_device: bool = False
    tag: str | None = None
    attachment_id: str | None = None
    connection: dict[str, Any] | None = None
    encrypted: bool = False
    volume_created: bool = False
    multiattach: bool = False

    @property
    def is_root(self) -> bool:
        """Whether the server boots from it."""
        return self.boot_index == 0

    @property
    def is_volume(self) -> bool:
        """Whether it is (or becomes) a volume."""
        return self.destination_type == "volume"
