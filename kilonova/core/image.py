"""Images as the image service describes them."""

from __future__ import annotations

import msgspec


class Image(msgspec.Struct, kw_only=True):
    """An image. ``size`` is bytes; ``min_disk`` GiB, ``min_ram`` MiB; ``properties`` are texts by name."""

    id: str
    name: str = ""
    status: str = "active"
    disk_format: str | None = None
    container_format: str | None = None
    size: int = 0
    virtual_size: int | None = None
    min_disk: int = 0
    min_ram: int = 0
    checksum: str | None = None
    owner: str | None = None
    visibility: str = "private"
    protected: bool = False
    created_at: str = ""
    updated_at: str = ""
    properties: dict[str, str] = {}
    tags: list[str] = []
    kernel_id: str | None = None
    ramdisk_id: str | None = None
