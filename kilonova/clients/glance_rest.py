"""Glance over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests

from kilonova.base.errors import ImageNotFound, NeighbourUnavailable
from kilonova.clients.session import Neighbour
from kilonova.core.image import Image

PIECE = 1 << 20
PAGE = 1000

_OWN = frozenset(Image.__struct_fields__) | {
    "self",
    "file",
    "schema",
    "os_hidden",
    "os_hash_algo",
    "os_hash_value",
    "locations",
    "direct_url",
    "stores",
}


class RestGlance:
    """Implements ``Glance``."""

    def __init__(self, http: Neighbour) -> None:
        self._http = http

    def image(self, image_id: str, *, token: str = "") -> Image:
        answer = self._http.get(f"/v2/images/{image_id}", token=token)
        if answer.status_code in (400, 401, 403, 404):
            raise ImageNotFound(image=image_id)
        return image_of(self._expect(answer))

    def images(self, *, token: str = "", limit: int | None = None, marker: str | None = None) -> list[Image]:
        found: list[Image] = []
        while limit is None or len(found) < limit:
            params: dict[str, str | int] = {"limit": min(PAGE, limit - len(found)) if limit is not None else PAGE}
            if marker:
                params["marker"] = marker
            data = self._expect(self._http.get("/v2/images", params=params, token=token))
            found += [image_of(record) for record in data["images"]]
            if not data["images"] or "next" not in data:
                break
            marker = found[-1].id
        return found

    def download(self, image_id: str) -> Iterator[bytes]:
        with self._http.get(f"/v2/images/{image_id}/file", stream=True) as answer:
            if answer.status_code in (403, 404, 410):
                raise ImageNotFound(image=image_id)
            if answer.status_code == 204:
                return
            if answer.status_code != 200:
                raise self._http.unexpected(answer)
            try:
                yield from answer.iter_content(PIECE)
            except requests.exceptions.RequestException as error:
                reason = f"the download of image {image_id} broke off"
                raise NeighbourUnavailable(neighbour=self._http.name, reason=reason) from error

    def _expect(self, answer: requests.Response) -> Any:
        if answer.status_code != 200:
            raise self._http.unexpected(answer)
        return self._http.read(answer)


def image_of(record: dict[str, Any]) -> Image:
    """An image from Glance's form: what is no field of an image is a property."""
    return Image(
        id=record["id"],
        name=record.get("name") or "",
        status=record.get("status", ""),
        disk_format=record.get("disk_format"),
        container_format=record.get("container_format"),
        size=record.get("size") or 0,
        virtual_size=record.get("virtual_size"),
        min_disk=record.get("min_disk") or 0,
        min_ram=record.get("min_ram") or 0,
        checksum=record.get("checksum"),
        owner=record.get("owner"),
        visibility=record.get("visibility", "private"),
        protected=bool(record.get("protected")),
        created_at=record.get("created_at", ""),
        updated_at=record.get("updated_at", ""),
        properties={key: str(value) for key, value in record.items() if key not in _OWN and value is not None},
        tags=list(record.get("tags", [])),
        kernel_id=record.get("kernel_id"),
        ramdisk_id=record.get("ramdisk_id"),
    )
