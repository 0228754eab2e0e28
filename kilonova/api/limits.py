"""The absolute limits of a project, with what it uses: what clients ask before they create."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

from kilonova.api import quotas
from kilonova.api.call import Call
from kilonova.base.body import Query, wire
from kilonova.base.operation import operation
from kilonova.base.versions import Span, span


class LimitsQuery(Query):
    """Another project, for administrators."""

    strict_since: ClassVar[str | None] = "2.75"

    tenant_id: Annotated[str | None, wire()] = None


class Absolute(NamedTuple):
    """One line of the answer: the limit, or the use, of a resource."""

    key: str
    resource: str
    shown: Span = span()


_NETWORK, _IMAGES, _FILES = span(until="2.35"), span(until="2.38"), span(until="2.56")

MAXIMA = (
    Absolute("maxTotalRAMSize", "ram"),
    Absolute("maxTotalInstances", "instances"),
    Absolute("maxTotalCores", "cores"),
    Absolute("maxTotalKeypairs", "key_pairs"),
    Absolute("maxTotalFloatingIps", "floating_ips", _NETWORK),
    Absolute("maxServerMeta", "metadata_items"),
    Absolute("maxImageMeta", "metadata_items", _IMAGES),
    Absolute("maxPersonality", "injected_files", _FILES),
    Absolute("maxPersonalitySize", "injected_file_content_bytes", _FILES),
    Absolute("maxSecurityGroups", "security_groups", _NETWORK),
    Absolute("maxSecurityGroupRules", "security_group_rules", _NETWORK),
    Absolute("maxServerGroups", "server_groups"),
    Absolute("maxServerGroupMembers", "server_group_members"),
)

USED = (
    Absolute("totalRAMUsed", "ram"),
    Absolute("totalCoresUsed", "cores"),
    Absolute("totalInstancesUsed", "instances"),
    Absolute("totalFloatingIpsUsed", "floating_ips", _NETWORK),
    Absolute("totalSecurityGroupsUsed", "security_groups", _NETWORK),
    Absolute("totalServerGroupsUsed", "server_groups"),
)


@operation("GET", "/limits", rule="os_compute_api:limits", query=LimitsQuery)
def show_limits(call: Call[None]) -> dict[str, Any]:
    """The limits of the caller's project, or of the one asked for. There are no rate limits."""
    query: LimitsQuery = call.query
    call.authorize()
    project_id = call.context.project_id
    if query.tenant_id:
        project_id = query.tenant_id
        call.authorize(
            {"project_id": project_id, "user_id": call.context.user_id}, rule="os_compute_api:limits:other_project"
        )
    limits = quotas.limits(call, project_id)
    used = quotas.usage(call, project_id)
    absolute = {line.key: limits[line.resource] for line in MAXIMA if call.version in line.shown}
    absolute |= {line.key: used[line.resource] for line in USED if call.version in line.shown}
    return {"limits": {"rate": [], "absolute": absolute}}
