"""What may be asked of the scheduler."""

from __future__ import annotations

from typing import ClassVar, Protocol

from kilonova.core.request import Decision, RequestSpec


class Scheduler(Protocol):
    """Chooses hosts and claims their room in Placement. Holds no database."""

    topic: ClassVar[str] = "scheduler"
    version: ClassVar[str] = "1.0"

    def select(self, *, request: RequestSpec, servers: list[str], alternates: int, claim: bool = True) -> Decision:
        """Hosts for ``servers`` (uuids, the consumers of the claims), all or none. NoValidHost carries ``why``."""
        ...

    def hosts_changed(self, *, cell: str, hosts: list[str]) -> None:
        """Fan-out: these hosts' records have changed (empty: any); look again before the next decision."""
        ...
