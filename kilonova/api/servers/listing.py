"""GET /servers and /servers/detail: one page out of build requests, all cells and cell0."""

from __future__ import annotations

from typing import Any

from kilonova.api.call import Call
from kilonova.api.moments import second
from kilonova.api.paging import with_links
from kilonova.api.servers import view
from kilonova.api.servers.loaders import Sources
from kilonova.api.servers.query import ListQuery, Wanted, read_query
from kilonova.base.errors import BadRequest, Fault, ServerNotFound
from kilonova.base.operation import operation
from kilonova.core.server import Server
from kilonova.store import build_requests, instance_mappings, servers
from kilonova.store.gather import Gathered
from kilonova.store.listing import merge

_RULE = "os_compute_api:servers:"


@operation("GET", "/servers", rule=_RULE + "index", query=ListQuery, refuses={400, 403})
def list_servers(call: Call[None]) -> dict[str, Any]:
    """Servers by name."""
    return _answer(call, occasion="list")


@operation("GET", "/servers/detail", rule=_RULE + "detail", query=ListQuery, refuses={400, 403})
def list_servers_in_detail(call: Call[None]) -> dict[str, Any]:
    """Servers with all that can be seen of them."""
    return _answer(call, occasion="detail")


def _answer(call: Call[Any], *, occasion: str) -> dict[str, Any]:
    wanted = read_query(call, occasion=occasion)
    if wanted.nothing or wanted.size == 0:
        return {"servers": []}
    _find_marker(call, wanted)
    found, sources, gathered = _collect(call, wanted)
    shown = view.render(call, found, sources, occasion=occasion)
    if gathered.down:
        shown = _of_down_cells(call, wanted, gathered, occasion=occasion) + shown
    return with_links(
        call,
        {"servers": shown},
        "servers",
        collection="servers" if occasion == "list" else "servers/detail",
        size=wanted.size,
        markers=[server.uuid for server in found],
    )


def _find_marker(call: Call[Any], wanted: Wanted) -> None:
    """The marker may be in any cell, and deleted by now."""
    if wanted.marker is None:
        return
    try:
        wanted.listing.marker = call.services.cells.find(wanted.marker, deleted=True).server
    except ServerNotFound:
        raise BadRequest(f"marker [{wanted.marker}] not found") from None
    project_id = wanted.listing.project_id
    if project_id is not None and wanted.listing.marker.project_id != project_id and not call.context.is_admin:
        raise BadRequest(f"marker [{wanted.marker}] not found")


def _collect(call: Call[Any], wanted: Wanted) -> tuple[list[Server], Sources, Gathered[list[Server]]]:
    """Build requests are read before the cells, so that a server which gets its cell meanwhile is in one of both."""
    listing, cells = wanted.listing, call.services.cells
    requests = cells.api.query(lambda tx: build_requests.listing(tx, listing.project_id, wanted=listing))
    gathered = cells.gather(lambda tx: servers.listing(tx, listing))
    waiting = {request.server.uuid: request for request in requests}
    homes: dict[str, str] = {}
    parts = [[request.server for request in requests]]
    for cell, part in gathered.found.items():
        parts.append(part)
        for server in part:
            if server.uuid not in waiting:
                homes.setdefault(server.uuid, cell)
    return merge(parts, listing), Sources(call, homes, waiting), gathered


def _of_down_cells(
    call: Call[Any], wanted: Wanted, gathered: Gathered[list[Server]], *, occasion: str
) -> list[dict[str, Any]]:
    """What the API database knows of servers in cells that do not answer, when nothing narrows the list."""
    if not call.since("2.69") or not wanted.bare:
        if not call.options.api.list_records_by_skipping_down_cells:
            raise Fault(f"Cells do not answer: {', '.join(sorted(gathered.down))}")
        return []
    shown: list[dict[str, Any]] = []
    for cell in gathered.down:
        with call.services.cells.api.read() as tx:
            known = instance_mappings.listing(tx, cell=cell, project_id=wanted.listing.project_id, limit=wanted.size)
        for mapping in known:
            created = second(mapping.created_at) or ""
            shown.append(view.unreachable(call, mapping.server, mapping.project_id, created, occasion=occasion))
    return shown
