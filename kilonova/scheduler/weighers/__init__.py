"""Weighers: each says how good one host is; values are brought to 0…1 over the hosts at hand, multiplied, and added.

A multiplier may be set for the hosts of an aggregate by metadata of the option's name; of several the least counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.options import FilterOptions

Weigher = Callable[[HostState, RequestSpec], float]


def _members(host: HostState, request: RequestSpec) -> int:
    group = request.group
    return sum(where == host.host for where in group.members.values()) if group is not None else 0


def ram(host: HostState, request: RequestSpec) -> float:
    """Free MiB."""
    return max(host.free_ram_mb, 0)


def cpu(host: HostState, request: RequestSpec) -> float:
    """Free vCPUs, overcommitment counted."""
    return host.vcpus_total * host.cpu_allocation_ratio - host.vcpus_used


def disk(host: HostState, request: RequestSpec) -> float:
    """Free MiB of disk."""
    return host.free_disk_mb


def io_ops(host: HostState, request: RequestSpec) -> float:
    """Builds and moves under way."""
    return host.num_io_ops


def build_failures(host: HostState, request: RequestSpec) -> float:
    """Recent failures: fewer is better."""
    return -host.failed_builds


def soft_affinity(host: HostState, request: RequestSpec) -> float:
    """Group members here, for the policy soft-affinity."""
    return _members(host, request) if request.group and request.group.policy == "soft-affinity" else 0


def soft_anti_affinity(host: HostState, request: RequestSpec) -> float:
    """Group members elsewhere, for the policy soft-anti-affinity."""
    return -_members(host, request) if request.group and request.group.policy == "soft-anti-affinity" else 0


WEIGHERS: dict[str, tuple[str, Weigher]] = {
    "RAMWeigher": ("ram_weight_multiplier", ram),
    "CPUWeigher": ("cpu_weight_multiplier", cpu),
    "DiskWeigher": ("disk_weight_multiplier", disk),
    "IoOpsWeigher": ("io_ops_weight_multiplier", io_ops),
    "BuildFailureWeigher": ("build_failure_weight_multiplier", build_failures),
    "ServerGroupSoftAffinityWeigher": ("soft_affinity_weight_multiplier", soft_affinity),
    "ServerGroupSoftAntiAffinityWeigher": ("soft_anti_affinity_weight_multiplier", soft_anti_affinity),
}
"""By name: the option of the multiplier, and the function."""


def weigh(
    hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions
) -> list[tuple[HostState, float, dict[str, float]]]:
    """(host, weight, its parts) in the order given."""
    parts: list[dict[str, float]] = [{} for _ in hosts]
    for name, (option, weigher) in WEIGHERS.items():
        values = [float(weigher(host, request)) for host in hosts]
        least, most = min(values, default=0.0), max(values, default=0.0)
        if most == least:
            continue
        for host, value, part in zip(hosts, values, parts, strict=True):
            part[name] = (value - least) / (most - least) * _multiplier(host, option, options)
    return [(host, sum(part.values()), part) for host, part in zip(hosts, parts, strict=True)]


def _multiplier(host: HostState, option: str, options: FilterOptions) -> float:
    own = []
    for aggregate in host.aggregates:
        try:
            own.append(float(aggregate.metadata[option]))
        except (KeyError, ValueError):
            continue
    default: float = getattr(options, option)
    return min(own) if own else default
