"""The decision, pure: which of the hosts that Placement named may take a server, and in which order to try them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from kilonova.base.errors import BadRequest
from kilonova.core.host import HostState
from kilonova.core.request import Refusal, RequestSpec
from kilonova.scheduler.filters import FILTERS
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.options import FilterOptions
from kilonova.scheduler.query import flavor_resources
from kilonova.scheduler.weighers import weigh

REASONS_KEPT = 20
WEIGHTS_KEPT = 10


class Order(msgspec.Struct, kw_only=True):
    """Hosts, best first, with what the filters said and the best weights."""

    hosts: list[HostState]
    refusals: list[Refusal]
    weights: list[tuple[str, float, dict[str, float]]] = []


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


def _steps(request: RequestSpec, filters: Sequence[str]) -> list[tuple[str, Filter]]:
    steps: list[tuple[str, Filter]] = [("Destination", _destination)]
    if request.force_host or request.force_node:
        return steps
    unknown = [name for name in filters if name.rpartition(".")[2] not in FILTERS]
    if unknown:
        raise BadRequest(f"enabled_filters names unknown filters: {', '.join(unknown)}")
    return steps + [(name, FILTERS[name.rpartition(".")[2]]) for name in filters]


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


def order(hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions, *, seed: str) -> Order:
    """Filter, weigh, sort. Equals come in an order drawn from ``seed``, so that they share the load and the decision
    can be repeated."""
    kept, refusals = narrow(hosts, request, options.enabled_filters)
    weighed = weigh(kept, request, options)
    draw = random.Random(seed)
    if options.shuffle_best_same_weighed_hosts:
        weighed.sort(key=lambda entry: entry[0].host)
        draw.shuffle(weighed)
    weighed.sort(key=lambda entry: -entry[1])
    best = min(options.host_subset_size, len(weighed))
    if best > 1:
        chosen = draw.randrange(best)
        weighed.insert(0, weighed.pop(chosen))
    return Order(
        hosts=[host for host, _, _ in weighed],
        refusals=refusals,
        weights=[(host.host, total, parts) for host, total, parts in weighed[:WEIGHTS_KEPT]],
    )


def consume(host: HostState, request: RequestSpec, server: str) -> None:
    """Count the server as if it were on the host, until the host's next report says so itself."""
    amounts = flavor_resources(request.flavor, volume_backed=request.volume_backed)
    host.free_ram_mb -= amounts.get("MEMORY_MB", 0)
    host.free_disk_mb -= amounts.get("DISK_GB", 0) * 1024
    host.vcpus_used += amounts.get("VCPU", 0)
    host.num_instances += 1
    host.num_io_ops += 1
    host.servers = [*host.servers, server]
    if request.group is not None:
        request.group.members[server] = host.host


def brief(refusals: Sequence[Refusal], *, candidates: int, lacking: Sequence[str]) -> str:
    """The reason for users: how many hosts each thing refused, without naming any host."""
    if lacking:
        return f"No host has what is asked for: {'; '.join(lacking)}."
    if candidates == 0:
        return "There are not enough hosts available."
    counts = [f"{r.filter} refused {r.refused}" for r in refusals if r.refused]
    return f"Of {candidates} hosts with room, {', '.join(counts) or 'none could be claimed'}."


def chosen_request(requests: Sequence[Mapping[str, object]], node_uuid: str) -> list[Mapping[str, object]]:
    """The allocation requests that use the node, in Placement's order."""
    found = []
    for request in requests:
        allocations = request["allocations"]
        if isinstance(allocations, Mapping) and node_uuid in allocations:
            found.append(request)
    return found
