"""What a hypervisor driver may be able to do, one small Protocol per role.

A driver is an object that implements ``Driver`` and any of the other roles; ``isinstance(driver, Logs)`` asks.
All methods are idempotent: ensure_guest on a running guest, or remove_guest without one, changes nothing. Power states
are those of the API: 0 pending, 1 running, 3 paused, 4 shut down, 6 crashed, 7 suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from kilonova.core.device import BlockDevice
from kilonova.core.host import Node
from kilonova.core.network import Nic
from kilonova.core.server import Guest

NOSTATE, RUNNING, PAUSED, SHUTDOWN, CRASHED, SUSPENDED = 0, 1, 3, 4, 6, 7


class ConfigFile(msgspec.Struct, frozen=True):
    """A file of a config drive."""

    path: str
    content: bytes


class GuestPlan(msgspec.Struct, kw_only=True):
    """Everything that a guest is made of.

    ``image``: the file of the cached image (a driver that holds no disks ignores it), None when volume-backed.
    ``config_drive``: files for a drive labelled config-2, None when there is none.
    """

    guest: Guest
    nics: list[Nic]
    devices: list[BlockDevice]
    image: Path | None = None
    image_format: str = "raw"
    config_drive: list[ConfigFile] | None = None
    kernel: Path | None = None
    ramdisk: Path | None = None


@runtime_checkable
class Driver(Protocol):
    """What every driver does: tell of its node, hold guests."""

    hypervisor_type: str

    def start(self) -> None:
        """Connect; raise NotSupported with the reason when the hypervisor cannot be used here."""

    def close(self) -> None:
        """Let go of everything; guests go on."""

    def node(self) -> Node:
        """The node as it is now: capacity, use by the guests present, inventory, traits."""

    def ensure_guest(self, plan: GuestPlan) -> int:
        """Make the guest and start it; returns its power state. BuildFailed or BuildAborted when it can't be."""

    def remove_guest(self, server: str, *, keep_disks: bool = False) -> None:
        """Stop and forget the guest with its disks."""

    def guests(self) -> dict[str, int]:
        """Power states by server uuid of all guests that are ours."""


@runtime_checkable
class Powers(Protocol):
    """Power on and off."""

    def power_on(self, plan: GuestPlan) -> int:
        """Start a stopped guest."""

    def power_off(self, server: str, *, grace: float) -> int:
        """Ask to shut down for ``grace`` seconds (0: not at all), then power off."""

    def reboot(self, plan: GuestPlan, *, hard: bool, grace: float) -> int:
        """Reboot; hard: power off, make it anew from the plan, power on."""


@runtime_checkable
class Logs(Protocol):
    """Console output."""

    def console_output(self, server: str) -> bytes:
        """All that is kept of the guest's console."""


@runtime_checkable
class StagesImages(Protocol):
    """Drivers whose guests boot from image files of the host."""

    def image_folder(self) -> Path:
        """Where the cache of images lives."""


@runtime_checkable
class Watches(Protocol):
    """Tells of guests that change their power state of themselves."""

    def watch(self, changed: Callable[[str, int], None]) -> None:
        """Call ``changed`` with the server's uuid and its new power state, from any thread."""


@runtime_checkable
class Interrupts(Protocol):
    """Can give up a guest that is being made."""

    def interrupt(self, server: str) -> None:
        """Make an ``ensure_guest`` of this server that is under way fail soon with BuildAborted; none is fine."""


class Hypervisors(Protocol):
    """A source of drivers: one for each node that this process serves."""

    def drivers(self) -> Iterator[tuple[str, Driver]]:
        """(host name, driver) pairs."""
