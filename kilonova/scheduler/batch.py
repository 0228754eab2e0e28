"""The servers of one request while they are being placed and claimed.

They are placed in memory first, each seeing what those before it have taken, and claimed with one request for all. Only
when another scheduler took some of that room, servers are claimed one by one, each with the next host in reserve.
Either way it costs no request for the servers that are on a host, and none for hosts that are not chosen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from kilonova.base import log
from kilonova.base.errors import Conflict, Fault, NoValidHost
from kilonova.clients.placement import Placement
from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec, Why
from kilonova.scheduler import selection
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.offers import Offer, Offers
from kilonova.scheduler.options import FilterOptions
from kilonova.scheduler.query import flavor_resources

LOG = log.of(__name__)

CLAIMS_KEPT = 200


class Placed(msgspec.Struct):
    """A server with the host that was chosen for it, what it takes there, and the hosts in its order of preference."""

    server: str
    host: HostState
    offer: Offer
    ranked: list[HostState]


class Batch:
    """Places the servers of one request on hosts that have room by ``offers``; writes into ``why`` what happens."""

    def __init__(
        self,
        hosts: HostStore,
        placement: Placement,
        filters: FilterOptions,
        *,
        request: RequestSpec,
        offers: Offers,
        why: Why,
    ) -> None:
        self._hosts, self._placement, self._filters = hosts, placement, filters
        self._request, self._offers, self._why = request, offers, why
        self._amounts = flavor_resources(request.flavor, volume_backed=request.volume_backed)
        self._before = dict(request.group.members) if request.group is not None else {}
        self._claimed: list[str] = []

    def place(self, servers: list[str], *, claim: bool) -> list[Placed]:
        """All servers or none: NoValidHost leaves no claim and no promise behind."""
        placed: list[Placed] = []
        try:
            placed += self._choose(servers)
            if not claim:
                return placed
            if self._claim({p.server: p.offer for p in placed}):
                self._note(placed, "claimed")
                return placed
            self._take_back(placed)
            placed.clear()
            for index, server in enumerate(servers):
                placed.append(self._claim_one(server, index=index))
            return placed
        except Exception:
            self._take_back(placed)
            self._release()
            raise

    def _release(self) -> None:
        """What stays when Placement cannot be reached now is released by who asked, who tries for longer."""
        with contextlib.suppress(Fault):
            for server in self._claimed:
                self._placement.release(server)

    def _choose(self, servers: list[str]) -> list[Placed]:
        """In memory, one after another; the lock keeps other decisions from promising the same room meanwhile."""
        placed: list[Placed] = []
        with self._hosts.lock:
            field = self._field()
            for index, server in enumerate(servers):
                chosen = self._first(field, server, index=index)
                if chosen is None:
                    self._take_back(placed)
                    raise self._nobody(field, first=not placed)
                placed.append(chosen)
                field.changed(chosen.host)
        return placed

    def _field(self) -> selection.Field:
        group = self._request.group
        if group is not None:
            # Members that were placed a moment ago show no host of theirs yet; their promises tell.
            group.members |= self._hosts.hosts_of(member for member, host in group.members.items() if not host)
        known = self._hosts.find(self._offers.nodes())
        field = selection.Field(known, self._request, self._filters)
        self._why.candidates = len(known)
        self._why.filters, self._why.weights = list(field.refusals), field.weights(f"{self._why.seed}/0")
        return field

    def _first(self, field: selection.Field, server: str, *, index: int) -> Placed | None:
        ranked = field.ranked(f"{self._why.seed}/{index}")
        for host in ranked:
            offers = self._offers.of(host.node_uuid)
            if offers:
                self._promise(host, server, offers[0])
                return Placed(server, host, offers[0], ranked)
        return None

    def _claim(self, wanted: dict[str, Offer]) -> bool:
        """The servers are new. One that holds something got it when this very request was worked on before and its
        worker died: that is given back."""
        who = {"project_id": self._request.project_id, "user_id": self._request.user_id}
        self._claimed = list(dict.fromkeys([*self._claimed, *wanted]))
        try:
            return self._placement.claim_many(wanted, **who)
        except Conflict:
            for server in wanted:
                self._placement.release(server)
            return self._placement.claim_many(wanted, **who)

    def _claim_one(self, server: str, *, index: int) -> Placed:
        """Try one host after the other until a claim holds."""
        with self._hosts.lock:
            field = self._field()
            ranked = field.ranked(f"{self._why.seed}/{index}")
        for host, offer in self._offered(ranked):
            with self._hosts.lock:
                self._promise(host, server, offer)
            placed = Placed(server, host, offer, ranked)
            if self._claim({server: offer}):
                self._note([placed], "claimed")
                return placed
            self._note([placed], "taken by another")
            self._take_back([placed])
        raise self._nobody(field, first=index == 0)

    def _offered(self, ranked: list[HostState]) -> Iterator[tuple[HostState, Offer]]:
        for host in ranked:
            for offer in self._offers.of(host.node_uuid):
                yield host, offer

    def _promise(self, host: HostState, server: str, offer: Offer) -> None:
        self._hosts.promise(host.node_uuid, server, amounts=self._amounts)
        self._offers.take(offer)
        if self._request.group is not None:
            self._request.group.members[server] = host.host

    def _take_back(self, placed: list[Placed]) -> None:
        for one in placed:
            self._hosts.take_back(one.host.node_uuid, one.server)
            self._offers.take(one.offer, sign=-1)
            if self._request.group is not None:
                self._request.group.members.pop(one.server, None)
                self._request.group.members |= {s: h for s, h in self._before.items() if s == one.server}

    def _note(self, placed: list[Placed], result: str) -> None:
        room = CLAIMS_KEPT - len(self._why.claims)
        self._why.claims += [(p.host.host, result) for p in placed[:room]]

    def _nobody(self, field: selection.Field, *, first: bool) -> NoValidHost:
        self._why.filters = field.refusals
        if not first:
            return refuse(self._why, "There are not enough hosts available.")
        reason = selection.brief(field.refusals, candidates=self._why.candidates, lacking=[])
        return refuse(self._why, reason)


def refuse(why: Why, reason: str) -> NoValidHost:
    """The error that tells of it, with the record."""
    why.brief = reason
    LOG.info("no valid host: %s (asked %s)", reason, why.query)
    return NoValidHost(reason=reason, why=msgspec.to_builtins(why))
