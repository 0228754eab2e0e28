"""The host's cache of images: each is fetched once, checked, and appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kilonova.base import log
from kilonova.base.errors import BuildAborted, BuildFailed
from kilonova.clients.glance import Glance
from kilonova.core.image import Image

LOG = log.of(__name__)


class Staged(msgspec.Struct, frozen=True):
    """An image on the disk: ``format`` is what the image service says it is."""

    path: Path
    format: str


class _Facts(msgspec.Struct):
    format: str
    checksum: str | None = None


class Images:
    """Files ``_base/<sha1 of the id>`` under ``folder``, each beside a ``.json`` that says its format."""

    def __init__(self, folder: Path, glance: Glance) -> None:
        self._base, self._glance = folder / "_base", glance
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def path(self, image_id: str) -> Path:
        """Where an image is when it is there."""
        return self._base / hashlib.sha1(image_id.encode(), usedforsecurity=False).hexdigest()

    def ensure(self, image_id: str, *, server: str, check: Callable[[], None] = lambda: None) -> Staged:
        """Fetch the image unless it is there. ``check`` raises when nobody wants it any more.

        BuildAborted when no host could use the image, BuildFailed when this one could not get it.
        """
        path = self.path(image_id)
        try:
            staged = self._staged(path)
            if staged is not None:
                return staged
            self._base.mkdir(parents=True, exist_ok=True)
            with self._only_one(path):
                return self._staged(path) or self._fetch(image_id, path, server=server, check=check)
        except OSError as error:
            reason = f"image {image_id} cannot be stored: {error.strerror}"
            raise BuildFailed(server=server, reason=reason) from error

    def _staged(self, path: Path) -> Staged | None:
        try:
            facts = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=_Facts)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return Staged(path, facts.format) if path.exists() else None

    @contextlib.contextmanager
    def _only_one(self, path: Path) -> Iterator[None]:
        """One fetches, the others wait: threads of this process, and other processes with the same folder."""
        with self._lock:
            lock = self._locks.setdefault(path.name, threading.Lock())
        with lock, path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _fetch(self, image_id: str, path: Path, *, server: str, check: Callable[[], None]) -> Staged:
        image = self._glance.image(image_id)
        if image.status != "active":
            raise BuildAborted(server=server, reason=f"image {image_id} is {image.status}, not active")
        fresh = path.with_suffix(f".part{os.getpid()}")
        digest = hashlib.md5(usedforsecurity=False)
        size = 0
        try:
            with fresh.open("wb") as file:
                for piece in self._glance.download(image_id):
                    check()
                    digest.update(piece)
                    file.write(piece)
                    size += len(piece)
            self._check(image, size, digest.hexdigest(), server)
            facts = _Facts(image.disk_format or "raw", image.checksum)
            path.with_suffix(".json").write_bytes(msgspec.json.encode(facts))
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        LOG.info("image %s is in the cache, %d bytes", image_id, size)
        return Staged(path, facts.format)

    def _check(self, image: Image, size: int, digest: str, server: str) -> None:
        if image.size and size != image.size:
            reason = f"image {image.id} came with {size} bytes instead of {image.size}"
            raise BuildFailed(server=server, reason=reason)
        if image.checksum and digest != image.checksum:
            raise BuildFailed(server=server, reason=f"image {image.id} came with a wrong checksum")
