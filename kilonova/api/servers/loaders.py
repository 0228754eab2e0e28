"""What the fields of servers look up, once for all servers of a page."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kilonova.api.call import Call
from kilonova.api.moments import now
from kilonova.base.view import Page
from kilonova.core.device import BlockDevice
from kilonova.core.host import Service
from kilonova.core.server import Server, ServerFault
from kilonova.store import devices, request_specs, server_groups, servers, services

if TYPE_CHECKING:
    from kilonova.store.build_requests import BuildRequest
    from kilonova.store.session import Tx

V = TypeVar("V")


@dataclasses.dataclass(frozen=True)
class Sources:
    """The request, and where each server of the page is: the uuid of its cell, or its build request."""

    call: Call[Any]
    cells: Mapping[str, str]
    requests: Mapping[str, BuildRequest]


def page_of(call: Call[Any], found: Sequence[Server], sources: Sources) -> Page[Server]:
    """The servers as a page of the view."""
    return Page(found, version=call.version, env=sources)


def _from_cells(page: Page[Server], read: Callable[[Tx, list[str]], dict[str, V]]) -> dict[str, V]:
    """What ``read`` finds for the servers of the page, over all cells that they are in."""
    sources: Sources = page.env
    in_cells = [server.uuid for server in page.objects if sources.cells.get(server.uuid)]
    cells = sorted({sources.cells[uuid] for uuid in in_cells})
    if not cells:
        return {}
    found: dict[str, V] = {}
    for part in sources.call.services.cells.gather(lambda tx: read(tx, in_cells), cells=cells).found.values():
        found.update(part)
    return found


def faults(page: Page[Server]) -> dict[str, ServerFault]:
    """The last fault of each server that has one."""
    return _from_cells(page, servers.latest_faults)


def block_devices(page: Page[Server]) -> dict[str, list[BlockDevice]]:
    """The block devices of each server."""
    waiting = {uuid: request.devices for uuid, request in page.env.requests.items()}
    return {**waiting, **_from_cells(page, devices.for_servers)}


def hints(page: Page[Server]) -> dict[str, dict[str, list[str]]]:
    """The scheduler hints of each server."""
    sources: Sources = page.env
    found = {uuid: request.request.hints for uuid, request in sources.requests.items()}
    others = [server.uuid for server in page.objects if server.uuid not in found]
    specs = sources.call.services.cells.api.query(lambda tx: request_specs.many(tx, others))
    return found | {uuid: spec.hints for uuid, spec in specs.items()}


def groups(page: Page[Server]) -> dict[str, list[str]]:
    """The server group of each server, as a list of none or one."""
    uuids = [server.uuid for server in page.objects]
    with page.env.call.services.cells.api.read() as tx:
        return {uuid: [group.uuid] for uuid, group in server_groups.of_servers(tx, uuids).items()}


def host_states(page: Page[Server]) -> dict[str, str]:
    """The status of each host that holds a server of the page."""
    options = page.env.call.options
    at = now()

    def read(tx: Tx, _: list[str]) -> dict[str, str]:
        return {
            service.host: host_status(service, at=at, down_time=options.default.service_down_time)
            for service in services.listing(tx)
            if service.binary == "nova-compute"
        }

    return _from_cells(page, read)


def host_status(service: Service, *, at: datetime.datetime, down_time: float) -> str:
    """DOWN where it was forced down, MAINTENANCE where it is disabled, UP or UNKNOWN by its heartbeat."""
    if service.forced_down:
        return "DOWN"
    if service.disabled:
        return "MAINTENANCE"
    return "UP" if service.is_up(now=at, down_time=down_time) else "UNKNOWN"
