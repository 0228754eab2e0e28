"""What may be asked of a conductor: by the API (drive a run), by hosts (reports), by the scheduler (host states)."""

from __future__ import annotations

import datetime
from typing import ClassVar, Protocol

import msgspec

from kilonova.base.flow import Report
from kilonova.core.host import HostState, Node
from kilonova.core.network import Nic


class Joined(msgspec.Struct, kw_only=True):
    """For a host that joins: its service, the guests it should hold (uuid -> vm_state), whether it is off."""

    service_uuid: str
    cell: str
    expected: dict[str, str] = {}
    disabled: bool = False


class Beat(msgspec.Struct, kw_only=True):
    """The answer to a heartbeat."""

    known: bool = True
    disabled: bool = False
    forced_down: bool = False


class HostStates(msgspec.Struct, kw_only=True):
    """Changed host states; ``marker`` is to be given back next time; ``all`` names every living node uuid."""

    changed: list[HostState]
    all: list[str]
    marker: str


class Conductor(Protocol):
    """Drives flows; the only one that reads and writes databases for hosts and the scheduler."""

    topic: ClassVar[str] = "conductor"
    version: ClassVar[str] = "1.0"

    def wake(self, *, run: str, where: str) -> None:
        """Drive a run now. ``where``: the uuid of the cell whose database holds it, "" the API database."""
        ...

    def report(self, *, report: Report) -> bool:
        """A host reports a step. False: the run does not wait for it any more, stop working on it."""
        ...

    def join(self, *, host: str, binary: str, version: int, node: Node | None) -> Joined:
        """A service has started: its record is made or found, its node recorded, its cell mapped."""
        ...

    def beat(self, *, host: str, binary: str) -> Beat:
        """A service is alive."""
        ...

    def leave(self, *, host: str, binary: str) -> None:
        """A service stops in good order."""
        ...

    def record_node(self, *, node: Node) -> None:
        """A host reports its node: capacity, use, statistics."""
        ...

    def record_power(self, *, server: str, host: str, power_state: int, at: datetime.datetime) -> None:
        """A host saw a guest's power state change of itself."""
        ...

    def record_nics(self, *, server: str, nics: list[Nic]) -> None:
        """A host saw a guest's ports change."""
        ...

    def refresh_nics(self, *, servers: list[str]) -> None:
        """The network service says that these servers' ports have changed: read them afresh."""
        ...

    def host_states(self, *, marker: str) -> HostStates:
        """Super conductor: host states changed since ``marker`` ("" for all), over all cells that answer."""
        ...

    def live_runs(self, *, host: str) -> list[str]:
        """Ids of the runs that wait for this host; a returning host gets them sent again."""
        ...
