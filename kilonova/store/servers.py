"""Servers in their cell's database."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, or_, select, true
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows

from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict, ServerNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.network import Nic
from kilonova.core.server import Server, ServerFault
from kilonova.store import devices as device_rows
from kilonova.store.listing import Listing, apply
from kilonova.store.schema_cell import instance_faults, instance_metadata, instances, tags
from kilonova.store.server_rows import COLUMNS, records, row_of, values_of
from kilonova.store.session import Tx

_MAX_FAULTS = 10


class Usage(msgspec.Struct, kw_only=True):
    """What living servers take of a quota; ``ram`` in MiB."""

    instances: int = 0
    cores: int = 0
    ram: int = 0


def insert(tx: Tx, server: Server, devices: Iterable[BlockDevice] = ()) -> Server:
    """Enter a new server; the answer has its ``id``. Conflict when the uuid is known."""
    if tx.scalar(select(instances.c.id).where(instances.c.uuid == server.uuid)) is not None:
        raise Conflict(f"Instance {server.uuid} already exists")
    key = tx.execute(insert_rows(instances), row_of(server)).inserted_primary_key
    assert key is not None
    _insert_metadata(tx, server.uuid, server.metadata)
    _insert_tags(tx, server.uuid, server.tags)
    device_rows.replace(tx, server.uuid, devices)
    return msgspec.structs.replace(server, id=key[0], updated_at=server.updated_at or server.created_at)


def get(tx: Tx, uuid: str, *, deleted: bool = False, lock: bool = False) -> Server:
    """The server; ServerNotFound. ``deleted``: also one marked so. ``lock``: nobody changes it meanwhile."""
    query = select(*COLUMNS).where(instances.c.uuid == uuid)
    if not deleted:
        query = query.where(instances.c.deleted == 0)
    if lock:
        query = query.with_for_update()
    found = records(tx, tx.rows(query))
    if not found:
        raise ServerNotFound(server=uuid)
    return found[0]


def many(tx: Tx, uuids: Iterable[str], *, deleted: bool = False) -> dict[str, Server]:
    """The servers among ``uuids`` that are here."""
    query = select(*COLUMNS).where(instances.c.uuid.in_(list(uuids)))
    if not deleted:
        query = query.where(instances.c.deleted == 0)
    return {server.uuid: server for server in records(tx, tx.rows(query))}


def update(tx: Tx, uuid: str, **changes: Any) -> None:
    """Set attributes of a living server; ServerNotFound. TypeError for an unknown attribute."""
    if not compare_and_set(tx, uuid, where={}, **changes):
        raise ServerNotFound(server=uuid)


def compare_and_set(tx: Tx, uuid: str, *, where: Mapping[str, Any], **changes: Any) -> bool:
    """Set attributes of a living server if it stands as ``where`` says; False when not.

    ``where``: attribute -> a value, or a tuple of values of which it must be one (None among them is null).
    One UPDATE: of two who try at the same time, one wins.
    """
    values = values_of({name: value for name, value in changes.items() if name not in ("metadata", "tags")})
    query = (
        update_rows(instances)
        .where(instances.c.uuid == uuid, instances.c.deleted == 0)
        .where(*(_stands(name, value) for name, value in where.items()))
        .values({"updated_at": utcnow()} | values)
    )
    if tx.changes(query) == 0:
        return False
    if "metadata" in changes:
        replace_metadata(tx, uuid, changes["metadata"])
    if "tags" in changes:
        replace_tags(tx, uuid, changes["tags"])
    return True


def _stands(name: str, value: Any) -> ColumnElement[bool]:
    values_of({name: None} if name not in ("flavor", "nics") else {name: value})
    column = instances.c[name]
    wanted = value if isinstance(value, tuple | set | frozenset) else (value,)
    condition: ColumnElement[bool] = column.in_([each for each in wanted if each is not None])
    return or_(condition, column.is_(None)) if None in wanted else condition


def mark_deleted(tx: Tx, uuid: str, at: datetime.datetime) -> bool:
    """The server is gone: it stays to be shown to those who ask for deleted ones. False when it was gone already."""
    values = {
        "deleted": instances.c.id,
        "deleted_at": at,
        "updated_at": at,
        "terminated_at": func.coalesce(instances.c.terminated_at, at),
        "vm_state": "deleted",
        "task_state": None,
    }
    return (
        tx.changes(update_rows(instances).where(instances.c.uuid == uuid, instances.c.deleted == 0).values(values)) > 0
    )


def hard_delete(tx: Tx, uuid: str) -> bool:
    """Remove the server and all that belongs to it; False when there was none."""
    return tx.changes(delete(instances).where(instances.c.uuid == uuid)) > 0


def deleted_before(tx: Tx, at: datetime.datetime, *, limit: int) -> list[str]:
    """The uuids of servers deleted before ``at``, oldest first: what a purge may remove."""
    query = select(instances.c.uuid).where(instances.c.deleted_at < at).order_by(instances.c.deleted_at).limit(limit)
    return [row.uuid for row in tx.rows(query)]


def listing(tx: Tx, wanted: Listing) -> list[Server]:
    """The servers that ``wanted`` asks for, in its order. BadRequest for a filter that is no regular expression."""
    return records(tx, tx.rows(apply(tx, select(*COLUMNS), wanted)))


def uuids(tx: Tx, wanted: Listing) -> list[str]:
    """As ``listing``, the uuids alone."""
    return [row.uuid for row in tx.rows(apply(tx, select(instances.c.uuid), wanted))]


def usage(tx: Tx, project_id: str, user_id: str | None = None) -> Usage:
    """What the living servers of a project (and user) take."""
    columns = instances.c
    query = select(func.count(), func.sum(columns.vcpus), func.sum(columns.memory_mb)).where(
        columns.deleted == 0,
        columns.project_id == project_id,
        columns.hidden.is_(False),
        columns.user_id == user_id if user_id is not None else true(),
    )
    row = tx.row(query)
    assert row is not None
    return Usage(instances=row[0], cores=int(row[1] or 0), ram=int(row[2] or 0))


def on_host(tx: Tx, host: str) -> list[Server]:
    """The living servers of a host, oldest first."""
    query = select(*COLUMNS).where(instances.c.deleted == 0, instances.c.host == host).order_by(instances.c.id)
    return records(tx, tx.rows(query))


def expected(tx: Tx, host: str) -> dict[str, str]:
    """The guests that a host should hold: uuid -> vm_state."""
    query = select(instances.c.uuid, instances.c.vm_state).where(instances.c.deleted == 0, instances.c.host == host)
    return {row.uuid: row.vm_state for row in tx.rows(query)}


def set_nics(tx: Tx, uuid: str, nics: list[Nic]) -> None:
    """Record the server's ports; ServerNotFound."""
    update(tx, uuid, nics=nics)


# --- metadata and tags


def get_metadata(tx: Tx, uuid: str) -> dict[str, str]:
    """The metadata of a server (empty also for one that is not here)."""
    query = select(instance_metadata.c.key, instance_metadata.c.value).where(instance_metadata.c.instance_uuid == uuid)
    return {row.key: row.value for row in tx.rows(query)}


def put_metadata(tx: Tx, uuid: str, items: Mapping[str, str]) -> dict[str, str]:
    """Add or change items; all of them afterwards. ServerNotFound."""
    update(tx, uuid)
    columns = instance_metadata.c
    tx.execute(delete(instance_metadata).where(columns.instance_uuid == uuid, columns.key.in_(list(items))))
    _insert_metadata(tx, uuid, items)
    return get_metadata(tx, uuid)


def replace_metadata(tx: Tx, uuid: str, items: Mapping[str, str]) -> None:
    """Make these the only items; ServerNotFound."""
    update(tx, uuid)
    tx.execute(delete(instance_metadata).where(instance_metadata.c.instance_uuid == uuid))
    _insert_metadata(tx, uuid, items)


def delete_metadata(tx: Tx, uuid: str, key: str) -> bool:
    """Remove an item; False when there was none. ServerNotFound."""
    update(tx, uuid)
    columns = instance_metadata.c
    return tx.changes(delete(instance_metadata).where(columns.instance_uuid == uuid, columns.key == key)) > 0


def _insert_metadata(tx: Tx, uuid: str, items: Mapping[str, str]) -> None:
    if items:
        rows = [{"instance_uuid": uuid, "key": key, "value": value} for key, value in items.items()]
        tx.execute(insert_rows(instance_metadata), rows)


def get_tags(tx: Tx, uuid: str) -> list[str]:
    """The tags of a server, sorted."""
    return [row.tag for row in tx.rows(select(tags.c.tag).where(tags.c.resource_id == uuid).order_by(tags.c.tag))]


def add_tag(tx: Tx, uuid: str, tag: str) -> bool:
    """Add a tag; False when it was there. ServerNotFound."""
    update(tx, uuid)
    if tag in get_tags(tx, uuid):
        return False
    _insert_tags(tx, uuid, [tag])
    return True


def replace_tags(tx: Tx, uuid: str, wanted: Iterable[str]) -> None:
    """Make these the only tags; ServerNotFound."""
    update(tx, uuid)
    tx.execute(delete(tags).where(tags.c.resource_id == uuid))
    _insert_tags(tx, uuid, wanted)


def delete_tag(tx: Tx, uuid: str, tag: str) -> bool:
    """Remove a tag; False when there was none. ServerNotFound."""
    update(tx, uuid)
    return tx.changes(delete(tags).where(tags.c.resource_id == uuid, tags.c.tag == tag)) > 0


def _insert_tags(tx: Tx, uuid: str, wanted: Iterable[str]) -> None:
    rows = [{"resource_id": uuid, "tag": tag} for tag in dict.fromkeys(wanted)]
    if rows:
        tx.execute(insert_rows(tags), rows)


# --- faults


def add_fault(tx: Tx, fault: ServerFault) -> None:
    """Record a failure; only the last few of a server are kept."""
    values = msgspec.structs.asdict(fault)
    values["instance_uuid"] = values.pop("server")
    tx.execute(insert_rows(instance_faults).values(**values))
    columns = instance_faults.c
    kept = select(columns.id).where(columns.instance_uuid == fault.server).order_by(columns.id.desc())
    old = [row.id for row in tx.rows(kept.offset(_MAX_FAULTS).limit(100))]
    if old:
        tx.execute(delete(instance_faults).where(columns.id.in_(old)))


def latest_faults(tx: Tx, servers: Iterable[str]) -> dict[str, ServerFault]:
    """The last fault of each of ``servers`` that has one."""
    columns = instance_faults.c
    last = select(func.max(columns.id)).where(columns.instance_uuid.in_(list(servers))).group_by(columns.instance_uuid)
    found = {}
    for row in tx.rows(select(instance_faults).where(columns.id.in_(last))):
        found[row.instance_uuid] = ServerFault(
            server=row.instance_uuid,
            code=row.code,
            message=row.message,
            created_at=row.created_at,
            details=row.details,
            host=row.host,
        )
    return found
