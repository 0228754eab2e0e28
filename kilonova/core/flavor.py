"""Flavors: how much of each resource a server gets."""

from __future__ import annotations

import datetime

import msgspec


class Flavor(msgspec.Struct, kw_only=True):
    """A flavor. ``swap`` and ``memory_mb`` are MiB, disks GiB; ``flavorid`` is the id that users see."""

    flavorid: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: dict[str, str] = {}
    projects: list[str] = []
    id: int = 0
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
