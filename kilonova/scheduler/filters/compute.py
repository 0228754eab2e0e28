"""Whether the host's service works."""

from __future__ import annotations

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters.base import Filter


def compute(host: HostState, request: RequestSpec) -> str | None:
    """The service must be enabled and alive."""
    if not host.enabled:
        return f"its service is disabled: {host.disabled_reason or 'no reason was given'}"
    if not host.up:
        return "its service is down"
    return None


def all_hosts(host: HostState, request: RequestSpec) -> str | None:
    """Everybody passes."""
    return None


FILTERS: dict[str, Filter] = {"ComputeFilter": compute, "AllHostsFilter": all_hosts}
