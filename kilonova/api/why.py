"""Our own resource for administrators: how a server's host was chosen, or why none was."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.base.errors import NotFound, ServerNotFound
from kilonova.base.operation import operation
from kilonova.store import decisions


@operation(
    "GET", "/servers/{server_id}/kilonova-why", rule="os_compute_api:kilonova:why", query=NoQuery, refuses={403, 404}
)
def show_why(call: Call[None]) -> dict[str, Any]:
    """The latest decision of the scheduler about a server.

    {"why": {"server", "query", "candidates", "lacking", "prefilters", "filters": [{"filter", "refused", "left",
    "reasons": [[host, reason]]}], "weights": [[host, weight, {part: value}]], "claims": [[host, result]], "chosen",
    "seed", "seconds", "brief"}}
    """
    server = call.params["server_id"]
    call.authorize()
    cells = call.services.cells
    with cells.api.read() as tx:
        found = decisions.latest(tx, server)
    if found is None:
        if cells.mapping(server) is None:
            raise ServerNotFound(server=server)
        raise NotFound(f"No scheduling decision on instance {server} is on record.")
    return {"why": {"server": server, **msgspec.to_builtins(found)}}
