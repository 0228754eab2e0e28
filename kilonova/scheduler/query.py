"""The question put to Placement, made of a request. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import msgspec

from kilonova.core.flavor import Flavor
from kilonova.core.host import Aggregate
from kilonova.core.request import RequestSpec

_RESOURCES = re.compile(r"resources([A-Za-z0-9_-]{0,64}):(.+)")
_TRAIT = re.compile(r"trait([A-Za-z0-9_-]{0,64}):(.+)")
STATUS_DISABLED = "COMPUTE_STATUS_DISABLED"


class Query(msgspec.Struct, kw_only=True):
    """Groups of resources and traits by suffix ("" is the one without); traits begin with "!" where forbidden.

    ``member_of`` lists sets of aggregate uuids, of each of which a host must be in one. ``in_tree`` is a node.
    """

    resources: dict[str, dict[str, int]]
    required: dict[str, list[str]]
    root_required: list[str] = []
    member_of: list[list[str]] = []
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
    request: RequestSpec, aggregates: Iterable[Aggregate], *, limit: int, node_uuid: str | None, default_zone: str
) -> Query:
    """The query for one server of the request. ``node_uuid``: the one node that it must be on, if any."""
    query = Query(
        resources={"": flavor_resources(request.flavor, volume_backed=request.volume_backed)},
        required={},
        root_required=[f"!{STATUS_DISABLED}"],
        in_tree=node_uuid,
        limit=limit,
    )
    _add_extra_specs(query, request.flavor.extra_specs)
    for name, value in request.image_properties.items():
        found = _TRAIT.fullmatch(name)
        if found and found[1] == "" and value == "required":
            query.required.setdefault("", []).append(found[2])
    zone = request.availability_zone
    if zone is not None:
        members = sorted(a.uuid for a in aggregates if a.availability_zone == zone)
        if members or zone != default_zone:
            query.member_of.append(members or ["00000000-0000-0000-0000-000000000000"])
    if {"group", "same_host", "different_host"} & set(request.hints):
        query.limit = None
    return query


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
    suffixed = [suffix for suffix in query.resources if suffix]
    query.group_policy = specs.get("group_policy") or ("none" if len(suffixed) > 1 else None)
