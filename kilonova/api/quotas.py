"""What a project or user may have, and what it has: for the quota resources, limits, and whoever makes something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kilonova.api.call import Call
from kilonova.api.options import QuotaOptions
from kilonova.base.versions import Span, Version, span
from kilonova.store import build_requests, quotas, server_groups, servers
from kilonova.store.servers import Usage
from kilonova.store.session import Tx


class Resource(NamedTuple):
    """One resource that is limited. ``sets`` and ``classes``: the versions at which quota sets and classes show it."""

    name: str
    option: str | None
    sets: Span = span()
    classes: Span = span()


_NETWORK = {"option": None, "sets": span(until="2.35"), "classes": span(until="2.49")}
_FILES = span(until="2.56")

RESOURCES = (
    Resource("cores", "cores"),
    Resource("fixed_ips", **_NETWORK),  # type: ignore[arg-type]  # a table's row: fields of several types
    Resource("floating_ips", **_NETWORK),  # type: ignore[arg-type]  # a table's row: fields of several types
    Resource("injected_file_content_bytes", "injected_file_content_bytes", _FILES, _FILES),
    Resource("injected_file_path_bytes", "injected_file_path_length", _FILES, _FILES),
    Resource("injected_files", "injected_files", _FILES, _FILES),
    Resource("instances", "instances"),
    Resource("key_pairs", "key_pairs"),
    Resource("metadata_items", "metadata_items"),
    Resource("ram", "ram"),
    Resource("security_group_rules", **_NETWORK),  # type: ignore[arg-type]  # a table's row: fields of several types
    Resource("security_groups", **_NETWORK),  # type: ignore[arg-type]  # a table's row: fields of several types
    Resource("server_group_members", "server_group_members", classes=span("2.50")),
    Resource("server_groups", "server_groups", classes=span("2.50")),
)

LIMITED = frozenset(resource.name for resource in RESOURCES if resource.option is not None)
"""The names whose limits count; the others are the network service's and stand at -1."""


def names(version: Version, *, classes: bool = False) -> list[str]:
    """The resources that a quota set (or class) shows at a version."""
    return [r.name for r in RESOURCES if version in (r.classes if classes else r.sets)]


def defaults(options: QuotaOptions) -> dict[str, int]:
    """The limits of nova.conf by resource."""
    return {r.name: int(getattr(options, r.option)) if r.option else -1 for r in RESOURCES}


def class_limits(call: Call[Any]) -> dict[str, int]:
    """The limits of whoever has none of their own; -1 is no limit."""
    with call.services.cells.api.read() as tx:
        return _over(defaults(call.options.quota), quotas.get_class(tx, "default"))


def limits(call: Call[Any], project_id: str, *, user_id: str | None = None) -> dict[str, int]:
    """The limits of a project, or of a user in it."""
    found = defaults(call.options.quota)
    with call.services.cells.api.read() as tx:
        found = _over(found, quotas.get_class(tx, "default"))
        found = _over(found, quotas.get_project(tx, project_id))
        if user_id is not None:
            found = _over(found, quotas.get_user(tx, project_id, user_id))
    return found


def _over(limits: dict[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return limits | {name: value for name, value in more.items() if name in LIMITED}


def limit_of(call: Call[Any], name: str, *, user_id: str | None = None) -> int:
    """One limit of the caller's project (and user)."""
    return limits(call, call.context.project_id, user_id=user_id)[name]


def usage(call: Call[Any], project_id: str, *, user_id: str | None = None) -> dict[str, int]:
    """How much is used of each resource that is counted per project; 0 of the others.

    Servers are counted where they are: in their cells, and before that as build requests. Cells that do not answer
    count nothing.
    """
    found = dict.fromkeys((resource.name for resource in RESOURCES), 0)
    cells = call.services.cells
    with cells.api.read() as tx:
        waiting = [r.server for r in build_requests.listing(tx, project_id) if user_id in (None, r.server.user_id)]
        found["server_groups"] = server_groups.count(tx, project_id, user_id)

    # The build requests were read first, so one that has moved into its cell since is found there: it counts once.
    def count(tx: Tx) -> tuple[Usage, set[str]]:
        moved = servers.many(tx, [server.uuid for server in waiting]) if waiting else {}
        return servers.usage(tx, project_id, user_id), set(moved)

    arrived: set[str] = set()
    for part, moved in cells.gather(count).found.values():
        arrived |= moved
        found["instances"] += part.instances
        found["cores"] += part.cores
        found["ram"] += part.ram
    for server in waiting:
        if server.uuid not in arrived:
            found["instances"] += 1
            found["cores"] += server.flavor.vcpus
            found["ram"] += server.flavor.memory_mb
    return found
