"""GET and PUT of one server."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.api.moments import now, second
from kilonova.api.servers import lookup, view
from kilonova.api.servers.bodies import ServerChanges, UpdateServer, given
from kilonova.api.servers.loaders import Sources
from kilonova.api.servers.lookup import Located
from kilonova.base.errors import Conflict, DatabaseUnavailable, ServerNotFound
from kilonova.base.operation import operation
from kilonova.core.server import Server
from kilonova.store import build_requests, instance_mappings, request_specs, servers
from kilonova.store.build_requests import BuildRequest
from kilonova.store.session import Tx

_RULE = "os_compute_api:servers:"


@operation("GET", "/servers/{server_id}", rule=_RULE + "show", query=NoQuery, refuses={404})
def show_server(call: Call[None]) -> dict[str, Any]:
    """One server; from 2.69 on what is known of it while its cell is down."""
    try:
        located = lookup.find(call)
    except DatabaseUnavailable:
        if not call.since("2.69"):
            raise
        return {"server": _unreachable(call)}
    return {"server": _rendered(call, located, occasion="show")}


def _rendered(call: Call[Any], located: Located, *, occasion: str) -> dict[str, Any]:
    return view.render(call, [located.server], lookup.sources_of(call, located), occasion=occasion)[0]


def _unreachable(call: Call[Any]) -> dict[str, Any]:
    """What the API database alone knows of a server."""
    uuid = call.params["server_id"]
    with call.services.cells.api.read() as tx:
        mapping = instance_mappings.get(tx, uuid)
        spec = request_specs.get(tx, uuid)
    foreign = mapping is not None and mapping.project_id != call.context.project_id and not call.context.is_admin
    if mapping is None or spec is None or foreign:
        raise ServerNotFound(server=uuid)
    call.authorize({"project_id": mapping.project_id, "user_id": mapping.user_id})
    guess = Server(
        uuid=uuid,
        project_id=mapping.project_id,
        user_id=mapping.user_id,
        name="",
        flavor=spec.flavor,
        created_at=mapping.created_at,
        image_id=spec.image_id,
        image_properties=spec.image_properties,
        volume_backed=spec.volume_backed,
    )
    known = view.render(call, [guess], Sources(call, {}, {}), occasion="show")[0]
    shown = {
        key: known[key]
        for key in ("id", "tenant_id", "user_id", "flavor", "image", "links", "server_groups")
        if key in known
    }
    if shown["image"]:
        shown["image"].pop("properties", None)
    return shown | {
        "created": second(mapping.created_at),
        "status": "UNKNOWN",
        "OS-EXT-AZ:availability_zone": "UNKNOWN",
        "OS-EXT-STS:power_state": 0,
    }


@operation("PUT", "/servers/{server_id}", rule=_RULE + "update", body=UpdateServer, refuses={400, 404, 409})
def update_server(call: Call[UpdateServer]) -> dict[str, Any]:
    """Change what a server is called and described by."""
    located = lookup.find(call)
    changes = _changes(call, located.server)
    located = _change(call, located, changes)
    if changes.get("requested_zone", "") != "":
        _pin(call, located.server)
    return {"server": _rendered(call, located, occasion="show" if call.since("2.75") else "update")}


def _changes(call: Call[UpdateServer], server: Server) -> dict[str, Any]:
    asked: ServerChanges = call.body.server
    missing = object()
    wanted: dict[str, object] = {
        "name": given(asked.name, missing),
        "description": given(asked.description, missing),
        "access_ip_v4": given(asked.access_ip_v4, missing),
        "access_ip_v6": given(asked.access_ip_v6, missing),
        "hostname": given(asked.hostname, given(asked.short_hostname, missing)),
        "requested_zone": given(asked.pinned_zone, missing),
    }
    changes = {name: value for name, value in wanted.items() if value is not missing}
    disk_config = given(asked.disk_config, None)
    if disk_config is not None:
        changes["auto_disk_config"] = disk_config == "AUTO"
    zone = changes.get("requested_zone")
    if zone is not None and zone != server.availability_zone:
        raise Conflict(
            f"Cannot pin instance {server.uuid} to availability zone {zone}: it is in {server.availability_zone}"
        )
    return changes


def _change(call: Call[Any], located: Located, changes: dict[str, Any]) -> Located:
    """Write the changes where the server is: it may get its cell at any moment, so a miss looks again."""
    cells = call.services.cells
    uuid = located.server.uuid
    if not located.cell:

        def write(tx: Tx) -> BuildRequest | None:
            try:
                request = build_requests.get(tx, uuid)
            except ServerNotFound:
                return None
            changed = msgspec.structs.replace(request.server, updated_at=now(), **changes)
            found = build_requests.update_server(tx, changed)
            return msgspec.structs.replace(request, server=changed) if found else None

        waiting = cells.api.write(write)
        if waiting is not None:
            return Located(waiting.server, "", waiting)
        located = Located(*_again(call, uuid))
    if not changes:
        return located

    def write_in_cell(tx: Tx) -> Server:
        servers.update(tx, uuid, **changes)
        return servers.get(tx, uuid)

    return Located(cells.database(located.cell).write(write_in_cell), located.cell)


def _again(call: Call[Any], uuid: str) -> tuple[Server, str]:
    found = call.services.cells.find(uuid)
    if not found.cell:
        raise Conflict(f"Instance {uuid} is being handed over; try again.")
    return found.server, found.cell


def _pin(call: Call[Any], server: Server) -> None:
    """Moves of the server heed its zone from now on, or do not any more."""

    def write(tx: Tx) -> None:
        spec = request_specs.get(tx, server.uuid)
        if spec is not None:
            changed = msgspec.structs.replace(spec, availability_zone=server.requested_zone)
            request_specs.put(tx, server.uuid, changed)

    call.services.cells.api.write(write)
