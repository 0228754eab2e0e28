"""The programs of a cell, and when each was last heard of."""

from __future__ import annotations

import datetime
import uuid as uuids
from typing import Any

from sqlalchemy import func, select
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows
from sqlalchemy.exc import IntegrityError

from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict, ServiceNotFound
from kilonova.core.host import Service
from kilonova.store.schema_cell import services
from kilonova.store.session import AnyRow, Tx

_C = services.c
_ATTRIBUTES = [name for name in Service.__struct_fields__ if name != "cell"]
_CHANGEABLE = {"disabled", "disabled_reason", "forced_down", "version", "availability_zone", "last_seen_up"}


def ensure(tx: Tx, binary: str, host: str, version: int) -> Service:
    """The record of a program that has started, made when it is new; it has just been seen."""
    now = utcnow()
    values: dict[str, Any] = {"version": version, "last_seen_up": now}
    if tx.changes(update_rows(services).where(*_living(binary, host)).values(values)) == 0:
        values |= {
            "uuid": str(uuids.uuid4()),
            "binary": binary,
            "host": host,
            "topic": binary.removeprefix("nova-"),
            "report_count": 0,
            "disabled": False,
            "forced_down": False,
            "created_at": now,
        }
        try:
            tx.execute(insert_rows(services), values)
        except IntegrityError as error:
            raise Conflict(f"{binary} at {host} is being recorded by another process") from error
    found = find(tx, binary, host)
    assert found is not None
    return found


def beat(tx: Tx, binary: str, host: str, at: datetime.datetime) -> Service | None:
    """The program is alive at ``at``; None when there is no record of it (any more)."""
    values = {"report_count": _C.report_count + 1, "last_seen_up": at}
    if tx.changes(update_rows(services).where(*_living(binary, host)).values(values)) == 0:
        return None
    return find(tx, binary, host)


def find(tx: Tx, binary: str, host: str) -> Service | None:
    """The record of a program at a host."""
    row = tx.row(select(services).where(*_living(binary, host)))
    return None if row is None else _record(row)


def listing(tx: Tx, *, binary: str | None = None, host: str | None = None) -> list[Service]:
    """The programs, oldest first."""
    query = select(services).where(_C.deleted == 0)
    for column, value in ((_C.binary, binary), (_C.host, host)):
        if value is not None:
            query = query.where(column == value)
    return [_record(row) for row in tx.rows(query.order_by(_C.id))]


def get(tx: Tx, uuid: str) -> Service:
    """The record; ServiceNotFound."""
    row = tx.row(select(services).where(_C.uuid == uuid, _C.deleted == 0))
    if row is None:
        raise ServiceNotFound(service=uuid)
    return _record(row)


def update(tx: Tx, uuid: str, **changes: Any) -> Service:
    """Set attributes; ServiceNotFound. TypeError for one that cannot be set."""
    unknown = changes.keys() - _CHANGEABLE
    if unknown:
        raise TypeError(f"of a service {', '.join(sorted(unknown))} cannot be set")
    query = update_rows(services).where(_C.uuid == uuid, _C.deleted == 0)
    tx.execute(query.values({"updated_at": utcnow()} | changes))
    return get(tx, uuid)


def delete(tx: Tx, uuid: str) -> None:
    """Forget the program; ServiceNotFound."""
    query = update_rows(services).where(_C.uuid == uuid, _C.deleted == 0)
    if tx.changes(query.values(deleted=_C.id, deleted_at=utcnow())) == 0:
        raise ServiceNotFound(service=uuid)


def min_version(tx: Tx, binary: str) -> int | None:
    """The lowest version among the programs that nobody forced down; None when there are none."""
    query = select(func.min(_C.version)).where(_C.binary == binary, _C.deleted == 0, _C.forced_down.is_(False))
    found: int | None = tx.scalar(query)
    return found


def _living(binary: str, host: str) -> tuple[Any, ...]:
    return (_C.host == host, _C.binary == binary, _C.deleted == 0)


def _record(row: AnyRow) -> Service:
    return Service(**{name: getattr(row, name) for name in _ATTRIBUTES})
