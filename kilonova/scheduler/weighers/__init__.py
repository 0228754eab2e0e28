"""Weighers: each says how good one host is; values are brought to 0…1 over the hosts at hand, multiplied, and added.

A multiplier may be set for the hosts of an aggregate by metadata of the option's name; of several the least counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.groups import members_on
from kilonova.scheduler.options import FilterOptions

Weigher = Callable[[HostState, RequestSpec], float]


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
    return members_on(host, request.group) if request.group and request.group.policy == "soft-affinity" else 0


def soft_anti_affinity(host: HostState, request: RequestSpec) -> float:
    """Group members elsewhere, for the policy soft-anti-affinity."""
    return -members_on(host, request.group) if request.group and request.group.policy == "soft-anti-affinity" else 0


def hypervisor_version(host: HostState, request: RequestSpec) -> float:
    """Newer hypervisors first."""
    return host.hypervisor_version


def num_instances(host: HostState, request: RequestSpec) -> float:
    """Servers on the host."""
    return host.num_instances


WEIGHERS: dict[str, tuple[str, Weigher]] = {
    "RAMWeigher": ("ram_weight_multiplier", ram),
    "CPUWeigher": ("cpu_weight_multiplier", cpu),
    "DiskWeigher": ("disk_weight_multiplier", disk),
    "IoOpsWeigher": ("io_ops_weight_multiplier", io_ops),
    "BuildFailureWeigher": ("build_failure_weight_multiplier", build_failures),
    "ServerGroupSoftAffinityWeigher": ("soft_affinity_weight_multiplier", soft_affinity),
    "ServerGroupSoftAntiAffinityWeigher": ("soft_anti_affinity_weight_multiplier", soft_anti_affinity),
    "HypervisorVersionWeigher": ("hypervisor_version_weight_multiplier", hypervisor_version),
    "NumInstancesWeigher": ("num_instances_weight_multiplier", num_instances),
}
"""By name: the option of the multiplier, and the function."""


class _Column:
    """What one weigher says of every host."""

    def __init__(self, name: str, hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions) -> None:
        option, weigher = WEIGHERS[name]
        self.name, self._weigher, self._request = name, weigher, request
        self._values = [float(weigher(host, request)) for host in hosts]
        self._multipliers = _multipliers(hosts, option, options)
        self._stretch()

    def _stretch(self) -> None:
        self._least = min(self._values, default=0.0)
        self._spread = max(self._values, default=0.0) - self._least

    def update(self, index: int, host: HostState) -> None:
        self._values[index] = float(self._weigher(host, self._request))
        self._stretch()

    def remove(self, index: int) -> None:
        del self._values[index], self._multipliers[index]
        self._stretch()

    def counts(self) -> bool:
        """Whether it tells any hosts apart."""
        return self._spread > 0

    def weight(self, index: int) -> float:
        return (self._values[index] - self._least) / self._spread * self._multipliers[index]

    def add_to(self, totals: list[float]) -> list[float]:
        least, spread = self._least, self._spread
        return [
            total + (value - least) / spread * multiplier
            for total, value, multiplier in zip(totals, self._values, self._multipliers, strict=True)
        ]


class Scale:
    """The weights of hosts. What the weighers said is kept, so that a change of one host asks no other host again."""

    def __init__(self, hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions) -> None:
        self._columns = [_Column(name, hosts, request, options) for name in WEIGHERS]

    def update(self, index: int, host: HostState) -> None:
        """This host has changed."""
        for column in self._columns:
            column.update(index, host)

    def remove(self, index: int) -> None:
        """This host is out; those behind it move up."""
        for column in self._columns:
            column.remove(index)

    def totals(self, count: int) -> list[float]:
        """The weight of each of the ``count`` hosts."""
        totals = [0.0] * count
        for column in self._columns:
            if column.counts():
                totals = column.add_to(totals)
        return totals

    def parts(self, index: int) -> dict[str, float]:
        """What each weigher adds to a host's weight."""
        return {c.name: weight for c in self._columns if c.counts() and (weight := c.weight(index))}


def weigh(
    hosts: Sequence[HostState], request: RequestSpec, options: FilterOptions
) -> list[tuple[HostState, float, dict[str, float]]]:
    """(host, weight, its parts) in the order given."""
    scale = Scale(hosts, request, options)
    totals = scale.totals(len(hosts))
    return [(host, totals[i], scale.parts(i)) for i, host in enumerate(hosts)]


def _multipliers(hosts: Sequence[HostState], option: str, options: FilterOptions) -> list[float]:
    default: float = getattr(options, option)
    return [_of_aggregates(host, option, default) if host.aggregates else default for host in hosts]


def _of_aggregates(host: HostState, option: str, default: float) -> float:
    own = []
    for aggregate in host.aggregates:
        try:
            own.append(float(aggregate.metadata[option]))
        except (KeyError, ValueError):
            continue
    return min(own, default=default)
