"""Where a new server may go: availability zone, host and node forced or asked for, hints, server group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kilonova.api import quotas
from kilonova.api.availability_zones import all_services
from kilonova.api.call import Call
from kilonova.api.servers.bodies import CreateServer, given
from kilonova.base.errors import BadRequest, Forbidden, NotFound
from kilonova.core.request import GroupMembers
from kilonova.store import instance_mappings, nodes, server_groups, servers
from kilonova.store.session import Tx

_FORCED = "os_compute_api:servers:create:forced_host"
_REQUESTED = "compute:servers:create:requested_destination"


class Place(msgspec.Struct, kw_only=True):
    """``force_*`` skips the scheduler's filters, ``requested_*`` does not. ``shown``: the zone that the user named."""

    zone: str | None = None
    shown: str | None = None
    force_host: str | None = None
    force_node: str | None = None
    requested_host: str | None = None
    requested_node: str | None = None
    hints: dict[str, list[str]] = {}
    group: GroupMembers | None = None


def resolve_place(call: Call[CreateServer]) -> Place:
    """All of it, checked; BadRequest where a zone, host or group is not there, Forbidden where it is not allowed."""
    place = Place()
    server = call.body.server
    asked = given(server.availability_zone, "")
    host, node = given(server.host, None), given(server.hypervisor_hostname, None)
    if host or node:
        call.authorize(rule=_REQUESTED)
        if ":" in asked:
            raise BadRequest("Ambiguous request: the availability zone names a host, and so does the request itself.")
        _check_host(call, host, node)
        place.requested_host, place.requested_node = host, node
    _read_zone(call, place, asked)
    place.hints = _hints(call.body)
    if "group" in place.hints:
        place.group = _group(call, place.hints["group"][0])
    return place


def _read_zone(call: Call[Any], place: Place, asked: str) -> None:
    """``zone``, ``zone:host``, ``zone:host:node`` or ``zone::node``."""
    zone, *rest = asked.split(":")
    if len(rest) > 2:
        raise BadRequest("Unable to parse availability_zone: too many colons.")
    host, node = [*(text or None for text in rest), None, None][:2]
    place.shown = place.zone = zone or call.options.default.default_schedule_zone
    if host or node:
        call.authorize(rule=_FORCED)
        _check_host(call, host, node)
        place.force_host, place.force_node = host, node
    elif zone and not any(service.availability_zone == zone for service in _hosts(call)):
        raise BadRequest("The requested availability zone is not available")


def _hosts(call: Call[Any]) -> list[Any]:
    return [service for service in all_services(call) if service.binary == "nova-compute" and not service.disabled]


def _check_host(call: Call[Any], host: str | None, node: str | None) -> None:
    cells = call.services.cells
    if host and cells.host_mapping(host) is None:
        raise BadRequest(f"Compute host {host} could not be found.")
    if node:
        found = cells.gather(nodes.listing).found.values()
        if not any(known.name == node and host in (None, known.host) for part in found for known in part):
            raise BadRequest(f"Compute host {node} could not be found.")


def _hints(body: CreateServer) -> dict[str, list[str]]:
    nothing: dict[str, Any] = {}
    given_hints: Mapping[str, Any] = given(body.hints, nothing) or given(body.old_hints, nothing)
    found: dict[str, list[str]] = {}
    for key, value in given_hints.items():
        items = value if isinstance(value, list) else [value]
        found[key] = [item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in items]
    return {key: items for key, items in found.items() if items}


def _group(call: Call[Any], uuid: str) -> GroupMembers:
    cells = call.services.cells
    try:
        with cells.api.read() as tx:
            group = server_groups.get(tx, uuid)
    except NotFound:
        raise BadRequest(f"Instance group {uuid} could not be found.") from None
    if group.project_id != call.context.project_id and not call.context.is_admin:
        raise BadRequest(f"Instance group {uuid} could not be found.")
    members: dict[str, str] = {}
    if group.members:
        for part in cells.gather(lambda tx: servers.many(tx, group.members)).found.values():
            members.update({member.uuid: member.host or "" for member in part.values()})
    rules = {key: str(value) for key, value in (group.rules or {}).items()}
    return GroupMembers(uuid=group.uuid, policy=group.policy, rules=rules, members=members)


def check_group_room(call: Call[Any], group: GroupMembers, *, more: int) -> None:
    """Forbidden where the group would have too many members; those deleted do not count, those not built yet do."""
    limit = quotas.limit_of(call, "server_group_members")
    if limit < 0:
        return

    def living(tx: Tx) -> int:
        known = [instance_mappings.get(tx, member) for member in server_groups.get(tx, group.uuid).members]
        return sum(mapping is not None and not mapping.queued_for_delete for mapping in known)

    if limit < call.services.cells.api.query(living) + more:
        raise Forbidden("Quota exceeded, too many servers in group")
