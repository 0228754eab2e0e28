"""The disk of a simulated host: a file for each guest, so that guests outlive the process, even a killed one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from kilonova.base import log

LOG = log.of(__name__)


class Domain(msgspec.Struct, kw_only=True):
    """A simulated guest. ``starts``: when it was started, in seconds since the epoch. ``made`` is False while it is
    being made: that is how one looks whose making was cut off."""

    uuid: str
    name: str
    hostname: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    power: int = 0
    made: bool = False
    starts: list[float] = []
    addresses: list[str] = []
    volumes: list[str] = []
    metadata: dict[str, str] = {}


class Disk:
    """The folder of one host's guests; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self) -> dict[str, Domain]:
        """All guests by uuid."""
        found: dict[str, Domain] = {}
        if self._folder is None or not self._folder.is_dir():
            return found
        for path in self._folder.glob("*.json"):
            try:
                domain = msgspec.json.decode(path.read_bytes(), type=Domain)
            except msgspec.MsgspecError as error:
                LOG.warning("%s holds no guest: %s", path, error)
                continue
            found[domain.uuid] = domain
        return found

    def write(self, domain: Domain) -> None:
        """Whole or not at all."""
        if self._folder is None:
            return
        path = self._folder / f"{domain.uuid}.json"
        fresh = path.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(domain))
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(msgspec.json.encode(domain))
        fresh.replace(path)

    def remove(self, server: str) -> None:
        """Gone; nothing there is fine."""
        if self._folder is not None:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / f"{server}.json").unlink()
