"""What flavors and aggregates say of each other."""

from __future__ import annotations

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.matching import matches

_SCOPE = "aggregate_instance_extra_specs"


def extra_specs(host: HostState, request: RequestSpec) -> str | None:
    """Specs of the scope ``aggregate_instance_extra_specs:``, and unscoped ones, must match the metadata of the
    host's aggregates; a key that several aggregates have matches when one of their values does."""
    for name, wanted in request.flavor.extra_specs.items():
        scope, scoped, rest = name.partition(":")
        if scoped and scope != _SCOPE:
            continue
        key = rest if scoped else name
        values = [v.strip() for a in host.aggregates if key in a.metadata for v in a.metadata[key].split(",")]
        if not values:
            return f"no aggregate of it has {key}, which the flavor wants to be {wanted}"
        if not any(matches(value, wanted) for value in values):
            return f"its aggregates have {key} {', '.join(values)}, the flavor wants {wanted}"
    return None


FILTERS: dict[str, Filter] = {"AggregateInstanceExtraSpecsFilter": extra_specs}
