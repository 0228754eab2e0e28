"""Hosts that are in a cell's database and that the API database does not know of yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kilonova.cmd.manage.operator import Operator
from kilonova.store import nodes, services
from kilonova.store.cells import CELL0_UUID, CellMapping
from kilonova.store.session import Tx


class Discovered(msgspec.Struct):
    """Hosts mapped now; a text when one of them is mapped to another cell already; cells that gave no answer."""

    hosts: list[str] = []
    duplicate: str = ""
    silent: list[str] = []


def discover(operator: Operator, *, cell_uuid: str | None, by_service: bool, say: Callable[[str], None]) -> Discovered:
    """Map the hosts of the cells (of one, where named). ``by_service``: look for nova-compute, not for its nodes."""
    found = Discovered()
    mappings = [m for m in operator.cells.all(disabled=True) if cell_uuid in (None, m.uuid)]
    say(f"Found {len(mappings)} cell mappings.")
    for cell in mappings:
        if cell.uuid == CELL0_UUID:
            say("Skipping cell0 since it does not contain hosts.")
            continue
        say(f"Getting computes from cell '{cell.name}': {cell.uuid}")
        gathered = operator.cells.gather(_hosts_by_service if by_service else _hosts_by_node, cells=[cell.uuid])
        if cell.uuid in gathered.down:
            found.silent.append(cell.name or cell.uuid)
            continue
        _map(operator, cell, gathered.found[cell.uuid], found=found, say=say)
    return found


def _hosts_by_node(tx: Tx) -> dict[str, list[str]]:
    """The uuids of its nodes by host."""
    hosts: dict[str, list[str]] = {}
    for node in nodes.listing(tx):
        hosts.setdefault(node.host, []).append(node.uuid)
    return hosts


def _hosts_by_service(tx: Tx) -> dict[str, list[str]]:
    return {service.host: [] for service in services.listing(tx, binary="nova-compute")}


def _map(
    operator: Operator,
    cell: CellMapping,
    hosts: dict[str, list[str]],
    *,
    found: Discovered,
    say: Callable[[str], None],
) -> None:
    known = operator.cells.host_mappings()
    unmapped = [host for host in hosts if known.get(host) != cell.uuid]
    say(f"Found {len(unmapped)} unmapped computes in cell: {cell.uuid}")
    for host in unmapped:
        say(f"Checking host mapping for compute host '{host}': {cell.uuid}")
        if host in known:
            found.duplicate = found.duplicate or f"host {host} is mapped to cell {known[host]}"
            continue
        say(f"Creating host mapping for compute host '{host}': {cell.uuid}")
        operator.cells.map_host(host, cell.uuid)
        found.hosts.append(host)
    mapped = [uuid for host in hosts if known.get(host, cell.uuid) == cell.uuid for uuid in hosts[host]]
    operator.cells.database(cell.uuid).write(lambda tx: nodes.set_mapped(tx, mapped))
