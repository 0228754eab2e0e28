"""The scheduler's service: the loop that obeys ``selection`` and claims in Placement."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from kilonova.base import log
from kilonova.base.errors import NoValidHost
from kilonova.clients.placement import Candidates, Placement
from kilonova.core.host import HostState
from kilonova.core.request import Decision, RequestSpec, Selection, Why
from kilonova.scheduler import lacking, selection
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.options import FilterOptions, SchedulerOptions
from kilonova.scheduler.query import Query, build

LOG = log.of(__name__)


class SchedulerService:
    """Implements the contract ``Scheduler``."""

    def __init__(
        self,
        hosts: HostStore,
        placement: Placement,
        *,
        options: SchedulerOptions,
        filters: FilterOptions,
        default_zone: str = "nova",
    ) -> None:
        self._hosts, self._placement = hosts, placement
        self._options, self._filters, self._default_zone = options, filters, default_zone

    def hosts_changed(self, *, cell: str, hosts: list[str]) -> None:
        """Look again before the next decision."""
        self._hosts.invalidate()

    def select(self, *, request: RequestSpec, servers: list[str], alternates: int, claim: bool = True) -> Decision:
        """See the contract."""
        started = time.monotonic()
        why = Why(seed=request.request_id or servers[0])
        self._hosts.refresh()
        candidates = self._candidates(request, why)
        claimed: list[str] = []
        try:
            selections = self._place_all(
                request, servers, candidates, why=why, alternates=alternates, claimed=claimed, claim=claim
            )
        except NoValidHost:
            for server in claimed:
                self._placement.release(server)
            raise
        why.seconds = round(time.monotonic() - started, 4)
        return Decision(selections=selections, why=why)

    def _candidates(self, request: RequestSpec, why: Why) -> Candidates:
        node = None
        host, name = request.force_host or request.requested_host, request.force_node or request.requested_node
        if host or name:
            node = self._hosts.node_of(host, name)
            if node is None:
                raise self._refuse(why, f"No such host - host: {host} node: {name}.")
        query = build(
            request,
            self._hosts.aggregates(),
            limit=self._options.max_placement_results,
            node_uuid=node,
            default_zone=self._default_zone,
        )
        why.query = "&".join(f"{k}={v}" for k, v in query.parameters())
        found = self._placement.candidates(query.parameters())
        if not found.requests:
            why.lacking = lacking.explain(query, self._has_any)
            raise self._refuse(why, selection.brief([], candidates=0, lacking=why.lacking))
        return found

    def _has_any(self, query: Query) -> bool:
        return bool(self._placement.candidates(query.parameters()).requests)

    def _place_all(
        self,
        request: RequestSpec,
        servers: list[str],
        candidates: Candidates,
        *,
        why: Why,
        alternates: int,
        claimed: list[str],
        claim: bool,
    ) -> list[list[Selection]]:
        """One after another: each sees what the ones before have taken."""
        roots = {summary.get("root_provider_uuid") or uuid: None for uuid, summary in candidates.summaries.items()}
        placed = []
        for index, server in enumerate(servers):
            with self._hosts.lock:
                known = self._hosts.find(roots)
                why.candidates = len(known)
                ranked = selection.order(known, request, self._filters, seed=f"{why.seed}/{index}")
            if index == 0 or not ranked.hosts:
                why.filters, why.weights = ranked.refusals, ranked.weights
            winner = self._take_first(request, server, ranked.hosts, candidates=candidates, why=why, claim=claim)
            if winner is None:
                raise self._refuse(why, selection.brief(ranked.refusals, candidates=len(known), lacking=[]))
            claimed.append(server)
            why.chosen.append(winner.host)
            others = [h for h in ranked.hosts if h.host != winner.host and h.cell == winner.cell]
            rest = [self._selection(h, candidates) for h in others[:alternates]]
            placed.append([winner, *(r for r in rest if r is not None)])
        return placed

    def _take_first(
        self,
        request: RequestSpec,
        server: str,
        hosts: list[HostState],
        *,
        candidates: Candidates,
        why: Why,
        claim: bool,
    ) -> Selection | None:
        for host in hosts:
            for offer in selection.chosen_request(candidates.requests, host.node_uuid):
                body = dict(offer)
                if claim and not self._placement.claim(
                    server, body, project_id=request.project_id, user_id=request.user_id
                ):
                    why.claims.append((host.host, "taken by another"))
                    continue
                why.claims.append((host.host, "claimed"))
                with self._hosts.lock:
                    selection.consume(host, request, server)
                return _selected(host, body, self._default_zone)
        return None

    def _selection(self, host: HostState, candidates: Candidates) -> Selection | None:
        offers = selection.chosen_request(candidates.requests, host.node_uuid)
        return _selected(host, dict(offers[0]), self._default_zone) if offers else None

    def _refuse(self, why: Why, reason: str) -> NoValidHost:
        why.brief = reason
        LOG.info("no valid host: %s (asked %s)", reason, why.query)
        return NoValidHost(reason=reason, why=msgspec.to_builtins(why))


def _selected(host: HostState, body: dict[str, Any], default_zone: str) -> Selection:
    zones = [a.availability_zone for a in host.aggregates if a.availability_zone]
    return Selection(
        host=host.host,
        node=host.node,
        node_uuid=host.node_uuid,
        cell=host.cell,
        allocations=body,
        availability_zone=zones[0] if zones else default_zone,
    )
