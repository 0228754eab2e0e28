"""What may be asked of a host. Hosts never ask for data: all they need is in the call.

Methods under "steps" are what flows name with ``at=``: the host gets them by ``perform`` as names, with the run's
state, from which each takes its arguments by their names; what it returns (a struct) becomes part of the state.
Each is an ``ensure_…``: run twice it ends in the same world.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec

from kilonova.base.flow import Work
from kilonova.core.device import BlockDevice
from kilonova.core.network import NetworkRequest, Nic
from kilonova.core.server import Guest


class Plugged(msgspec.Struct, kw_only=True):
    """Ports made and bound."""

    nics: list[Nic]


class Attached(msgspec.Struct, kw_only=True):
    """Block devices with their attachments and connections."""

    devices: list[BlockDevice]


class Spawned(msgspec.Struct, kw_only=True):
    """A guest that runs. ``power_state`` as in the API."""

    power_state: int
    root_device_name: str | None = None


class Power(msgspec.Struct, kw_only=True):
    """A guest's power state after a change."""

    power_state: int


class Nothing(msgspec.Struct):
    """A step that has no output."""


class Compute(Protocol):
    """One host (a nova-compute)."""

    topic: ClassVar[str] = "compute"
    version: ClassVar[str] = "1.0"

    def perform(self, *, work: Work) -> None:
        """Run steps in order, report each. Work that is under way already is not begun twice."""
        ...

    def forget(self, *, run: str) -> None:
        """The run was cancelled: stop working on it."""
        ...

    def console_output(self, *, server: str, length: int | None) -> str:
        """The last ``length`` lines of the guest's console (None: all)."""
        ...

    # What flows send to a host: a crash may send it again, so each looks before it acts.

    def plug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Plugged:
        """Make the ports asked for and bind them here. ``networks`` None: none at all."""
        ...

    def unplug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Nothing:
        """Delete the ports that were made for the server, unbind those of users."""
        ...

    def attach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Attached:
        """Make the volumes asked for, connect all to this host."""
        ...

    def detach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Nothing:
        """Disconnect from this host; volumes made for this server with delete_on_termination stay for the retry."""
        ...

    def spawn_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Spawned:
        """Stage the image, make the disks, start the guest."""
        ...

    def destroy_guest(self, *, guest: Guest, devices: list[BlockDevice]) -> Nothing:
        """Stop the guest, if there is one, and remove its disks; also stops a spawn under way."""
        ...

    def start_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Power:
        """Power on."""
        ...

    def stop_guest(self, *, guest: Guest) -> Power:
        """Ask the guest to shut down, power it off if it does not in time."""
        ...

    def reboot_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice], hard: bool = False) -> Power:
        """Reboot; a soft one that does not come off in time becomes a hard one."""
        ...
