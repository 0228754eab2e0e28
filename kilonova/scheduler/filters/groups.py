"""Server groups with the policies affinity and anti-affinity, and the hints about other servers."""

from __future__ import annotations

from kilonova.core.host import HostState
from kilonova.core.request import GroupMembers, RequestSpec
from kilonova.scheduler.filters.base import Filter

NEEDED = {"anti-affinity": "ServerGroupAntiAffinityFilter", "affinity": "ServerGroupAffinityFilter"}
"""The filter without which a policy would not be kept."""


def members_on(host: HostState, group: GroupMembers) -> int:
    """How many of the group are on the host: as the request knows, or as the host's state says by now."""
    here = {server for server, where in group.members.items() if where == host.host}
    return len(here | (group.members.keys() & set(host.servers)))


def anti_affinity(host: HostState, request: RequestSpec) -> str | None:
    """No more members on a host than the group's rule allows (one, where it has none)."""
    group = request.group
    if group is None or group.policy != "anti-affinity":
        return None
    most = int(group.rules.get("max_server_per_host", 1))
    here = members_on(host, group)
    return f"it has {here} of the server group's members, {most} may be" if here >= most else None


def affinity(host: HostState, request: RequestSpec) -> str | None:
    """All members on one host."""
    group = request.group
    if group is None or group.policy != "affinity":
        return None
    hosts = {where for where in group.members.values() if where}
    return f"the server group is on {', '.join(sorted(hosts))}" if hosts and host.host not in hosts else None


def different_host(host: HostState, request: RequestSpec) -> str | None:
    """Away from the servers of the hint different_host."""
    shared = set(request.hints.get("different_host", ())) & set(host.servers)
    return f"it holds {', '.join(sorted(shared))}" if shared else None


def same_host(host: HostState, request: RequestSpec) -> str | None:
    """With one of the servers of the hint same_host."""
    wanted = request.hints.get("same_host")
    return "it holds none of the servers asked for" if wanted and not set(wanted) & set(host.servers) else None


FILTERS: dict[str, Filter] = {
    "ServerGroupAntiAffinityFilter": anti_affinity,
    "ServerGroupAffinityFilter": affinity,
    "DifferentHostFilter": different_host,
    "SameHostFilter": same_host,
}
