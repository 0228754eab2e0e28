"""Servers as rows: which columns make up the record, and what stands in columns of its own besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from kilonova.core.server import Server
from kilonova.store.listing import addresses
from kilonova.store.schema_cell import instance_metadata, instances, tags
from kilonova.store.session import AnyRow, Tx

# Kept in tables of their own.
BESIDE = frozenset({"metadata", "tags"})
ATTRIBUTES = tuple(name for name in Server.__struct_fields__ if name not in BESIDE)
COLUMNS = [instances.c[name] for name in ATTRIBUTES]
_DELETED = ATTRIBUTES.index("deleted")


def values_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for new values of attributes of a server; TypeError for a name that is no attribute."""
    unknown = [name for name in changes if name not in ATTRIBUTES]
    if unknown:
        raise TypeError(f"a server's row has no {', '.join(unknown)}")
    values = dict(changes)
    if "flavor" in changes:
        flavor = changes["flavor"]
        values |= {"flavorid": flavor.flavorid, "vcpus": flavor.vcpus, "memory_mb": flavor.memory_mb}
    if "nics" in changes:
        values |= {"addresses_v4": addresses(changes["nics"], 4), "addresses_v6": addresses(changes["nics"], 6)}
    return values


def row_of(server: Server) -> dict[str, Any]:
    """The row of a new server: its ``id`` is the database's to give."""
    changes = {name: getattr(server, name) for name in ATTRIBUTES}
    values = values_of(changes) | {"updated_at": server.updated_at or server.created_at, "deleted": 0}
    del values["id"]
    return values


def records(tx: Tx, rows: Sequence[AnyRow]) -> list[Server]:
    """The servers of rows of ``COLUMNS``, with their metadata and tags: two more queries, however many they are."""
    found = [_record(row) for row in rows]
    by_uuid = {server.uuid: server for server in found}
    for uuids in _portions(list(by_uuid)):
        query = select(instance_metadata).where(instance_metadata.c.instance_uuid.in_(uuids))
        for uuid, key, value in tx.rows(query):
            by_uuid[uuid].metadata[key] = value
        for uuid, tag in tx.rows(select(tags).where(tags.c.resource_id.in_(uuids)).order_by(tags.c.tag)):
            by_uuid[uuid].tags.append(tag)
    return found


def _portions(uuids: list[str]) -> Iterable[list[str]]:
    return (uuids[start : start + 1000] for start in range(0, len(uuids), 1000))


def _record(row: AnyRow) -> Server:
    values = list(row)
    values[_DELETED] = bool(values[_DELETED])
    return Server(**dict(zip(ATTRIBUTES, values, strict=True)))
