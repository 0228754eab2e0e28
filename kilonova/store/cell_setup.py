"""Cells are entered into the API database: by the one-command mode, and by ``nova-manage cell_v2``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import make_url, select
from sqlalchemy.exc import DBAPIError

from kilonova.store import cell_mappings
from kilonova.store.cell_mappings import CellMapping
from kilonova.store.schema_api import instance_mappings
from kilonova.store.schema_cell import instances
from kilonova.store.session import Tx


def register_cells(tx: Tx, cells: Iterable[CellMapping]) -> None:
    """Enter these cells, or bring their records up to date; others stay. Doing it again changes nothing."""
    known = {mapping.uuid: mapping for mapping in cell_mappings.listing(tx)}
    for cell in cells:
        if cell.uuid not in known:
            cell_mappings.insert(tx, cell)
        elif known[cell.uuid] != cell:
            cell_mappings.update(tx, cell)


def cell0_url(cell_url: str) -> str:
    """The database of cell0 where none is named: beside the cell's, with ``_cell0`` behind its name."""
    url = make_url(cell_url)
    name = url.database or "nova"
    path, dot, suffix = name.rpartition(".")
    beside = f"{path}_cell0.{suffix}" if dot and url.get_backend_name() == "sqlite" else f"{name}_cell0"
    return url.set(database=beside).render_as_string(hide_password=False)


def has_mappings(tx: Tx, cell: str) -> bool:
    """API database: whether any server is mapped to the cell, those that are being deleted included."""
    query = select(instance_mappings.c.id).where(instance_mappings.c.cell == cell)
    return tx.scalar(query.limit(1)) is not None


def has_servers(tx: Tx) -> bool:
    """Cell database: whether any server lives in it."""
    return tx.scalar(select(instances.c.id).where(instances.c.deleted == 0).limit(1)) is not None


def lacks_schema(error: BaseException) -> bool:
    """Whether a database failed because its tables have not been made."""
    found = str(error.orig).lower() if isinstance(error, DBAPIError) else ""
    return any(text in found for text in ("no such table", "doesn't exist", "does not exist"))
