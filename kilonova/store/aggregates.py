"""Host aggregates, and the availability zones that they make."""

from __future__ import annotations

import datetime
import uuid as uuids
from collections.abc import Mapping

from sqlalchemy import Select, select
from sqlalchemy import delete as delete_rows
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows

from kilonova.base.engine import utcnow
from kilonova.base.errors import AggregateNotFound, Conflict, NotFound
from kilonova.core.host import Aggregate
from kilonova.store.schema_api import aggregate_hosts, aggregate_metadata, aggregates
from kilonova.store.session import Tx

_C, _H, _M = aggregates.c, aggregate_hosts.c, aggregate_metadata.c
ZONE = "availability_zone"


def insert(
    tx: Tx, name: str, *, metadata: Mapping[str, str] | None = None, at: datetime.datetime | None = None
) -> Aggregate:
    """Make an aggregate; Conflict when the name is taken."""
    _free(tx, name)
    values = {"uuid": str(uuids.uuid4()), "name": name, "created_at": at or utcnow()}
    key = tx.execute(insert_rows(aggregates), values).inserted_primary_key
    assert key is not None
    _insert_metadata(tx, key[0], metadata or {})
    return get(tx, key[0])


def get(tx: Tx, number: int) -> Aggregate:
    """The aggregate with this ``id``; AggregateNotFound."""
    found = _records(tx, select(aggregates).where(_C.id == number))
    if not found:
        raise AggregateNotFound(aggregate=number)
    return found[0]


def listing(tx: Tx) -> list[Aggregate]:
    """All aggregates, oldest first."""
    return _records(tx, select(aggregates))


def update(tx: Tx, number: int, *, name: str) -> Aggregate:
    """Rename the aggregate; AggregateNotFound, Conflict."""
    if get(tx, number).name != name:
        _free(tx, name)
    tx.execute(update_rows(aggregates).where(_C.id == number).values(name=name, updated_at=utcnow()))
    return get(tx, number)


def delete(tx: Tx, number: int) -> None:
    """Remove the aggregate (whether it may go is the caller's to say); AggregateNotFound."""
    if tx.changes(delete_rows(aggregates).where(_C.id == number)) == 0:
        raise AggregateNotFound(aggregate=number)


def add_host(tx: Tx, number: int, host: str) -> Aggregate:
    """Add a host; AggregateNotFound, Conflict when it is in it."""
    if host in get(tx, number).hosts:
        raise Conflict(f"Aggregate {number} already has host {host}.")
    tx.execute(insert_rows(aggregate_hosts), {"aggregate_id": number, "host": host})
    return _touched(tx, number)


def remove_host(tx: Tx, number: int, host: str) -> Aggregate:
    """Take a host out; AggregateNotFound, NotFound when it is not in it."""
    get(tx, number)
    if tx.changes(delete_rows(aggregate_hosts).where(_H.aggregate_id == number, _H.host == host)) == 0:
        raise NotFound(f"Aggregate {number} has no host {host}.")
    return _touched(tx, number)


def put_metadata(tx: Tx, number: int, items: Mapping[str, str | None]) -> Aggregate:
    """Add or change items; a value of None removes one. AggregateNotFound."""
    get(tx, number)
    tx.execute(delete_rows(aggregate_metadata).where(_M.aggregate_id == number, _M.key.in_(list(items))))
    _insert_metadata(tx, number, {key: value for key, value in items.items() if value is not None})
    return _touched(tx, number)


def zones_by_host(tx: Tx) -> dict[str, str]:
    """The availability zone of each host that is in one."""
    query = (
        select(_H.host, _M.value)
        .join(aggregate_metadata, (_M.aggregate_id == _H.aggregate_id) & (_M.key == ZONE))
        .order_by(_H.aggregate_id.desc())
    )
    return {row.host: row.value for row in tx.rows(query)}


def _free(tx: Tx, name: str) -> None:
    if tx.scalar(select(_C.id).where(_C.name == name)) is not None:
        raise Conflict(f"Aggregate {name} already exists.")


def _touched(tx: Tx, number: int) -> Aggregate:
    tx.execute(update_rows(aggregates).where(_C.id == number).values(updated_at=utcnow()))
    return get(tx, number)


def _insert_metadata(tx: Tx, number: int, items: Mapping[str, str]) -> None:
    rows = [{"aggregate_id": number, "key": key, "value": value} for key, value in items.items()]
    if rows:
        tx.execute(insert_rows(aggregate_metadata), rows)


def _records(tx: Tx, query: Select[*tuple[object, ...]]) -> list[Aggregate]:
    found = {
        row.id: Aggregate(id=row.id, uuid=row.uuid, name=row.name, created_at=row.created_at, updated_at=row.updated_at)
        for row in tx.rows(query.order_by(_C.id))
    }
    numbers = list(found)
    if found:
        for row in tx.rows(select(aggregate_hosts).where(_H.aggregate_id.in_(numbers)).order_by(_H.id)):
            found[row.aggregate_id].hosts.append(row.host)
        for row in tx.rows(select(aggregate_metadata).where(_M.aggregate_id.in_(numbers)).order_by(_M.key)):
            found[row.aggregate_id].metadata[row.key] = row.value
    return list(found.values())
