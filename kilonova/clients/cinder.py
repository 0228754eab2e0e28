"""Cinder: a server's volumes."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Volume(msgspec.Struct, kw_only=True):
    """A volume; ``size`` GiB. ``image`` is its image metadata when it is bootable; ``host`` None: none yet."""

    id: str
    name: str = ""
    status: str
    size: int
    bootable: bool = False
    multiattach: bool = False
    encrypted: bool = False
    availability_zone: str | None = None
    volume_type: str | None = None
    project_id: str = ""
    attachments: list[dict[str, Any]] = []
    image: dict[str, str] = {}
    host: str | None = ""


class Cinder(Protocol):
    """What we ask of Cinder, as the service (admin). ``project_id``: on whose behalf something is made."""

    def volume(self, volume_id: str) -> Volume:
        """VolumeNotFound."""
        ...

    def snapshot(self, snapshot_id: str) -> dict[str, Any]:
        """A snapshot as Cinder shows it; NotFound."""
        ...

    def create_volume(
        self,
        *,
        project_id: str,
        size: int,
        name: str,
        image_id: str | None = None,
        snapshot_id: str | None = None,
        source_id: str | None = None,
        volume_type: str | None = None,
        zone: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Volume:
        """Begin to make a volume owned by the project."""
        ...

    def find_volume(self, *, metadata: dict[str, str], project_id: str | None = None) -> Volume | None:
        """A volume that carries this metadata (how an interrupted create is found again)."""
        ...

    def wait_available(self, volume_id: str, *, seconds: float) -> Volume:
        """Wait until it is made; BuildAborted with the reason when it ends in error or takes too long."""
        ...

    def delete_volume(self, volume_id: str) -> None:
        """Not there is fine."""
        ...

    def reserve(self, volume_id: str, server: str) -> str:
        """Make an attachment record without a host (the volume becomes reserved); its id. BadRequest when the volume
        can't be attached in its state."""
        ...

    def connect(self, attachment_id: str, connector: dict[str, Any], *, device: str | None) -> dict[str, Any]:
        """Give the attachment its host; the connection's data."""
        ...

    def complete(self, attachment_id: str) -> None:
        """The volume is in use now."""
        ...

    def release(self, attachment_id: str) -> None:
        """Delete the attachment; not there is fine."""
        ...

    def attachments(self, *, server: str) -> list[dict[str, Any]]:
        """Attachment records of a server ({"id", "volume_id", "status", …})."""
        ...

    def zones(self) -> list[str]:
        """Names of availability zones."""
        ...

    def volume_types(self) -> list[dict[str, Any]]:
        """Volume types ({"id", "name"})."""
        ...
