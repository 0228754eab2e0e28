"""Glance in memory."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterator

from kilonova.base.errors import ImageNotFound
from kilonova.clients.fakes.orders import Orders, ordered
from kilonova.core.image import Image


class FakeGlance:
    """Implements ``Glance``."""

    def __init__(self) -> None:
        self.orders = Orders("glance")
        self.lock = threading.RLock()
        self.records: dict[str, Image] = {}
        self.contents: dict[str, bytes] = {}

    def add_image(
        self, name: str = "tiny", content: bytes = b"disk", *, disk_format: str = "raw", **properties: str
    ) -> Image:
        """A public image with this content."""
        image = Image(
            id=str(uuid.uuid4()),
            name=name,
            disk_format=disk_format,
            container_format="bare",
            size=len(content),
            checksum=hashlib.md5(content, usedforsecurity=False).hexdigest(),
            visibility="public",
            properties=properties,
        )
        self.records[image.id] = image
        self.contents[image.id] = content
        return image

    @ordered
    def image(self, image_id: str, *, token: str = "") -> Image:
        if image_id not in self.records:
            raise ImageNotFound(image=image_id)
        return self.records[image_id]

    @ordered
    def images(self, *, token: str = "", limit: int | None = None, marker: str | None = None) -> list[Image]:
        found = list(self.records.values())
        if marker is not None:
            found = found[[image.id for image in found].index(marker) + 1 :]
        return found[:limit]

    @ordered
    def download(self, image_id: str) -> Iterator[bytes]:
        if image_id not in self.contents:
            raise ImageNotFound(image=image_id)
        content = self.contents[image_id]
        return iter([content[: len(content) // 2], content[len(content) // 2 :]])
