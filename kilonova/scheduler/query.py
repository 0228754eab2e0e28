"""The question put to Placement, made of a request. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import msgspec

from kilonova.core.flavor import Flavor
from kilonova.core.host import Aggregate
from kilonova.core.request import RequestSpec

_RESOURCES = re.compile(r"resources([A-Za-z0-9_-]{0,64}):(.+)")
_TRAIT = re.compile(r"trait([A-Za-z0-9_-]{0,64}):(.+)")
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"
NOWHERE = "00000000-0000-0000-0000-000000000000"
"""No aggregate has this uuid."""


class Query(msgspec.Struct, kw_only=True):
    """Groups of resources and traits by suffix ("" is the one without); traits begin with "!" where forbidden.

    ``member_of`` lists sets of aggregate uuids, of each of which a host must be in one; in none of ``not_member_of``.
    ``in_tree`` is a node.
    """

    resources: dict[str, dict[str, int]]
    required: dict[str, list[str]]
    root_required: list[str] = []
    member_of: list[list[str]] = []
    not_member_of: list[str] = []
    in_tree: str | None = None
    group_policy: str | None = None
    limit: int | None = 1000

    def parameters(self) -> list[tuple[str, str]]:
        """As GET /allocation_candidates takes them, sorted."""
        found = []
        for suffix, amounts in self.resources.items():
            if amounts:
                found.append((f"resources{suffix}", ",".join(f"{rc}:{n}" for rc, n in sorted(amounts.items()))))
        for suffix, traits in self.required.items():
            if traits:
                found.append((f"required{suffix}", ",".join(sorted(traits))))
        found += [("member_of", f"in:{','.join(group)}") for group in self.member_of]
        if self.not_member_of:
            found.append(("member_of", f"!in:{','.join(self.not_member_of)}"))
        if self.root_required:
            found.append(("root_required", ",".join(sorted(self.root_required))))
        if self.in_tree:
            found.append(("in_tree", self.in_tree))
        if self.group_policy:
            found.append(("group_policy", self.group_policy))
        if self.limit:
            found.append(("limit", str(self.limit)))
        return sorted(found)


def flavor_resources(flavor: Flavor, *, volume_backed: bool) -> dict[str, int]:
    """What the flavor takes, without what its extra specs say otherwise. Zero amounts are left out."""
    disk = flavor.ephemeral_gb + math.ceil(flavor.swap / 1024) + (0 if volume_backed else flavor.root_gb)
    amounts = {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb, "DISK_GB": disk}
    return {rc: n for rc, n in amounts.items() if n}


def build(
    request: RequestSpec, aggregates: Iterable[Aggregate], *, limit: int, nodes: Sequence[str] = (), default_zone: str
) -> Query:
    """The query for one server of the request. ``nodes``: uuids of the nodes of which it must be on one, if any."""
    query = Query(
        resources={"": flavor_resources(request.flavor, volume_backed=request.volume_backed)},
        required={},
        root_required=[f"!{STATUS_DISABLED}"],
        in_tree=nodes[0] if len(nodes) == 1 else None,
        limit=limit,
    )
    _add_extra_specs(query, request.flavor.extra_specs)
    from_flavor = _suffixes(query)
    for name, value in request.image_properties.items():
        found = _TRAIT.fullmatch(name)
        if found and found[1] == "" and value == "required":
            query.required.setdefault("", []).append(found[2])
    if request.availability_zone is not None:
        _add_zone(query, request.availability_zone, aggregates, default_zone=default_zone)
    policy = request.flavor.extra_specs.get("group_policy")
    implied = "none" if len(_suffixes(query)) > 1 and len(from_flavor) < 2 else None
    query.group_policy = policy or implied
    if len(nodes) > 1 or {"group", "same_host", "different_host"} & set(request.hints):
        query.limit = None  # the hosts that matter might be behind the limit
    return query


def _suffixes(query: Query) -> set[str]:
    return {suffix for suffix in (*query.resources, *query.required) if suffix}


def _add_zone(query: Query, zone: str, aggregates: Iterable[Aggregate], *, default_zone: str) -> None:
    """A zone is its aggregates; the default zone, where nobody made aggregates of that name, all hosts in no other."""
    zoned = [a for a in aggregates if a.availability_zone]
    members = sorted(a.uuid for a in zoned if a.availability_zone == zone)
    if members or zone != default_zone:
        query.member_of.append(members or [NOWHERE])
    else:
        query.not_member_of = sorted(a.uuid for a in zoned)


def _add_extra_specs(query: Query, specs: dict[str, str]) -> None:
    for name, value in specs.items():
        if found := _RESOURCES.fullmatch(name):
            amounts = query.resources.setdefault(found[1], {})
            if value.isdigit() and int(value) == 0:
                amounts.pop(found[2], None)
            elif value.isdigit():
                amounts[found[2]] = int(value)
        elif found := _TRAIT.fullmatch(name):
            sign = {"required": "", "forbidden": "!"}.get(value)
            if sign is not None:
                query.required.setdefault(found[1], []).append(sign + found[2])
