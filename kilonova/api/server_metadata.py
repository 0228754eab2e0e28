"""The metadata of a server, item by item."""

from __future__ import annotations

from typing import Annotated, Any

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.api.quota_check import check_metadata
from kilonova.api.servers import lookup
from kilonova.api.servers.bodies import metadata_of
from kilonova.base.body import Body, wire
from kilonova.base.errors import BadRequest, NotFound
from kilonova.base.operation import operation
from kilonova.core import states
from kilonova.core.states import Action
from kilonova.store import servers
from kilonova.store.session import Tx

_PATH = "/servers/{server_id}/metadata"
_ITEM = "/servers/{server_id}/metadata/{key}"
_RULE = "os_compute_api:server-metadata:"
_ABSENT = "Metadata item was not found"


class Items(Body):
    """All items of a request."""

    metadata: Annotated[dict[str, str], wire(check=metadata_of)]


def _one(value: dict[str, str]) -> dict[str, str]:
    if len(value) != 1:
        raise ValueError(f"{value!r} does not have exactly one property")
    return metadata_of(value)


class Item(Body):
    """One item."""

    meta: Annotated[dict[str, str], wire(check=_one)]


@operation("GET", _PATH, rule=_RULE + "index", query=NoQuery, refuses={404})
def list_metadata(call: Call[None]) -> dict[str, Any]:
    """All items."""
    return {"metadata": lookup.find(call).server.metadata}


@operation("GET", _ITEM, rule=_RULE + "show", query=NoQuery, refuses={404})
def show_metadata(call: Call[None]) -> dict[str, Any]:
    """One item."""
    key, items = call.params["key"], lookup.find(call).server.metadata
    if key not in items:
        raise NotFound(_ABSENT)
    return {"meta": {key: items[key]}}


def _write(call: Call[Any], action: Action, items: dict[str, str], *, replace: bool) -> dict[str, str]:
    located = lookup.find(call, unlocked=True)
    states.check(action, located.server)
    uuid = located.server.uuid
    limit_of: dict[str, str] = {} if replace else located.server.metadata
    check_metadata(call, len({**limit_of, **items}))

    def write(tx: Tx) -> dict[str, str]:
        if replace:
            servers.replace_metadata(tx, uuid, items)
            return servers.get_metadata(tx, uuid)
        return servers.put_metadata(tx, uuid, items)

    return call.services.cells.database(located.cell).write(write)


@operation("POST", _PATH, rule=_RULE + "create", body=Items, refuses={400, 403, 404, 409})
def create_metadata(call: Call[Items]) -> dict[str, Any]:
    """Add or change items."""
    return {"metadata": _write(call, states.CREATE_METADATA, call.body.metadata, replace=False)}


@operation("PUT", _PATH, rule=_RULE + "update_all", body=Items, refuses={400, 403, 404, 409})
def replace_metadata(call: Call[Items]) -> dict[str, Any]:
    """Make these the only items."""
    return {"metadata": _write(call, states.UPDATE_METADATA, call.body.metadata, replace=True)}


@operation("PUT", _ITEM, rule=_RULE + "update", body=Item, refuses={400, 403, 404, 409})
def update_metadata(call: Call[Item]) -> dict[str, Any]:
    """Add or change one item."""
    if call.params["key"] not in call.body.meta:
        raise BadRequest("Request body and URI mismatch")
    _write(call, states.UPDATE_METADATA, call.body.meta, replace=False)
    return {"meta": call.body.meta}


@operation("DELETE", _ITEM, rule=_RULE + "delete", success=204, refuses={404, 409})
def delete_metadata(call: Call[None]) -> None:
    """Remove one item."""
    located = lookup.find(call, unlocked=True)
    key, uuid = call.params["key"], located.server.uuid
    if key not in located.server.metadata:
        raise NotFound(_ABSENT)
    states.check(states.DELETE_METADATA, located.server)
    call.services.cells.database(located.cell).write(lambda tx: servers.delete_metadata(tx, uuid, key))
