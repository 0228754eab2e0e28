"""The addresses of a server, by network."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.api.servers import lookup
from kilonova.api.servers.view import addresses
from kilonova.base.errors import NotFound
from kilonova.base.operation import operation

_RULE = "os_compute_api:ips:"


def _addresses(call: Call[Any]) -> dict[str, Any]:
    server = lookup.find(call).server
    return addresses(msgspec.structs.replace(server, vm_state="active"), extended=False)


@operation("GET", "/servers/{server_id}/ips", rule=_RULE + "index", query=NoQuery, refuses={404})
def list_addresses(call: Call[None]) -> dict[str, Any]:
    """All addresses, by the names of their networks."""
    return {"addresses": _addresses(call)}


@operation("GET", "/servers/{server_id}/ips/{network}", rule=_RULE + "show", query=NoQuery, refuses={404})
def show_addresses(call: Call[None]) -> dict[str, Any]:
    """The addresses on one network."""
    found, network = _addresses(call), call.params["network"]
    if network not in found:
        raise NotFound("Instance is not a member of specified network")
    return {network: found[network]}
