"""Host aggregates: sets of hosts with metadata, and the availability zones that they make."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from kilonova.api.call import Call
from kilonova.api.inputs import HostName, NoQuery, Short, loose_name_of, name_of, require_int, zone_of
from kilonova.api.moments import micro
from kilonova.base import log
from kilonova.base.body import Body, wire
from kilonova.base.errors import BadRequest, Conflict, Fault, HostNotFound, NotFound
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.core.host import Aggregate
from kilonova.store import aggregates, nodes, servers
from kilonova.store.session import Tx

LOG = log.of(__name__)

_RULE = "os_compute_api:os-aggregates:"
_ZONE = "availability_zone"
_KEY = re.compile(r"[a-zA-Z0-9\-_:. ]{1,255}")
_IN_USE = "One or more hosts contain instances in this zone"


def _keys_fit(metadata: dict[str, str | None]) -> dict[str, str | None]:
    for key in metadata:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} does not match {_KEY.pattern!r}")
    if not metadata:
        return metadata
    zone_of(metadata.get(_ZONE) or None)
    return metadata


class NewAggregate(Body):
    """An aggregate to be made."""

    name: Annotated[Short, wire(check=name_of)]
    availability_zone: Annotated[Short | None, wire(check=zone_of)] = None


class CreateAggregate(Body):
    """POST /os-aggregates."""

    aggregate: NewAggregate


class AggregateChange(Body):
    """What may be changed; at least one of both."""

    name: Annotated[Short | UnsetType, wire(check=loose_name_of)] = UNSET
    availability_zone: Annotated[Short | UnsetType | None, wire(check=zone_of)] = UNSET


class UpdateAggregate(Body):
    """PUT /os-aggregates/{aggregate_id}."""

    aggregate: AggregateChange


class OneHost(Body):
    """The host that comes or goes."""

    host: HostName


class Metadata(Body):
    """Keys to be set; null removes one."""

    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=255)] | None], wire(check=_keys_fit)]


AGGREGATE = View(
    field("id", lambda found, page: found.id),
    field("uuid", lambda found, page: found.uuid, since="2.41"),
    field("name", lambda found, page: found.name),
    field("hosts", lambda found, page: found.hosts, only={"show"}),
    field("metadata", lambda found, page: found.metadata, only={"show"}),
    field("created_at", lambda found, page: micro(found.created_at)),
    field("updated_at", lambda found, page: micro(found.updated_at)),
    field("deleted_at", lambda found, page: None),
    field("deleted", lambda found, page: False),
    field(_ZONE, lambda found, page: found.availability_zone),
)


def _render(call: Call[Any], found: list[Aggregate], *, occasion: str = "show") -> list[dict[str, Any]]:
    return AGGREGATE.render(Page(found, version=call.version, env=call), occasion=occasion)


def _get(call: Call[Any]) -> Aggregate:
    number = require_int(call.params["aggregate_id"])
    with call.services.cells.api.read() as tx:
        return aggregates.get(tx, number)


def _shown(call: Call[Any], number: int) -> dict[str, Any]:
    with call.services.cells.api.read() as tx:
        return {"aggregate": _render(call, [aggregates.get(tx, number)])[0]}


@operation("GET", "/os-aggregates", rule=_RULE + "index", query=NoQuery)
def list_aggregates(call: Call[None]) -> dict[str, Any]:
    """All aggregates."""
    call.authorize()
    with call.services.cells.api.read() as tx:
        found = aggregates.listing(tx)
    return {"aggregates": _render(call, found)}


@operation("POST", "/os-aggregates", rule=_RULE + "create", body=CreateAggregate, refuses={400, 409})
def create_aggregate(call: Call[CreateAggregate]) -> dict[str, Any]:
    """Make an empty aggregate."""
    call.authorize()
    asked = call.body.aggregate
    metadata = {} if asked.availability_zone is None else {_ZONE: asked.availability_zone}
    made = call.services.cells.api.write(lambda tx: aggregates.insert(tx, asked.name, metadata=metadata))
    return {"aggregate": _render(call, [made], occasion="create")[0]}


@operation("GET", "/os-aggregates/{aggregate_id}", rule=_RULE + "show", query=NoQuery, refuses={400, 404})
def show_aggregate(call: Call[None]) -> dict[str, Any]:
    """One aggregate."""
    call.authorize()
    return {"aggregate": _render(call, [_get(call)])[0]}


@operation("PUT", "/os-aggregates/{aggregate_id}", rule=_RULE + "update", body=UpdateAggregate, refuses={400, 404, 409})
def update_aggregate(call: Call[UpdateAggregate]) -> dict[str, Any]:
    """Change the name or the availability zone."""
    call.authorize()
    asked = call.body.aggregate
    if asked.name is UNSET and asked.availability_zone is UNSET:
        raise BadRequest("{} is not valid under any of the given schemas")
    found = _get(call)
    if asked.availability_zone is not UNSET:
        _require_zone_free(call, found, asked.availability_zone, hosts=found.hosts)

    def change(tx: Tx) -> None:
        if asked.name is not UNSET:
            aggregates.update(tx, found.id, name=asked.name)
        if asked.availability_zone is not UNSET:
            aggregates.put_metadata(tx, found.id, {_ZONE: asked.availability_zone})

    call.services.cells.api.write(change)
    return _shown(call, found.id)


@operation("DELETE", "/os-aggregates/{aggregate_id}", rule=_RULE + "delete", refuses={400, 404})
def delete_aggregate(call: Call[None]) -> None:
    """Delete an aggregate without hosts."""
    call.authorize()
    found = _get(call)
    if found.hosts:
        raise BadRequest(f"Cannot delete aggregate {found.id}. Reason: Host aggregate is not empty")
    call.services.cells.api.write(lambda tx: aggregates.delete(tx, found.id))


@operation(
    "POST",
    "/os-aggregates/{aggregate_id}/action",
    action="add_host",
    rule=_RULE + "add_host",
    body=OneHost,
    refuses={400, 404, 409},
)
def add_host(call: Call[OneHost]) -> dict[str, Any]:
    """Put a host into the aggregate."""
    call.authorize()
    found, host = _get(call), call.body.host
    cell = _cell_of(call, host)
    if host in found.hosts:
        raise Conflict(f"Aggregate {found.id} already has host {host}.")
    zone = found.availability_zone
    if zone is not None:
        _require_zone_free(call, found, zone, hosts=[host], adding=True)
        _require_no_servers(call, host, zone=zone, cell=cell, action=f"Cannot add host to aggregate {found.id}")
    call.services.cells.api.write(lambda tx: aggregates.add_host(tx, found.id, host))
    _tell_placement(call, host, cell)
    return _shown(call, found.id)


@operation(
    "POST",
    "/os-aggregates/{aggregate_id}/action",
    action="remove_host",
    rule=_RULE + "remove_host",
    body=OneHost,
    refuses={400, 404, 409},
)
def remove_host(call: Call[OneHost]) -> dict[str, Any]:
    """Take a host out of the aggregate."""
    call.authorize()
    found, host = _get(call), call.body.host
    cell = call.services.cells.host_mapping(host)
    if host not in found.hosts:
        if cell is None:
            raise HostNotFound(host=host)
        raise NotFound(f"Aggregate {found.id} has no host {host}.")
    if found.availability_zone is not None and cell is not None:
        _require_no_servers(call, host, zone=None, cell=cell, action=f"Cannot remove host from aggregate {found.id}")
    call.services.cells.api.write(lambda tx: aggregates.remove_host(tx, found.id, host))
    if cell is not None:
        _tell_placement(call, host, cell)
    return _shown(call, found.id)


@operation(
    "POST",
    "/os-aggregates/{aggregate_id}/action",
    action="set_metadata",
    rule=_RULE + "set_metadata",
    body=Metadata,
    refuses={400, 404},
)
def set_metadata(call: Call[Metadata]) -> dict[str, Any]:
    """Set keys, and remove those that are null."""
    call.authorize()
    found, metadata = _get(call), call.body.metadata
    if _ZONE in metadata:
        if metadata[_ZONE] == "":
            raise BadRequest(f"Cannot update metadata of aggregate {found.id}. Reason: Availability zone is empty")
        _require_zone_free(call, found, metadata[_ZONE], hosts=found.hosts)
    call.services.cells.api.write(lambda tx: aggregates.put_metadata(tx, found.id, metadata))
    return _shown(call, found.id)


def _cell_of(call: Call[Any], host: str) -> str:
    cell = call.services.cells.host_mapping(host)
    if cell is None:
        raise HostNotFound(host=host)
    return cell


def _require_zone_free(
    call: Call[Any], found: Aggregate, zone: str | None, *, hosts: list[str], adding: bool = False
) -> None:
    """A host is in one zone only, and does not change it under its servers."""
    if not hosts or (zone == found.availability_zone and not adding):
        return
    if zone is not None:
        with call.services.cells.api.read() as tx:
            others = [other for other in aggregates.listing(tx) if other.id != found.id]
        taken = {
            other.availability_zone for other in others if other.availability_zone and set(other.hosts) & set(hosts)
        } - {zone}
        if taken:
            reason = f"Reason: One or more hosts already in availability zone(s) {sorted(taken)}"
            if adding:
                raise Conflict(f"Cannot add host to aggregate {found.id}. {reason}")
            raise BadRequest(f"Cannot update aggregate {found.id}. {reason}")
    if not adding and _any_servers(call, hosts):
        raise BadRequest(f"Cannot update aggregate {found.id}. Reason: {_IN_USE}")


def _any_servers(call: Call[Any], hosts: list[str]) -> bool:
    asked = call.services.cells.gather(lambda tx: any(servers.on_host(tx, host) for host in hosts))
    return any(asked.found.values())


def _require_no_servers(call: Call[Any], host: str, *, zone: str | None, cell: str, action: str) -> None:
    """A host with servers in another zone than ``zone`` stays where it is: their zone is part of what was promised."""
    with call.services.cells.database(cell).read() as tx:
        here = servers.on_host(tx, host)
    if any(server.availability_zone != zone for server in here):
        raise Conflict(f"{action}. Reason: {_IN_USE}")


def _tell_placement(call: Call[Any], host: str, cell: str) -> None:
    """Make Placement's aggregates of the host's nodes those that it is in.

    The record is written already; where Placement fails, the host is right here and the scheduler's filters hold.
    """
    try:
        with call.services.cells.api.read() as tx:
            member_of = [found.uuid for found in aggregates.listing(tx) if host in found.hosts]
        with call.services.cells.database(cell).read() as tx:
            here = nodes.by_host(tx, host)
        for node in here:
            call.services.placement.ensure_aggregates(node.uuid, member_of)
    except Fault as error:
        LOG.warning("Placement does not know yet in which aggregates host %s is: %s", host, error.message)
