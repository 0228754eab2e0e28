"""Host states in memory, brought up to date by the changes that conductors tell.

A decision needs no database: it asks the conductor for what has changed since the last time (usually nothing), and a
fan-out tells it that something has. What was promised since is counted on top of the hosts' reports, until a report
includes it or it is too old to be still under way. Placement holds the truth about room: a stale state costs a failed
claim at the worst.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from kilonova.base import log
from kilonova.base.errors import Fault
from kilonova.contracts.conductor import Conductor
from kilonova.core.host import Aggregate, HostState

LOG = log.of(__name__)

FRESH = 1.0
SOON = 0.5
"""Seconds between two looks: while nothing was told, and when something was (builds tell of changes all the time)."""
PROMISE = 60.0
"""Seconds until a promise that no report confirmed is forgotten."""


class Promise(msgspec.Struct, kw_only=True):
    """Room promised to a server. ``confirmed``: the host's generation when its state first listed the server."""

    ram_mb: int
    disk_mb: int
    vcpus: int
    at: float
    confirmed: int | None = None


class HostStore:
    """All hosts by node uuid. Callers hold ``lock`` from reading to promising."""

    def __init__(self, conductor: Conductor, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._conductor, self._clock = conductor, clock
        self._states: dict[str, HostState] = {}
        self._promises: dict[str, dict[str, Promise]] = {}
        self._strangers: set[str] = set()
        self._marker = ""
        self._seen = float("-inf")
        self._told = True
        self._asking = threading.Lock()
        self.lock = threading.RLock()

    def invalidate(self) -> None:
        """Something has changed: ask before one of the next decisions."""
        self._told = True

    def refresh(self, *, now: bool = False) -> None:
        """Fetch changes unless the states are fresh (``now``: also then). Without an answer the old states serve; they
        serve too while another decision waits for the answer."""
        if not self._asking.acquire(blocking=now or not self._states):
            return
        age = self._clock() - self._seen
        try:
            if not now and age < (SOON if self._told else FRESH):
                return
            self._told = False
            self._seen = self._clock()
            self._fetch()
        except Fault as error:
            if not self._states:
                self._seen = float("-inf")
                raise
            LOG.warning("host states are %.1f s old, no conductor tells newer ones: %s", age, error.message)
        finally:
            self._asking.release()

    def _fetch(self) -> None:
        answer = self._conductor.host_states(marker=self._marker)
        if any(uuid not in self._states for uuid in set(answer.all) - {s.node_uuid for s in answer.changed}):
            # A host that was silent when all were read lives again, which is no change of its record.
            answer = self._conductor.host_states(marker="")
        with self.lock:
            self._marker = answer.marker
            for state in answer.changed:
                self._states[state.node_uuid] = state
                self._keep_promises(state)
            living = set(answer.all)
            for uuid, state in self._states.items():
                state.up = uuid in living

    def _keep_promises(self, state: HostState) -> None:
        """Count what was promised on top of a fresh report, and forget what the report includes."""
        kept = self._promises.get(state.node_uuid, {})
        reported = set(state.servers)
        for server, promise in list(kept.items()):
            if promise.confirmed is None and server in reported:
                promise.confirmed = state.generation
            included = promise.confirmed is not None and state.generation > promise.confirmed
            if included or self._clock() - promise.at > PROMISE:
                del kept[server]
            else:
                _count(state, server, promise, sign=1, listed=server in reported)

    def promise(self, node_uuid: str, server: str, *, amounts: dict[str, int]) -> None:
        """Count a server as if it were on the node, until the node's reports say so."""
        with self.lock:
            state = self._states[node_uuid]
            promise = Promise(
                ram_mb=amounts.get("MEMORY_MB", 0),
                disk_mb=amounts.get("DISK_GB", 0) * 1024,
                vcpus=amounts.get("VCPU", 0),
                at=self._clock(),
            )
            self._promises.setdefault(node_uuid, {})[server] = promise
            _count(state, server, promise, sign=1, listed=False)

    def take_back(self, node_uuid: str, server: str) -> None:
        """A promise was not kept."""
        with self.lock:
            promise = self._promises.get(node_uuid, {}).pop(server, None)
            if promise is not None:
                listed = promise.confirmed is not None
                _count(self._states[node_uuid], server, promise, sign=-1, listed=listed)

    def meet(self, node_uuids: Iterable[str]) -> None:
        """Nodes that are new are asked for, once. Not to be called with ``lock`` held."""
        with self.lock:
            unknown = {uuid for uuid in node_uuids if uuid not in self._states} - self._strangers
        if unknown:
            self.refresh(now=True)
            with self.lock:
                self._strangers |= {uuid for uuid in unknown if uuid not in self._states}

    def find(self, node_uuids: Iterable[str]) -> list[HostState]:
        """The states of these nodes that are known."""
        with self.lock:
            return [self._states[uuid] for uuid in node_uuids if uuid in self._states]

    def nodes_of(self, host: str | None, node: str | None) -> list[str]:
        """The uuids of the nodes of that host, of that name."""
        with self.lock:
            return [
                s.node_uuid
                for s in self._states.values()
                if (host is None or s.host == host) and (node is None or s.node == node)
            ]

    def hosts_of(self, servers: Iterable[str]) -> dict[str, str]:
        """Where these servers are, or are promised to be, as far as known: server -> host."""
        wanted = set(servers)
        with self.lock:
            return {server: s.host for s in self._states.values() for server in wanted.intersection(s.servers)}

    def aggregates(self) -> list[Aggregate]:
        """Every aggregate that a known host is in."""
        with self.lock:
            return list({a.uuid: a for s in self._states.values() for a in s.aggregates}.values())


def _count(state: HostState, server: str, promise: Promise, *, sign: int, listed: bool) -> None:
    state.free_ram_mb -= sign * promise.ram_mb
    state.free_disk_mb -= sign * promise.disk_mb
    state.vcpus_used += sign * promise.vcpus
    state.num_io_ops += sign
    if listed:
        return
    state.num_instances += sign
    state.servers = [*state.servers, server] if sign > 0 else [s for s in state.servers if s != server]
