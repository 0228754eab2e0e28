"""In which cell a server is: one row for each server of all cells, in the API database."""

from __future__ import annotations

import datetime

import msgspec
from sqlalchemy import delete as delete_rows
from sqlalchemy import func, select, update
from sqlalchemy import insert as insert_rows

from kilonova.base.errors import Conflict, ServerNotFound
from kilonova.store.schema_api import instance_mappings
from kilonova.store.session import AnyRow, Tx

_C = instance_mappings.c


class InstanceMapping(msgspec.Struct, kw_only=True):
    """``cell``: the uuid of the cell, None while the server is a build request."""

    server: str
    project_id: str
    user_id: str
    created_at: datetime.datetime
    cell: str | None = None
    reservation: str = ""
    queued_for_delete: bool = False


def insert(tx: Tx, mapping: InstanceMapping) -> None:
    """Enter a mapping. Conflict when the server has one."""
    if get(tx, mapping.server) is not None:
        raise Conflict(f"Instance {mapping.server} already exists")
    values = msgspec.structs.asdict(mapping)
    values["instance_uuid"], values["reservation_id"] = values.pop("server"), values.pop("reservation")
    tx.execute(insert_rows(instance_mappings).values(**values))


def get(tx: Tx, uuid: str) -> InstanceMapping | None:
    """The mapping of a server."""
    row = tx.row(select(instance_mappings).where(_C.instance_uuid == uuid))
    return None if row is None else _record(row)


def listing(
    tx: Tx, *, cell: str | None = None, project_id: str | None = None, user_id: str | None = None, limit: int = 1000
) -> list[InstanceMapping]:
    """Mappings of servers that are not being deleted, newest first: what is known while a cell is down."""
    query = select(instance_mappings).where(_C.queued_for_delete.is_(False))
    for column, value in ((_C.cell, cell), (_C.project_id, project_id), (_C.user_id, user_id)):
        if value is not None:
            query = query.where(column == value)
    return [_record(row) for row in tx.rows(query.order_by(_C.id.desc()).limit(limit))]


def set_cell(tx: Tx, uuid: str, cell: str | None) -> None:
    """Say in which cell the server is; ServerNotFound."""
    if tx.changes(update(instance_mappings).where(_C.instance_uuid == uuid).values(cell=cell)) == 0:
        raise ServerNotFound(server=uuid)


def mark_deleted(tx: Tx, uuid: str, *, deleted: bool = True) -> bool:
    """Mark that the server is to be deleted; False when there is no such mapping."""
    query = update(instance_mappings).where(_C.instance_uuid == uuid).values(queued_for_delete=deleted)
    return tx.changes(query) > 0


def remove(tx: Tx, uuid: str) -> bool:
    """Remove the mapping; False when there was none."""
    return tx.changes(delete_rows(instance_mappings).where(_C.instance_uuid == uuid)) > 0


def count(tx: Tx, project_id: str, user_id: str | None = None) -> int:
    """How many servers a project (and user) has in all cells, the unbuilt included."""
    query = select(func.count()).where(_C.project_id == project_id, _C.queued_for_delete.is_(False))
    if user_id is not None:
        query = query.where(_C.user_id == user_id)
    return int(tx.scalar(query))


def _record(row: AnyRow) -> InstanceMapping:
    return InstanceMapping(
        server=row.instance_uuid,
        project_id=row.project_id,
        user_id=row.user_id,
        created_at=row.created_at,
        cell=row.cell,
        reservation=row.reservation_id,
        queued_for_delete=row.queued_for_delete,
    )
