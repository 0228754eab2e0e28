"""Glance: images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kilonova.core.image import Image


class Glance(Protocol):
    """What we ask of Glance. ``token``: a user's, so that its visibility rules hold; "" asks as the service."""

    def image(self, image_id: str, *, token: str = "") -> Image:
        """ImageNotFound (also for ids that are no ids)."""
        ...

    def images(self, *, token: str = "", limit: int | None = None, marker: str | None = None) -> list[Image]:
        """The images that the token sees."""
        ...

    def download(self, image_id: str) -> Iterator[bytes]:
        """The image's bytes in pieces; NeighbourUnavailable, ImageNotFound."""
        ...
