"""Cinder in memory: volumes with their states, attachments, snapshots."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import msgspec

from kilonova.base.errors import BadRequest, BuildAborted, NotFound, VolumeNotFound
from kilonova.clients.cinder import Volume
from kilonova.clients.fakes.orders import Orders, ordered


class FakeCinder:
    """Implements ``Cinder``. ``polls``: how often a new volume is looked at before it is made; images in ``broken``
    make volumes that end in error."""

    def __init__(self) -> None:
        self.orders = Orders("cinder")
        self.lock = threading.RLock()
        self.volumes: dict[str, Volume] = {}
        self.metadata: dict[str, dict[str, str]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.broken: set[str] = set()

    def add_volume(self, *, size: int = 1, project_id: str = "", **more: Any) -> Volume:
        """A volume that is there already."""
        volume = Volume(id=str(uuid.uuid4()), status="available", size=size, project_id=project_id, **more)
        self.volumes[volume.id] = volume
        return volume

    def add_snapshot(self, *, size: int = 1) -> str:
        """A snapshot's id."""
        key = str(uuid.uuid4())
        self.snapshots[key] = {"id": key, "status": "available", "size": size}
        return key

    @ordered
    def volume(self, volume_id: str) -> Volume:
        return msgspec.structs.replace(self._volume(volume_id))

    def _volume(self, volume_id: str) -> Volume:
        if volume_id not in self.volumes:
            raise VolumeNotFound(volume=volume_id)
        return self.volumes[volume_id]

    @ordered
    def snapshot(self, snapshot_id: str) -> dict[str, Any]:
        if snapshot_id not in self.snapshots:
            raise NotFound(f"Snapshot {snapshot_id} could not be found.")
        return dict(self.snapshots[snapshot_id])

    @ordered
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
        if snapshot_id is not None and snapshot_id not in self.snapshots:
            raise BadRequest(f"Cinder refuses: Snapshot {snapshot_id} could not be found.")
        if source_id is not None:
            self._volume(source_id)
        volume = Volume(
            id=str(uuid.uuid4()),
            name=name,
            status="error" if image_id in self.broken else "creating",
            size=size,
            bootable=image_id is not None or snapshot_id is not None,
            project_id=project_id,
            volume_type=volume_type,
            availability_zone=zone,
            image={"image_id": image_id} if image_id else {},
        )
        self.volumes[volume.id] = volume
        self.metadata[volume.id] = dict(metadata or {})
        return msgspec.structs.replace(volume)

    @ordered
    def find_volume(self, *, metadata: dict[str, str], project_id: str | None = None) -> Volume | None:
        for volume in self.volumes.values():
            carried = self.metadata.get(volume.id, {})
            if project_id in (None, volume.project_id) and metadata.items() <= carried.items():
                return msgspec.structs.replace(volume)
        return None

    @ordered
    def wait_available(self, volume_id: str, *, seconds: float) -> Volume:
        volume = self._volume(volume_id)
        if volume.status == "creating":
            volume.status = "available"
        if volume.status.startswith("error"):
            reason = f"volume {volume_id} ended in status {volume.status}"
            raise BuildAborted(f"Volume {volume_id} did not finish being created: {reason}", reason=reason)
        return msgspec.structs.replace(volume)

    @ordered
    def delete_volume(self, volume_id: str) -> None:
        volume = self.volumes.get(volume_id)
        if volume is None:
            return
        if any(record["volume_id"] == volume_id for record in self.records.values()):
            raise BadRequest(f"Cinder refuses: Volume {volume_id} is {volume.status}")
        del self.volumes[volume_id]

    @ordered
    def reserve(self, volume_id: str, server: str) -> str:
        volume = self._volume(volume_id)
        mine = any(r["volume_id"] == volume_id and r["instance"] == server for r in self.records.values())
        if (
            not mine
            and volume.status not in ("available", "downloading")
            and not (volume.multiattach and volume.status in ("in-use", "reserved", "attaching"))
        ):
            raise BadRequest(f"Invalid volume: Volume {volume_id} status must be available, but is {volume.status}")
        key = str(uuid.uuid4())
        self.records[key] = {"id": key, "volume_id": volume_id, "instance": server, "status": "reserved"}
        volume.status = "reserved"
        return key

    @ordered
    def connect(self, attachment_id: str, connector: dict[str, Any], *, device: str | None) -> dict[str, Any]:
        record = self._attachment(attachment_id)
        record |= {"status": "attaching", "host": connector["host"], "mountpoint": device}
        self.volumes[record["volume_id"]].status = "attaching"
        path = f"/volumes/{record['volume_id']}"
        return {"driver_volume_type": "local", "data": {"device_path": path, "access_mode": "rw"}}

    @ordered
    def complete(self, attachment_id: str) -> None:
        record = self._attachment(attachment_id)
        record["status"] = "attached"
        self._volume(record["volume_id"]).status = "in-use"

    @ordered
    def release(self, attachment_id: str) -> None:
        record = self.records.pop(attachment_id, None)
        if record is None:
            return
        volume = self.volumes[record["volume_id"]]
        others = [r["status"] for r in self.records.values() if r["volume_id"] == volume.id]
        volume.status = "in-use" if "attached" in others else "reserved" if others else "available"

    def _attachment(self, attachment_id: str) -> dict[str, Any]:
        if attachment_id not in self.records:
            raise NotFound(f"Volume attachment {attachment_id} could not be found.")
        return self.records[attachment_id]

    @ordered
    def attachments(self, *, server: str) -> list[dict[str, Any]]:
        return [dict(record) for record in self.records.values() if record["instance"] == server]

    @ordered
    def zones(self) -> list[str]:
        return ["nova"]

    @ordered
    def volume_types(self) -> list[dict[str, Any]]:
        return [{"id": "local-type", "name": "local"}]
