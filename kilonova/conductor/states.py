"""Host states for the scheduler, gathered over the cells: what changed since its marker, with the hosts' aggregates."""

from __future__ import annotations

import msgspec

from kilonova.base.engine import utcnow
from kilonova.contracts.conductor import HostStates
from kilonova.core.host import Aggregate, HostState
from kilonova.store import aggregates, nodes
from kilonova.store.cells import CELL0_UUID, Cells
from kilonova.store.session import Tx


class StateReader:
    """Reads all cells that answer. A cell that is down keeps no scheduler waiting: its hosts are just not living.

    The marker holds one marker per cell, and what the aggregates looked like: a change of theirs changes all hosts.
    """

    def __init__(self, cells: Cells, *, down_time: float) -> None:
        self._cells, self.down_time = cells, down_time

    def read(self, marker: str) -> HostStates:
        """See the contract ``Conductor.host_states``."""
        since: dict[str, str] = msgspec.json.decode(marker, type=dict[str, str]) if marker else {}
        with self._cells.api.read() as tx:
            known = aggregates.listing(tx)
        version = _version_of(known)
        if since.get("aggregates") != version:
            since = {}
        found = self._gather(since)
        fresh = {"aggregates": version}
        changed: list[HostState] = []
        living: list[str] = []
        for cell, states in found.items():
            fresh[cell] = states.marker
            changed += states.changed
            living += states.all
        by_host = _by_host(known)
        for state in changed:
            state.aggregates = by_host.get(state.host, [])
        return HostStates(changed=changed, all=living, marker=msgspec.json.encode(fresh).decode())

    def _gather(self, since: dict[str, str]) -> dict[str, nodes.States]:
        wanted = [m.uuid for m in self._cells.all() if m.uuid != CELL0_UUID]
        found: dict[str, nodes.States] = {}
        for cell in wanted:
            marker = since.get(cell, "")

            def read(tx: Tx, cell: str = cell, marker: str = marker) -> nodes.States:
                return nodes.states(tx, marker, cell=cell, down_time=self.down_time)

            found.update(self._cells.gather(read, cells=[cell]).found)
        return found


def _version_of(known: list[Aggregate]) -> str:
    """Changes whenever anything about an aggregate does."""
    newest = max((a.updated_at or a.created_at or utcnow() for a in known), default=None)
    return f"{len(known)}/{sum(len(a.hosts) for a in known)}/{newest.isoformat() if newest else ''}"


def _by_host(known: list[Aggregate]) -> dict[str, list[Aggregate]]:
    found: dict[str, list[Aggregate]] = {}
    for aggregate in known:
        for host in aggregate.hosts:
            found.setdefault(host, []).append(aggregate)
    return found
