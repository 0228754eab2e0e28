"""The decision, pure: which of the hosts that Placement named may take a server, and in which order to try them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from kilonova.base.errors import BadRequest
from kilonova.core.host import HostState
from kilonova.core.request import Refusal, RequestSpec
from kilonova.scheduler.filters import FILTERS
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.options import FilterOptions
from kilonova.scheduler.weighers import Scale

REASONS_KEPT = 20
WEIGHTS_KEPT = 10

Weighed = tuple[str, float, dict[str, float]]
"""A host's name, its weight, and the parts of it."""


class Order(msgspec.Struct, kw_only=True):
    """Hosts, best first, with what the filters said and the best weights."""

    hosts: list[HostState]
    refusals: list[Refusal]
    weights: list[Weighed] = []


def narrow(
    hosts: Sequence[HostState], request: RequestSpec, filters: Sequence[str]
) -> tuple[list[HostState], list[Refusal]]:
    """The hosts that pass, and each filter's refusals in the order asked. A forced host is not filtered."""
    kept = list(hosts)
    refusals = []
    for name, refuse in _steps(request, filters):
        reasons = [(host, refuse(host, request)) for host in kept]
        refused = [(host.host, reason) for host, reason in reasons if reason is not None]
        kept = [host for host, reason in reasons if reason is None]
        if refused or name in filters:
            refusals.append(Refusal(filter=name, refused=len(refused), left=len(kept), reasons=refused[:REASONS_KEPT]))
        if not kept:
            break
    return kept, refusals


def unknown_filters(filters: Sequence[str]) -> list[str]:
    """Names that no filter has."""
    return [name for name in filters if _plain(name) not in FILTERS]


def _plain(name: str) -> str:
    return name.rpartition(".")[2]


def _steps(request: RequestSpec, filters: Sequence[str]) -> list[tuple[str, Filter]]:
    steps: list[tuple[str, Filter]] = [("Destination", _destination)]
    if request.force_host or request.force_node:
        return steps
    unknown = unknown_filters(filters)
    if unknown:
        raise BadRequest(f"enabled_filters names unknown filters: {', '.join(unknown)}")
    return steps + [(name, FILTERS[_plain(name)]) for name in filters]


def _destination(host: HostState, request: RequestSpec) -> str | None:
    wanted_host = request.force_host or request.requested_host
    wanted_node = request.force_node or request.requested_node
    if wanted_host and host.host != wanted_host:
        return f"the request asks for host {wanted_host}"
    if wanted_node and host.node != wanted_node:
        return f"the request asks for node {wanted_node}"
    if host.host in request.ignore_hosts:
        return "the request excludes it"
    return None


class Field:
    """The hosts that may take the servers of one request, and their weights, while one server after another is placed.

    A server changes the host that it is placed on, and in a server group what the others may take: only that is
    looked at again.
    """

    def __init__(self, hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions) -> None:
        self._all, self._request, self._options = sorted(hosts, key=lambda h: h.node_uuid), request, options
        self._look()

    def _look(self) -> None:
        self.hosts, self.refusals = narrow(self._all, self._request, self._options.enabled_filters)
        self._scale = Scale(self.hosts, self._request, self._options)
        self._totals = self._scale.totals(len(self.hosts))

    def changed(self, host: HostState) -> None:
        """A server was placed on this host."""
        if self._request.group is not None:
            self._look()
            return
        index = next(i for i, known in enumerate(self.hosts) if known is host)
        kept, refusals = narrow([host], self._request, self._options.enabled_filters)
        if kept:
            self._scale.update(index, host)
        else:
            del self.hosts[index]
            self._scale.remove(index)
            self._add(refusals)
        self._totals = self._scale.totals(len(self.hosts))

    def _add(self, more: Sequence[Refusal]) -> None:
        by_name = {refusal.filter: refusal for refusal in self.refusals}
        for refusal in more:
            known = by_name.get(refusal.filter)
            if known is None:
                self.refusals.append(refusal)
                continue
            known.refused += refusal.refused
            known.left -= refusal.refused
            known.reasons = [*known.reasons, *refusal.reasons][:REASONS_KEPT]

    def ranked(self, seed: str) -> list[HostState]:
        """Best first. Equals come in an order drawn from ``seed``, so that they share the load and the decision can be
        repeated."""
        return [self.hosts[i] for i in self._order(seed)]

    def _order(self, seed: str) -> list[int]:
        draw, count = random.Random(seed), len(self.hosts)
        lots = [draw.random() for _ in range(count)] if self._options.shuffle_best_same_weighed_hosts else [0.0] * count
        order = sorted(range(count), key=lambda i: (-self._totals[i], lots[i]))
        best = min(self._options.host_subset_size, len(order))
        if best > 1:
            order.insert(0, order.pop(draw.randrange(best)))
        return order

    def weights(self, seed: str) -> list[Weighed]:
        """The weights of the best, for people."""
        best = self._order(seed)[:WEIGHTS_KEPT]
        return [(self.hosts[i].host, self._totals[i], self._scale.parts(i)) for i in best]


def order(hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions, *, seed: str) -> Order:
    """Filter, weigh, sort: the decision for one server."""
    field = Field(hosts, request, options)
    return Order(hosts=field.ranked(seed), refusals=field.refusals, weights=field.weights(seed))


def brief(refusals: Sequence[Refusal], *, candidates: int, lacking: Sequence[str]) -> str:
    """The reason for users: how many hosts each thing refused, without naming any host."""
    if lacking:
        return f"No host has what is asked for: {'; '.join(lacking)}."
    if candidates == 0:
        return "There are not enough hosts available."
    counts = [f"{r.filter} refused {r.refused}" for r in refusals if r.refused]
    return f"Of {candidates} hosts with room, {', '.join(counts) or 'none could be claimed'}."
