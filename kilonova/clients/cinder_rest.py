"""Cinder over HTTP."""

from __future__ import annotations

import time
from typing import Any

import requests

from kilonova.base.errors import (
    BadRequest,
    BuildAborted,
    Conflict,
    Fault,
    NeighbourUnavailable,
    NotFound,
    OverQuota,
    VolumeNotFound,
)
from kilonova.clients.cinder import Volume
from kilonova.clients.session import Neighbour, text_of

VERSION = "3.48"
UNSCHEDULED_SECONDS = 60.0
"""A request to make a volume that no backend has taken up by then was lost on its way."""


class RestCinder:
    """Implements ``Cinder``.

    A volume is made by a login of ours to the project that shall own it: our user needs a role there, which one
    inherited role on the domain gives it for all projects.
    """

    def __init__(self, http: Neighbour) -> None:
        self._http = http

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: dict[str, str] | None = None,
        repeatable: bool | None = None,
        project_id: str | None = None,
    ) -> requests.Response:
        headers = {"OpenStack-API-Version": f"volume {VERSION}"}
        return self._http.send(
            method, path, body=body, params=params, headers=headers, repeatable=repeatable, project_id=project_id
        )

    def volume(self, volume_id: str) -> Volume:
        answer = self._send("GET", f"/volumes/{volume_id}")
        if answer.status_code in (400, 404):
            raise VolumeNotFound(volume=volume_id)
        return volume_of(self._expect(answer, 200)["volume"])

    def snapshot(self, snapshot_id: str) -> dict[str, Any]:
        answer = self._send("GET", f"/snapshots/{snapshot_id}")
        if answer.status_code in (400, 404):
            raise NotFound(f"Snapshot {snapshot_id} could not be found.")
        found: dict[str, Any] = self._expect(answer, 200)["snapshot"]
        return found

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
        wanted = {
            "size": size,
            "name": name,
            "imageRef": image_id,
            "snapshot_id": snapshot_id,
            "source_volid": source_id,
            "volume_type": volume_type,
            "availability_zone": zone,
            "metadata": metadata,
        }
        body = {"volume": {key: value for key, value in wanted.items() if value is not None}}
        answer = self._send("POST", "/volumes", body=body, project_id=project_id)
        if answer.status_code == 413:
            raise OverQuota(f"The volume service has no quota left: {text_of(answer)}")
        return volume_of(self._expect(answer, 202)["volume"])

    def find_volume(self, *, metadata: dict[str, str], project_id: str | None = None) -> Volume | None:
        pairs = ",".join(f"'{key}':'{value}'" for key, value in metadata.items())
        params = {"all_tenants": "1", "metadata": f"{{{pairs}}}"}
        if project_id is not None:
            params["project_id"] = project_id
        found = self._expect(self._send("GET", "/volumes/detail", params=params), 200)["volumes"]
        for record in found:
            carried = record.get("metadata", {})
            if record["status"] != "deleting" and all(carried.get(key) == value for key, value in metadata.items()):
                return volume_of(record)
        return None

    def wait_available(self, volume_id: str, *, seconds: float) -> Volume:
        begun, pause = time.monotonic(), 0.2
        deadline, lost = begun + seconds, begun + UNSCHEDULED_SECONDS
        while True:
            volume = self.volume(volume_id)
            if volume.status not in ("creating", "downloading"):
                break
            if volume.host is None and time.monotonic() > lost:
                reason = f"volume {volume_id} was given to no backend within {UNSCHEDULED_SECONDS:.0f} s"
                raise BuildAborted(f"Volume {volume_id} did not finish being created: {reason}", reason=reason)
            if time.monotonic() + pause > deadline:
                reason = f"volume {volume_id} was not made within {seconds:.0f} s, it is {volume.status}"
                raise BuildAborted(f"Volume {volume_id} did not finish being created: {reason}", reason=reason)
            time.sleep(pause)
            pause = min(pause * 1.5, 3.0)
        if volume.status.startswith("error"):
            reason = f"volume {volume_id} ended in status {volume.status}"
            raise BuildAborted(f"Volume {volume_id} did not finish being created: {reason}", reason=reason)
        return volume

    def delete_volume(self, volume_id: str) -> None:
        answer = self._send("DELETE", f"/volumes/{volume_id}")
        if answer.status_code not in (202, 204, 404):
            raise self._refusal(answer)

    def reserve(self, volume_id: str, server: str) -> str:
        body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": server, "connector": None}}
        answer = self._send("POST", "/attachments", body=body)
        if answer.status_code == 404:
            raise VolumeNotFound(volume=volume_id)
        if answer.status_code == 400:
            raise BadRequest(f"Invalid volume: {text_of(answer)}")
        return str(self._expect(answer, 200)["attachment"]["id"])

    def connect(self, attachment_id: str, connector: dict[str, Any], *, device: str | None) -> dict[str, Any]:
        body = {"attachment": {"connector": {**connector, "mountpoint": device} if device else connector}}
        answer = self._send("PUT", f"/attachments/{attachment_id}", body=body)
        if answer.status_code == 404:
            raise NotFound(f"Volume attachment {attachment_id} could not be found.")
        found: dict[str, Any] = self._expect(answer, 200)["attachment"]["connection_info"]
        return found

    def complete(self, attachment_id: str) -> None:
        answer = self._send("POST", f"/attachments/{attachment_id}/action", body={"os-complete": {}}, repeatable=True)
        if answer.status_code == 404:
            raise NotFound(f"Volume attachment {attachment_id} could not be found.")
        if answer.status_code not in (202, 204):
            raise self._refusal(answer)

    def release(self, attachment_id: str) -> None:
        answer = self._send("DELETE", f"/attachments/{attachment_id}")
        if answer.status_code not in (200, 202, 204, 404):
            raise self._refusal(answer)

    def attachments(self, *, server: str) -> list[dict[str, Any]]:
        params = {"all_tenants": "1", "instance_id": server}
        found: list[dict[str, Any]] = self._expect(self._send("GET", "/attachments/detail", params=params), 200)[
            "attachments"
        ]
        return found

    def zones(self) -> list[str]:
        records = self._expect(self._send("GET", "/os-availability-zone"), 200)["availabilityZoneInfo"]
        return [zone["zoneName"] for zone in records if zone["zoneState"]["available"]]

    def volume_types(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._expect(self._send("GET", "/types"), 200)["volume_types"]
        return found

    def _expect(self, answer: requests.Response, status: int) -> Any:
        if answer.status_code != status and not (status in (200, 202) and answer.status_code in (200, 202)):
            raise self._refusal(answer)
        return self._http.read(answer)

    def _refusal(self, answer: requests.Response) -> Fault:
        text = text_of(answer)
        if answer.status_code == 400:
            return BadRequest(f"Cinder refuses: {text}")
        if answer.status_code == 409:
            return Conflict(f"Cinder refuses: {text}")
        if answer.status_code == 403:
            return NeighbourUnavailable(neighbour="cinder", reason=f"it forbids the service user this: {text}")
        return self._http.unexpected(answer)


def volume_of(record: dict[str, Any]) -> Volume:
    """A volume from Cinder's form."""
    return Volume(
        id=record["id"],
        name=record.get("name") or "",
        status=record["status"],
        size=record["size"],
        bootable=str(record.get("bootable", "false")).lower() == "true",
        multiattach=bool(record.get("multiattach")),
        encrypted=bool(record.get("encrypted")),
        availability_zone=record.get("availability_zone"),
        volume_type=record.get("volume_type"),
        project_id=record.get("os-vol-tenant-attr:tenant_id", ""),
        attachments=list(record.get("attachments", [])),
        image={key: str(value) for key, value in (record.get("volume_image_metadata") or {}).items()},
        host=record.get("os-vol-host-attr:host", ""),
    )
