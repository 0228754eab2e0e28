"""Servers that have no cell yet, in the API database.

A build request lives from the answer to the user until its server is entered in a cell. Who takes it decides
the server's fate: a delete that takes it has stopped the boot before any cell knew of it. Taken, it is invisible, but
its content stays until ``forget``: a hand-over that was interrupted goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import delete as delete_rows
from sqlalchemy import insert as insert_rows
from sqlalchemy import select
from sqlalchemy import update as update_rows

from kilonova.base.errors import Conflict, ServerNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.network import NetworkRequest
from kilonova.core.request import RequestSpec
from kilonova.core.server import Server
from kilonova.store import instance_mappings
from kilonova.store.listing import Listing, selected
from kilonova.store.schema_api import build_requests
from kilonova.store.session import Tx

_C = build_requests.c
_WAITS = _C.taken.is_(False)


class BuildRequest(msgspec.Struct, kw_only=True):
    """All that a boot needs. ``run``: the id of its run in the API database. Secrets: ``admin_password``, ``files``.

    ``networks``: None is "choose for me", an empty list is none.
    """

    server: Server
    request: RequestSpec
    devices: list[BlockDevice] = []
    networks: list[NetworkRequest] | None = None
    admin_password: str | None = None
    files: list[tuple[str, str]] = []
    run: str = ""


def insert(tx: Tx, wanted: BuildRequest) -> None:
    """Enter the request and the mapping of its server, which has no cell yet. Conflict when the uuid is known."""
    server = wanted.server
    if tx.scalar(select(_C.id).where(_C.instance_uuid == server.uuid)) is not None:
        raise Conflict(f"Instance {server.uuid} is being built already")
    instance_mappings.insert(
        tx,
        instance_mappings.InstanceMapping(
            server=server.uuid,
            project_id=server.project_id,
            user_id=server.user_id,
            reservation=server.reservation_id,
            created_at=server.created_at,
        ),
    )
    values = {"instance_uuid": server.uuid, "project_id": server.project_id, "run": wanted.run}
    tx.execute(insert_rows(build_requests).values(taken=False, created_at=server.created_at, request=wanted, **values))


def get(tx: Tx, uuid: str) -> BuildRequest:
    """The request of a server; ServerNotFound."""
    found = tx.scalar(select(_C.request).where(_C.instance_uuid == uuid, _WAITS))
    if found is None:
        raise ServerNotFound(server=uuid)
    return _record(found)


def waiting(tx: Tx, uuids: Iterable[str]) -> set[str]:
    """Which of these servers wait to be placed."""
    query = select(_C.instance_uuid).where(_C.instance_uuid.in_(list(uuids)), _WAITS)
    return {row.instance_uuid for row in tx.rows(query)}


def delete(tx: Tx, uuid: str) -> bool:
    """Take the request: True for the one who really did."""
    return tx.changes(update_rows(build_requests).where(_C.instance_uuid == uuid, _WAITS).values(taken=True)) > 0


def kept(tx: Tx, uuid: str) -> BuildRequest | None:
    """A request that was taken and is not forgotten."""
    found = tx.scalar(select(_C.request).where(_C.instance_uuid == uuid, _C.taken.is_(True)))
    return None if found is None else _record(found)


def forget(tx: Tx, uuid: str) -> None:
    """Remove what is kept of a request, its secrets too."""
    tx.execute(delete_rows(build_requests).where(_C.instance_uuid == uuid))


def listing(tx: Tx, project_id: str | None = None, *, wanted: Listing | None = None) -> list[BuildRequest]:
    """The requests of a project (None: of all), oldest first; with ``wanted`` those it asks for, in its order."""
    query = select(_C.request).where(_WAITS).order_by(_C.id)
    if project_id is not None:
        query = query.where(_C.project_id == project_id)
    found = [_record(row.request) for row in tx.rows(query)]
    if wanted is None:
        return found
    by_uuid = {each.server.uuid: each for each in found}
    return [by_uuid[server.uuid] for server in selected([each.server for each in found], wanted)]


def update_server(tx: Tx, server: Server) -> bool:
    """Record changes to the server before it has a cell; False when the request is gone.

    The caller has read the request with ``get`` in the same transaction.
    """
    found = tx.scalar(select(_C.request).where(_C.instance_uuid == server.uuid, _WAITS).with_for_update())
    if found is None:
        return False
    changed = msgspec.structs.replace(_record(found), server=server)
    return tx.changes(update_rows(build_requests).where(_C.instance_uuid == server.uuid).values(request=changed)) > 0


def _record(found: object) -> BuildRequest:
    return msgspec.convert(found, BuildRequest)
