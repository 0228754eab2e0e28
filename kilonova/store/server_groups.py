"""Server groups and their members."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Select, func, select
from sqlalchemy import delete as delete_rows
from sqlalchemy import insert as insert_rows

from kilonova.base.errors import Conflict, NotFound
from kilonova.store.schema_api import instance_group_member, instance_groups
from kilonova.store.session import Tx

_C, _M = instance_groups.c, instance_group_member.c


class ServerGroup(msgspec.Struct, kw_only=True):
    """A server group. ``policy``: affinity, anti-affinity, soft-affinity or soft-anti-affinity."""

    uuid: str
    name: str
    policy: str
    project_id: str
    user_id: str
    created_at: datetime.datetime
    rules: dict[str, Any] = {}
    members: list[str] = []


def insert(tx: Tx, group: ServerGroup) -> ServerGroup:
    """Enter a group and its members; Conflict when the uuid is known."""
    if tx.scalar(select(_C.id).where(_C.uuid == group.uuid)) is not None:
        raise Conflict(f"Instance group {group.uuid} already exists.")
    values = msgspec.structs.asdict(group)
    del values["members"]
    tx.execute(insert_rows(instance_groups), values)
    add_members(tx, group.uuid, group.members)
    return get(tx, group.uuid)


def get(tx: Tx, uuid: str) -> ServerGroup:
    """The group; NotFound."""
    found = _records(tx, select(instance_groups).where(_C.uuid == uuid))
    if not found:
        raise NotFound(f"Instance group {uuid} could not be found.")
    return found[0]


def listing(tx: Tx, project_id: str | None = None, *, limit: int | None = None, offset: int = 0) -> list[ServerGroup]:
    """The groups of a project (None: of all), oldest first."""
    query = select(instance_groups)
    if project_id is not None:
        query = query.where(_C.project_id == project_id)
    if limit is not None or offset:
        query = query.limit(limit if limit is not None else 1_000_000).offset(offset)
    return _records(tx, query)


def count(tx: Tx, project_id: str, user_id: str | None = None) -> int:
    """How many groups a project (and user) has."""
    query = select(func.count()).where(_C.project_id == project_id)
    return int(tx.scalar(query if user_id is None else query.where(_C.user_id == user_id)))


def delete(tx: Tx, uuid: str) -> None:
    """Remove the group; NotFound."""
    if tx.changes(delete_rows(instance_groups).where(_C.uuid == uuid)) == 0:
        raise NotFound(f"Instance group {uuid} could not be found.")


def add_members(tx: Tx, uuid: str, servers: Iterable[str]) -> None:
    """Add servers; those that are in it stay. NotFound."""
    number = tx.scalar(select(_C.id).where(_C.uuid == uuid).with_for_update())
    if number is None:
        raise NotFound(f"Instance group {uuid} could not be found.")
    present = {row.instance_uuid for row in tx.rows(select(_M.instance_uuid).where(_M.group_id == number))}
    rows = [{"group_id": number, "instance_uuid": each} for each in dict.fromkeys(servers) if each not in present]
    if rows:
        tx.execute(insert_rows(instance_group_member), rows)


def remove_member(tx: Tx, server: str) -> None:
    """Take a server out of its group."""
    tx.execute(delete_rows(instance_group_member).where(_M.instance_uuid == server))


def of_server(tx: Tx, uuid: str) -> ServerGroup | None:
    """The group that a server is in."""
    return of_servers(tx, [uuid]).get(uuid)


def of_servers(tx: Tx, uuids: Iterable[str]) -> dict[str, ServerGroup]:
    """The group of each of the servers that is in one."""
    query = select(_M.instance_uuid, _C.uuid).join(instance_groups, _C.id == _M.group_id)
    held = {row[0]: row[1] for row in tx.rows(query.where(_M.instance_uuid.in_(list(uuids))))}
    groups = {group.uuid: group for group in _records(tx, select(instance_groups).where(_C.uuid.in_(held.values())))}
    return {server: groups[group] for server, group in held.items()}


def _records(tx: Tx, query: Select[*tuple[object, ...]]) -> list[ServerGroup]:
    plain = [name for name in ServerGroup.__struct_fields__ if name != "members"]
    found = {
        row.id: ServerGroup(**{name: getattr(row, name) for name in plain}) for row in tx.rows(query.order_by(_C.id))
    }
    if found:
        members = select(instance_group_member).where(_M.group_id.in_(list(found))).order_by(_M.id)
        for row in tx.rows(members):
            found[row.group_id].members.append(row.instance_uuid)
    return list(found.values())
