"""Host states in memory, brought up to date by the changes that conductors tell.

A decision needs no database: it asks the conductor for what has changed since the last time (usually nothing), and a
fan-out tells it that something has. What was promised since a host's last report is counted on top, and dropped when a
report of a later generation includes it. Placement holds the truth about room: a stale state costs a failed claim at the
worst.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from kilonova.contracts.conductor import Conductor
from kilonova.core.host import Aggregate, HostState

FRESH = 1.0


class HostStore:
    """All hosts by node uuid. Callers hold ``lock`` from reading to consuming."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._states: dict[str, HostState] = {}
        self._marker = ""
        self._seen = -1e9
        self.lock = threading.RLock()

    def invalidate(self) -> None:
        """Something has changed: ask before the next decision."""
        self._seen = -1e9

    def refresh(self) -> None:
        """Fetch changes unless the states are fresh."""
        with self.lock:
            if time.monotonic() - self._seen < FRESH:
                return
            self._seen = time.monotonic()
            answer = self._conductor.host_states(marker=self._marker)
            self._marker = answer.marker
            for state in answer.changed:
                self._states[state.node_uuid] = state
            living = set(answer.all)
            for gone in [uuid for uuid in self._states if uuid not in living]:
                del self._states[gone]

    def find(self, node_uuids: Iterable[str]) -> list[HostState]:
        """The states of these nodes that are known."""
        with self.lock:
            return [self._states[uuid] for uuid in node_uuids if uuid in self._states]

    def node_of(self, host: str | None, node: str | None) -> str | None:
        """The uuid of the one node that is meant; None when none or several are."""
        with self.lock:
            found = [
                s.node_uuid
                for s in self._states.values()
                if (host is None or s.host == host) and (node is None or s.node == node)
            ]
        return found[0] if len(found) == 1 else None

    def aggregates(self) -> list[Aggregate]:
        """Every aggregate that a known host is in."""
        with self.lock:
            return list({a.uuid: a for s in self._states.values() for a in s.aggregates}.values())
