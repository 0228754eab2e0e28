"""The hypervisors: nodes as their hosts report them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from kilonova.api.call import Call
from kilonova.api.inputs import MAX_INT, LaxBool, Limit, as_bool, require_uuid
from kilonova.api.moments import now
from kilonova.api.paging import page_size, with_links
from kilonova.base.body import Query, wire
from kilonova.base.errors import BadRequest, HostNotFound, NotFound, NotImplementedHere
from kilonova.base.operation import operation
from kilonova.base.view import OMIT, Page, View, field
from kilonova.core.host import Node, Service
from kilonova.store import nodes, servers, services
from kilonova.store.session import Tx

_RULE = "os_compute_api:os-hypervisors:"
_COMPUTE = "nova-compute"
_SPECIAL = re.compile(r"[.^$*+?()\[\]{}|\\]")


class HypervisorsQuery(Query):
    """The query of both lists."""

    strict_since: ClassVar[str | None] = "2.53"

    limit: Annotated[Limit | None, wire(since="2.33")] = None
    marker: Annotated[str | None, wire(since="2.33")] = None
    pattern: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-._]*\Z")] | None,
        wire("hypervisor_hostname_pattern", since="2.53"),
    ] = None
    with_servers: Annotated[LaxBool, wire(since="2.53", check=as_bool)] = False


class ShowQuery(Query):
    """The query of one hypervisor."""

    strict_since: ClassVar[str | None] = "2.53"

    with_servers: Annotated[LaxBool, wire(since="2.53", check=as_bool)] = False


class Hypervisor(NamedTuple):
    """A node with the service that reports it, and its servers (uuid, name) where they were asked for."""

    node: Node
    service: Service
    servers: list[tuple[str, str]] | None = None


def _node(name: str) -> Callable[[Hypervisor, Page[Hypervisor]], Any]:
    return lambda found, page: getattr(found.node, name)


def _state(found: Hypervisor, page: Page[Hypervisor]) -> str:
    down_time = page.env.options.default.service_down_time
    return "up" if found.service.is_up(now=now(), down_time=down_time) else "down"


def _service(found: Hypervisor, page: Page[Hypervisor]) -> dict[str, Any]:
    by_uuid = page.env.since("2.53")
    return {
        "id": found.service.uuid if by_uuid else found.service.id,
        "host": found.service.host,
        "disabled_reason": found.service.disabled_reason,
    }


def _servers(found: Hypervisor, page: Page[Hypervisor]) -> Any:
    """A list; before 2.75 one without servers is left out."""
    if found.servers is None or (not found.servers and not page.env.since("2.75")):
        return OMIT
    return [{"uuid": uuid, "name": name} for uuid, name in found.servers]


def _cpu_info(found: Hypervisor, page: Page[Hypervisor]) -> Any:
    try:
        return msgspec.json.decode(found.node.cpu_info) if found.node.cpu_info else {}
    except msgspec.DecodeError:
        return {}


def _disk_available_least(found: Hypervisor, page: Page[Hypervisor]) -> int | None:
    reported = found.node.stats.get("disk_available_least", "")
    return int(reported) if re.fullmatch(r"-?[0-9]{1,12}", reported) else None


_DETAIL = {"detail"}

HYPERVISOR = View(
    field("id", _node("id"), until="2.52"),
    field("id", _node("uuid"), since="2.53"),
    field("hypervisor_hostname", _node("name")),
    field("state", _state),
    field("status", lambda found, page: "disabled" if found.service.disabled else "enabled"),
    field("vcpus", _node("vcpus"), until="2.87", only=_DETAIL),
    field("memory_mb", _node("memory_mb"), until="2.87", only=_DETAIL),
    field("local_gb", _node("disk_gb"), until="2.87", only=_DETAIL),
    field("vcpus_used", _node("vcpus_used"), until="2.87", only=_DETAIL),
    field("memory_mb_used", _node("memory_mb_used"), until="2.87", only=_DETAIL),
    field("local_gb_used", _node("disk_gb_used"), until="2.87", only=_DETAIL),
    field("hypervisor_type", _node("hypervisor_type"), only=_DETAIL),
    field("hypervisor_version", _node("hypervisor_version"), only=_DETAIL),
    field("host_ip", _node("host_ip"), only=_DETAIL),
    field("free_ram_mb", lambda f, page: f.node.memory_mb - f.node.memory_mb_used, until="2.87", only=_DETAIL),
    field("free_disk_gb", lambda f, page: f.node.disk_gb - f.node.disk_gb_used, until="2.87", only=_DETAIL),
    field("current_workload", _node("building"), until="2.87", only=_DETAIL),
    field("running_vms", _node("running_vms"), until="2.87", only=_DETAIL),
    field("disk_available_least", _disk_available_least, until="2.87", only=_DETAIL),
    field("cpu_info", _node("cpu_info"), until="2.27", only=_DETAIL),
    field("cpu_info", _cpu_info, since="2.28", until="2.87", only=_DETAIL),
    field("service", _service, only=_DETAIL),
    field("uptime", lambda found, page: found.node.stats.get("uptime"), since="2.88", only=_DETAIL),
    field("servers", _servers),
    field("uptime", lambda found, page: found.node.stats.get("uptime"), until="2.87", only={"uptime"}),
)


def _render(call: Call[Any], found: list[Hypervisor], *, occasion: str) -> list[dict[str, Any]]:
    return HYPERVISOR.render(Page(found, version=call.version, env=call), occasion=occasion)


def _joined(tx: Tx, found: Iterable[Node], *, with_servers: bool) -> list[Hypervisor]:
    """The nodes with their services; those whose service is gone are left out."""
    by_host = {service.host: service for service in services.listing(tx) if service.binary == _COMPUTE}
    return [
        Hypervisor(
            node,
            by_host[node.host],
            [(s.uuid, s.name) for s in servers.on_host(tx, node.host) if s.node in (None, node.name)]
            if with_servers
            else None,
        )
        for node in found
        if node.host in by_host
    ]


def _page(
    call: Call[Any],
    *,
    limit: int | None = None,
    marker: str | None = None,
    pattern: str | None = None,
    with_servers: bool = False,
) -> list[Hypervisor]:
    """The hypervisors of all cells: cell after cell, by number in each."""
    cells = call.services.cells
    contained = None if pattern is None else _SPECIAL.sub(r"\\\g<0>", pattern)

    def page_behind(number: int | None) -> Callable[[Tx], list[Hypervisor]]:
        def read(tx: Tx) -> list[Hypervisor]:
            listed = nodes.listing(tx, limit=limit, marker=number, pattern=contained)
            return _joined(tx, listed, with_servers=with_servers)

        return read

    every = sorted(mapping.uuid for mapping in cells.all(disabled=True))
    parts: dict[str, list[Hypervisor]] = {}
    if marker is not None:
        begin, last = _position(call, marker)
        parts = dict(cells.gather(page_behind(last.id), cells=[begin]).found)
        every = [cell for cell in every if cell > begin]
    parts |= cells.gather(page_behind(None), cells=every).found
    return [found for cell in sorted(parts) for found in parts[cell]][:limit]


def _position(call: Call[Any], marker: str) -> tuple[str, Node]:
    for cell, node in _find(call, marker):
        return cell, node
    raise BadRequest(f"marker [{marker}] not found")


def _find(call: Call[Any], key: str) -> list[tuple[str, Node]]:
    """Nodes by UUID (since 2.53) or number, with their cells."""
    by_uuid = call.since("2.53")
    if not by_uuid and (not re.fullmatch(r"[0-9]{1,10}", key) or int(key) > MAX_INT):
        return []

    def match(tx: Tx) -> Node | None:
        try:
            return nodes.get(tx, key) if by_uuid else nodes.get_by_number(tx, int(key))
        except HostNotFound:
            return None

    parts = call.services.cells.gather(match).found.items()
    return [(cell, node) for cell, node in parts if node is not None]


@operation("GET", "/os-hypervisors", rule=_RULE + "list", query=HypervisorsQuery, refuses={400, 404})
def list_hypervisors(call: Call[None]) -> dict[str, Any]:
    """The hypervisors, briefly."""
    return _list(call, occasion="list", collection="os-hypervisors")


@operation("GET", "/os-hypervisors/detail", rule=_RULE + "list-detail", query=HypervisorsQuery, refuses={400, 404})
def list_hypervisors_in_detail(call: Call[None]) -> dict[str, Any]:
    """The hypervisors with what they have and use."""
    return _list(call, occasion="detail", collection="os-hypervisors/detail")


def _list(call: Call[None], *, occasion: str, collection: str) -> dict[str, Any]:
    call.authorize()
    query: HypervisorsQuery = call.query
    if query.pattern is not None and (query.limit is not None or query.marker is not None):
        raise BadRequest(
            "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
        )
    if not call.since("2.33"):
        return {"hypervisors": _render(call, _page(call), occasion=occasion)}
    size = page_size(call, query.limit)
    found = _page(call, limit=size, marker=query.marker, pattern=query.pattern, with_servers=bool(query.with_servers))
    if query.pattern is not None and not found:
        raise NotFound(f"No hypervisor matching '{query.pattern}' could be found.")
    body = {"hypervisors": _render(call, found, occasion=occasion)}
    if query.pattern is not None:
        return body
    by_uuid = call.since("2.53")
    markers = [item.node.uuid if by_uuid else str(item.node.id) for item in found]
    return with_links(call, body, "hypervisors", collection=collection, size=size, markers=markers)


def _one(call: Call[Any], *, with_servers: bool = False) -> Hypervisor:
    key = call.params["hypervisor_id"]
    if call.since("2.53"):
        require_uuid(key)
    for cell, node in _find(call, key):
        with call.services.cells.database(cell).read() as tx:
            joined = _joined(tx, [node], with_servers=with_servers)
        if joined:
            return joined[0]
    raise NotFound(f"Hypervisor with ID '{key}' could not be found.")


@operation("GET", "/os-hypervisors/statistics", rule=_RULE + "statistics", until="2.87")
def show_statistics(call: Call[None]) -> dict[str, Any]:
    """Sums over all hypervisors."""
    call.authorize()
    found = [item.node for item in _page(call)]
    sums = {
        "count": len(found),
        "vcpus": sum(node.vcpus for node in found),
        "memory_mb": sum(node.memory_mb for node in found),
        "local_gb": sum(node.disk_gb for node in found),
        "vcpus_used": sum(node.vcpus_used for node in found),
        "memory_mb_used": sum(node.memory_mb_used for node in found),
        "local_gb_used": sum(node.disk_gb_used for node in found),
        "free_ram_mb": sum(node.memory_mb - node.memory_mb_used for node in found),
        "free_disk_gb": sum(node.disk_gb - node.disk_gb_used for node in found),
        "current_workload": sum(node.building for node in found),
        "running_vms": sum(node.running_vms for node in found),
        "disk_available_least": sum(node.disk_gb - node.disk_gb_used for node in found),
    }
    return {"hypervisor_statistics": sums}


@operation("GET", "/os-hypervisors/{hypervisor_id}", rule=_RULE + "show", query=ShowQuery, refuses={400, 404})
def show_hypervisor(call: Call[None]) -> dict[str, Any]:
    """One hypervisor."""
    call.authorize()
    found = _one(call, with_servers=bool(call.query.with_servers))
    return {"hypervisor": _render(call, [found], occasion="detail")[0]}


@operation(
    "GET", "/os-hypervisors/{hypervisor_id}/uptime", rule=_RULE + "uptime", until="2.87", refuses={400, 404, 501}
)
def show_uptime(call: Call[None]) -> dict[str, Any]:
    """How long a host is up, in its own words."""
    call.authorize()
    found = _one(call)
    if not found.service.is_up(now=now(), down_time=call.options.default.service_down_time):
        raise BadRequest(f"Compute service of {found.node.host} is unavailable at this time.")
    if "uptime" not in found.node.stats:
        raise NotImplementedHere("Virt driver does not implement host uptime.")
    return {"hypervisor": _render(call, [found], occasion="uptime")[0]}


@operation("GET", "/os-hypervisors/{pattern}/search", rule=_RULE + "search", until="2.52", refuses={404})
def search_hypervisors(call: Call[None]) -> dict[str, Any]:
    """The hypervisors whose name contains a text."""
    return {"hypervisors": _render(call, _matching(call), occasion="list")}


@operation("GET", "/os-hypervisors/{pattern}/servers", rule=_RULE + "servers", until="2.52", refuses={404})
def list_servers_of_hypervisors(call: Call[None]) -> dict[str, Any]:
    """The hypervisors whose name contains a text, with their servers."""
    return {"hypervisors": _render(call, _matching(call, with_servers=True), occasion="list")}


def _matching(call: Call[None], *, with_servers: bool = False) -> list[Hypervisor]:
    call.authorize()
    pattern = call.params["pattern"]
    found = _page(call, pattern=pattern, with_servers=with_servers)
    if not found:
        raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
    return found
