"""Whether a project may have more servers: its limits against what it has, counted now."""

from __future__ import annotations

from typing import Any

from kilonova.api import quotas
from kilonova.api.call import Call
from kilonova.base.errors import Forbidden
from kilonova.core.flavor import Flavor
from kilonova.core.quota import UNLIMITED, Use, exceeded, over_quota, servers_that_fit
from kilonova.store import instance_mappings


def share_of(flavor: Flavor) -> Use:
    """What one server of a flavor takes."""
    return Use(instances=1, cores=flavor.vcpus, ram=flavor.memory_mb)


def _scopes(call: Call[Any]) -> list[tuple[dict[str, int], str | None]]:
    """The limits of the project, and those of the user in it where they differ, each with whom it counts."""
    context = call.context
    project = quotas.limits(call, context.project_id)
    user = quotas.limits(call, context.project_id, user_id=context.user_id)
    scopes: list[tuple[dict[str, int], str | None]] = [(project, None)]
    if user != project:
        scopes.append((user, context.user_id))
    return scopes


def _use(call: Call[Any], limits: dict[str, int], user_id: str | None) -> Use:
    """What is taken. The mappings count servers exactly; a server that moves into its cell just now is one there."""
    project_id = call.context.project_id
    counted = {"cores": 0, "ram": 0}
    if any(limits[resource] != UNLIMITED for resource in counted):
        counted = quotas.usage(call, project_id, user_id=user_id)
    with call.services.cells.api.read() as tx:
        instances = instance_mappings.count(tx, project_id, user_id)
    return Use(instances=instances, cores=counted["cores"], ram=counted["ram"])


def allowed_servers(call: Call[Any], flavor: Flavor, *, least: int, most: int) -> int:
    """How many servers, of the ``most`` wanted, may be made; OverQuota where not even ``least``."""
    fitting = most
    for limits, user_id in _scopes(call):
        used = _use(call, limits, user_id)
        fitting = min(fitting, servers_that_fit(limits, used, share_of(flavor), least=least, most=most))
    return fitting


def check_again(call: Call[Any], made: Use) -> None:
    """OverQuota where what was ``made`` just now, together with what others made, is more than the limits allow."""
    for limits, user_id in _scopes(call):
        used = _use(call, limits, user_id)
        if exceeded(limits, used.minus(made), made):
            raise over_quota(limits, used.minus(made), made)


def check_metadata(call: Call[Any], count: int) -> None:
    """Forbidden where a server would have more metadata items than its project may give it."""
    limit = quotas.limit_of(call, "metadata_items")
    if 0 <= limit < count:
        raise Forbidden(f"Maximum number of metadata items exceeds {limit}")


def check_files(call: Call[Any], files: list[tuple[str, bytes]]) -> None:
    """Forbidden where injected files are too many or too large, or their paths too long."""
    if not files:
        return
    limits = quotas.limits(call, call.context.project_id)
    if 0 <= limits["injected_files"] < len(files):
        raise Forbidden("Personality file limit exceeded")
    length, size = limits["injected_file_path_bytes"], limits["injected_file_content_bytes"]
    for path, content in files:
        if 0 <= length < len(path):
            raise Forbidden(f"Personality file path exceeds maximum {length}")
        if 0 <= size < len(content):
            raise Forbidden(f"Personality file content exceeds maximum {size}")
