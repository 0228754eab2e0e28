"""Extra specs about the host itself: unscoped ones, and those of the scope ``capabilities:``."""

from __future__ import annotations

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.matching import matches

_PLAIN = ("free_ram_mb", "free_disk_mb", "vcpus_total", "vcpus_used", "num_instances", "num_io_ops")
_KNOWN = (*_PLAIN, "hypervisor_type", "hypervisor_version", "host_ip")


def capabilities(host: HostState, request: RequestSpec) -> str | None:
    """Every such spec must match what the host says of itself."""
    for name, wanted in request.flavor.extra_specs.items():
        scope, scoped, rest = name.partition(":")
        if scoped and scope != "capabilities":
            continue
        key = rest if scoped else name
        value = _fact(host, key)
        if value is None:
            if scoped:
                return f"it says nothing of {key}, which the flavor wants to be {wanted}"
            continue
        if not matches(value, wanted):
            return f"{key} is {value}, the flavor wants {wanted}"
    return None


def _fact(host: HostState, key: str) -> str | None:
    if key in _KNOWN:
        return str(getattr(host, key))
    return host.stats.get(key)


FILTERS: dict[str, Filter] = {"ComputeCapabilitiesFilter": capabilities}
