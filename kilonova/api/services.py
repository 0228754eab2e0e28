"""The compute services: their health, and taking them out of use."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, UnsetType

from kilonova.api.availability_zones import HIDDEN, all_services, reachable_services, with_zones
from kilonova.api.call import Call
from kilonova.api.inputs import HostName, LaxBool, Short, as_bool, require_int, require_uuid
from kilonova.api.moments import micro, now
from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest, Conflict, NotFound, ServiceNotFound
from kilonova.base.operation import operation
from kilonova.base.view import Page, View, field
from kilonova.core.host import Service
from kilonova.store import aggregates, nodes, servers, services
from kilonova.store.session import Tx

_RULE = "os_compute_api:os-services:"
_COMPUTE = "nova-compute"


class ServicesQuery(Query):
    """The query of the list."""

    strict_since: ClassVar[str | None] = "2.75"

    host: str | None = None
    binary: str | None = None


class NamedService(Body):
    """A service by host and binary, and what shall become of it: the form up to 2.52."""

    host: HostName
    binary: Short
    disabled_reason: Short | UnsetType = UNSET
    forced_down: Annotated[LaxBool | UnsetType, wire(since="2.11", check=as_bool)] = UNSET


class ServiceChange(Body):
    """What shall become of the service in the path: the form since 2.53."""

    status: Literal["enabled", "disabled"] | UnsetType = UNSET
    disabled_reason: Short | UnsetType = UNSET
    forced_down: Annotated[LaxBool | UnsetType, wire(check=as_bool)] = UNSET


def _state(service: Service, page: Page[Service]) -> str:
    down_time = page.env.options.default.service_down_time
    return "up" if service.is_up(now=now(), down_time=down_time) else "down"


SERVICE = View(
    field("id", lambda service, page: service.id, until="2.52"),
    field("id", lambda service, page: service.uuid, since="2.53"),
    field("binary", lambda service, page: service.binary),
    field("host", lambda service, page: service.host),
    field("zone", lambda service, page: service.availability_zone),
    field("status", lambda service, page: "disabled" if service.disabled else "enabled"),
    field("state", _state),
    field("updated_at", lambda service, page: micro(service.last_seen_up or service.updated_at)),
    field("disabled_reason", lambda service, page: service.disabled_reason),
    field("forced_down", lambda service, page: service.forced_down, since="2.11"),
)


def _render(call: Call[Any], found: list[Service]) -> list[dict[str, Any]]:
    return SERVICE.render(Page(found, version=call.version, env=call))


@operation("GET", "/os-services", rule=_RULE + "list", query=ServicesQuery)
def list_services(call: Call[None]) -> dict[str, Any]:
    """The services; since 2.69 with what little is known of those in cells that do not answer."""
    call.authorize()
    query: ServicesQuery = call.query
    every, down = reachable_services(call)
    found = [
        service for service in every if query.host in (None, service.host) and query.binary in (None, service.binary)
    ]
    rows = _render(call, found)
    if call.since("2.69") and query.binary in (None, _COMPUTE):
        rows += [row for row in _out_of_reach(call, down) if query.host in (None, row["host"])]
    return {"services": rows}


def _out_of_reach(call: Call[None], down: list[str]) -> list[dict[str, Any]]:
    hosts = sorted(host for cell in down for host in call.services.cells.host_mappings(cell))
    return [{"binary": _COMPUTE, "host": host, "status": "UNKNOWN"} for host in hosts]


@operation(
    "PUT", "/os-services/{service_id}", rule=_RULE + "update", until="2.52", body=NamedService, refuses={400, 404}
)
def act_on_service(call: Call[NamedService]) -> dict[str, Any]:
    """Enable, disable or force down a service by host and binary; what to do is the last part of the path."""
    call.authorize()
    asked, verb = call.body, call.params["service_id"]
    shown: dict[str, Any] = {"host": asked.host, "binary": asked.binary}
    changes: dict[str, Any]
    if verb == "enable":
        changes = {"disabled": False, "disabled_reason": None}
        shown["status"] = "enabled"
    elif verb == "disable":
        changes = {"disabled": True, "disabled_reason": None}
        shown["status"] = "disabled"
    elif verb == "disable-log-reason":
        if asked.disabled_reason is UNSET:
            raise BadRequest("Missing disabled reason field")
        changes = {"disabled": True, "disabled_reason": asked.disabled_reason}
        shown |= {"status": "disabled", "disabled_reason": asked.disabled_reason}
    elif verb == "force-down" and call.since("2.11"):
        if asked.forced_down is UNSET:
            raise BadRequest("Missing forced_down field")
        changes = {"forced_down": asked.forced_down}
        shown["forced_down"] = asked.forced_down
    else:
        raise NotFound("Unknown action")
    service = _named(call)
    _write(call, service, changes)
    return {"service": shown}


def _named(call: Call[NamedService]) -> Service:
    asked = call.body
    for service in all_services(call):
        if (service.host, service.binary) == (asked.host, asked.binary):
            return service
    raise NotFound(f"Could not find binary {asked.binary} on host {asked.host}.")


def _write(call: Call[Any], service: Service, changes: dict[str, Any]) -> None:
    """Change the record. The host learns of it by its next heartbeat, and then sets its trait in Placement."""
    database = call.services.cells.database(service.cell)
    database.write(lambda tx: services.update(tx, service.uuid, **changes))


@operation(
    "PUT", "/os-services/{service_id}", rule=_RULE + "update", since="2.53", body=ServiceChange, refuses={400, 404}
)
def update_service(call: Call[ServiceChange]) -> dict[str, Any]:
    """Enable, disable or force down a nova-compute."""
    call.authorize()
    asked = call.body
    service = _by_uuid(call)
    if service.binary != _COMPUTE:
        raise BadRequest(
            f"Updating a {service.binary} service is not supported. Only nova-compute services can be updated."
        )
    changes: dict[str, Any] = {}
    if asked.disabled_reason is not UNSET and asked.status != "disabled":
        status = "None" if asked.status is UNSET else asked.status
        raise BadRequest(f"Specifying 'disabled_reason' when status is '{status}' is invalid.")
    if asked.status is not UNSET:
        changes["disabled"] = asked.status == "disabled"
        changes["disabled_reason"] = None if asked.disabled_reason is UNSET else asked.disabled_reason
    if asked.forced_down is not UNSET:
        changes["forced_down"] = asked.forced_down
    if not changes:
        raise BadRequest("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    _write(call, service, changes)
    return {"service": _render(call, with_zones(call, [_by_uuid(call)]))[0]}


def _by_uuid(call: Call[Any]) -> Service:
    uuid = require_uuid(call.params["service_id"])

    def find(tx: Tx) -> Service | None:
        try:
            return services.get(tx, uuid)
        except ServiceNotFound:
            return None

    for cell, service in call.services.cells.gather(find).found.items():
        if service is not None and service.binary not in HIDDEN:
            service.cell = cell
            return service
    raise ServiceNotFound(service=uuid)


def _by_number(call: Call[Any]) -> Service:
    number = require_int(call.params["service_id"])
    found = [service for service in all_services(call) if service.id == number]
    if not found:
        raise ServiceNotFound(service=number)
    if len(found) > 1:
        raise BadRequest(f"Service id {number} refers to multiple services.")
    return found[0]


@operation("DELETE", "/os-services/{service_id}", rule=_RULE + "delete", success=204, refuses={400, 404, 409})
def delete_service(call: Call[None]) -> None:
    """Remove a service for good; a nova-compute only when its host has no servers.

    Placement goes first: a failure there leaves everything as it was, and the request may be repeated.
    """
    call.authorize()
    service = _by_uuid(call) if call.since("2.53") else _by_number(call)
    cells = call.services.cells
    database = cells.database(service.cell)
    if service.binary == _COMPUTE:
        with database.read() as tx:
            hosted, here = servers.on_host(tx, service.host), nodes.by_host(tx, service.host)
        if hosted:
            raise Conflict(
                "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
            )
        for node in here:
            call.services.placement.delete_provider(node.uuid)

        def forget(tx: Tx) -> None:
            for found in aggregates.listing(tx):
                if service.host in found.hosts:
                    aggregates.remove_host(tx, found.id, service.host)

        cells.api.write(forget)

    def delete(tx: Tx) -> None:
        if service.binary == _COMPUTE:
            for node in nodes.by_host(tx, service.host):
                nodes.delete(tx, node.uuid)
        services.delete(tx, service.uuid)

    database.write(delete)
    if service.binary == _COMPUTE:
        cells.unmap_host(service.host)
