"""The cells of the cloud and the hosts in them, as the API database holds them."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete as delete_rows
from sqlalchemy import insert as insert_rows
from sqlalchemy import select
from sqlalchemy import update as update_rows

from kilonova.base.errors import Conflict, NotFound
from kilonova.store.schema_api import cell_mappings, host_mappings, instance_mappings
from kilonova.store.session import AnyRow, Tx

CELL0_UUID = "00000000-0000-0000-0000-000000000000"
_C, _H = cell_mappings.c, host_mappings.c


class CellMapping(msgspec.Struct, kw_only=True):
    """A cell. Its URLs hold passwords: never log them. ``disabled``: gets no new servers."""

    uuid: str
    name: str
    transport_url: str
    database_url: str
    disabled: bool = False


def listing(tx: Tx) -> list[CellMapping]:
    """All cells, oldest first."""
    return [_record(row) for row in tx.rows(select(cell_mappings).order_by(_C.id))]


def insert(tx: Tx, mapping: CellMapping) -> None:
    """Enter a cell; Conflict when its uuid is known."""
    if tx.scalar(select(_C.id).where(_C.uuid == mapping.uuid)) is not None:
        raise Conflict(f"Cell {mapping.uuid} already exists.")
    tx.execute(insert_rows(cell_mappings), _values(mapping))


def update(tx: Tx, mapping: CellMapping) -> None:
    """Record a cell's new name and URLs; NotFound."""
    if tx.changes(update_rows(cell_mappings).where(_C.uuid == mapping.uuid).values(_values(mapping))) == 0:
        raise NotFound(f"Cell {mapping.uuid} could not be found.")


def remove(tx: Tx, uuid: str) -> None:
    """Remove a cell; NotFound; Conflict while it has hosts or servers."""
    for what, column in (("hosts", _H.cell), ("servers", instance_mappings.c.cell)):
        if tx.scalar(select(column).where(column == uuid).limit(1)) is not None:
            raise Conflict(f"There are {what} mapped to cell {uuid}.")
    if tx.changes(delete_rows(cell_mappings).where(_C.uuid == uuid)) == 0:
        raise NotFound(f"Cell {uuid} could not be found.")


def hosts(tx: Tx, cell: str | None = None) -> dict[str, str]:
    """The cell of each host (of one cell, or all)."""
    query = select(_H.host, _H.cell).order_by(_H.host)
    return {row.host: row.cell for row in tx.rows(query if cell is None else query.where(_H.cell == cell))}


def of_host(tx: Tx, host: str) -> str | None:
    """The uuid of the cell that a host is in."""
    found: str | None = tx.scalar(select(_H.cell).where(_H.host == host))
    return found


def map_host(tx: Tx, host: str, cell: str) -> None:
    """Say in which cell a host is."""
    if tx.changes(update_rows(host_mappings).where(_H.host == host).values(cell=cell)) == 0:
        tx.execute(insert_rows(host_mappings), {"host": host, "cell": cell})


def unmap_host(tx: Tx, host: str) -> bool:
    """Forget in which cell a host is; False when nobody knew."""
    return tx.changes(delete_rows(host_mappings).where(_H.host == host)) > 0


def _values(mapping: CellMapping) -> dict[str, object]:
    values = msgspec.structs.asdict(mapping)
    return values | {"database_connection": values.pop("database_url")}


def _record(row: AnyRow) -> CellMapping:
    return CellMapping(
        uuid=row.uuid,
        name=row.name,
        transport_url=row.transport_url,
        database_url=row.database_connection,
        disabled=row.disabled,
    )
