"""The scheduler's service: asks Placement who has room, has the servers placed, and says why."""

from __future__ import annotations

import time

import msgspec

from kilonova.base import log
from kilonova.base.config import BadConfig
from kilonova.base.errors import BadRequest, Fault
from kilonova.clients.placement import Candidates, Placement
from kilonova.core.host import HostState
from kilonova.core.request import Decision, RequestSpec, Selection, Why
from kilonova.scheduler import lacking, selection
from kilonova.scheduler.batch import Batch, Placed, refuse
from kilonova.scheduler.filters import groups
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.offers import Offer, Offers
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
        unknown = selection.unknown_filters(filters.enabled_filters)
        if unknown:
            raise BadConfig(f"[filter_scheduler] enabled_filters names unknown filters: {', '.join(unknown)}")
        self._hosts, self._placement = hosts, placement
        self._options, self._filters, self._default_zone = options, filters, default_zone

    def hosts_changed(self, *, cell: str, hosts: list[str]) -> None:
        """Look again before the next decision."""
        self._hosts.invalidate()

    def select(self, *, request: RequestSpec, servers: list[str], alternates: int, claim: bool = True) -> Decision:
        """See the contract."""
        started = time.monotonic()
        why = Why(seed=request.request_id or servers[0])
        request = self._completed(request)
        self._require_group_filter(request, why)
        self._hosts.refresh()
        offers = Offers(self._candidates(request, why, servers if claim else []))
        self._hosts.meet(offers.nodes())
        batch = Batch(self._hosts, self._placement, self._filters, request=request, offers=offers, why=why)
        placed = batch.place(servers, claim=claim)
        why.chosen = [p.host.host for p in placed]
        selections = [self._selections(p, request, offers, alternates=alternates) for p in placed]
        why.seconds = round(time.monotonic() - started, 4)
        return Decision(selections=selections, why=why)

    def _completed(self, request: RequestSpec) -> RequestSpec:
        """With the architecture that images have which name none."""
        default, named = self._filters.image_properties_default_architecture, request.image_properties
        if default is None or "hw_architecture" in named or "architecture" in named:
            return request
        return msgspec.structs.replace(request, image_properties={**named, "hw_architecture": default})

    def _require_group_filter(self, request: RequestSpec, why: Why) -> None:
        needed = groups.NEEDED.get(request.group.policy) if request.group is not None else None
        if needed is not None and needed not in {name.rpartition(".")[2] for name in self._filters.enabled_filters}:
            raise refuse(why, f"ServerGroup policy is not supported: {needed} not configured")

    def _candidates(self, request: RequestSpec, why: Why, servers: list[str]) -> Candidates:
        nodes: list[str] = []
        host, name = request.force_host or request.requested_host, request.force_node or request.requested_node
        if host or name:
            nodes = self._hosts.nodes_of(host, name)
            if not nodes:
                raise refuse(why, f"No such host - host: {host} node: {name}.")
        query = build(
            request,
            self._hosts.aggregates(),
            limit=self._options.max_placement_results,
            nodes=nodes,
            default_zone=self._default_zone,
        )
        why.query = "&".join(f"{k}={v}" for k, v in query.parameters())
        try:
            found = self._placement.candidates(query.parameters())
            if not found.requests and self._gave_back(servers):
                found = self._placement.candidates(query.parameters())
        except BadRequest as error:
            raise refuse(why, error.message) from error
        if not found.requests:
            why.lacking = self._lacking(query)
            raise refuse(why, selection.brief([], candidates=0, lacking=why.lacking))
        return found

    def _gave_back(self, servers: list[str]) -> bool:
        """Whether the servers themselves held room: this request was worked on before, and its worker died."""
        if not servers or not self._placement.allocations(servers[0]).get("allocations"):
            return False
        for server in servers:
            self._placement.release(server)
        return True

    def _lacking(self, query: Query) -> list[str]:
        try:
            return lacking.explain(query, lambda q: bool(self._placement.candidates(q.parameters()).requests))
        except Fault as error:
            LOG.warning("what is lacking could not be found out: %s", error.message)
            return []

    def _selections(self, placed: Placed, request: RequestSpec, offers: Offers, *, alternates: int) -> list[Selection]:
        """The host and its alternates: of the same cell, and such that the group's policy would still hold now that
        all of the batch have their hosts."""
        found = [self._selection(placed.host, placed.offer)]
        request = _without(request, placed.server)
        if request.group is not None and request.group.policy == "affinity" and any(request.group.members.values()):
            return found  # the others are on this host, there is no other one
        for host in placed.ranked:
            if len(found) > alternates:
                break
            if host.host == placed.host.host or host.cell != placed.host.cell:
                continue
            if groups.anti_affinity(host, request):
                continue
            spare = offers.of(host.node_uuid)
            if spare:
                found.append(self._selection(host, spare[0]))
        return found

    def _selection(self, host: HostState, offer: Offer) -> Selection:
        zones = [a.availability_zone for a in host.aggregates if a.availability_zone]
        return Selection(
            host=host.host,
            node=host.node,
            node_uuid=host.node_uuid,
            cell=host.cell,
            allocations=offer,
            availability_zone=zones[0] if zones else self._default_zone,
        )


def _without(request: RequestSpec, server: str) -> RequestSpec:
    """The request as the rest of its group stands to the server."""
    if request.group is None:
        return request
    others = {member: where for member, where in request.group.members.items() if member != server}
    return msgspec.structs.replace(request, group=msgspec.structs.replace(request.group, members=others))
