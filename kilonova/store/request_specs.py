"""What each server asked of a host, for when it is placed again."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete as delete_rows
from sqlalchemy import insert, select, update

from kilonova.core.request import RequestSpec
from kilonova.store.schema_api import request_specs
from kilonova.store.session import Tx

_C = request_specs.c


def put(tx: Tx, server: str, spec: RequestSpec) -> None:
    """Record the request of a server, in place of an older one."""
    if tx.changes(update(request_specs).where(_C.instance_uuid == server).values(spec=spec)) == 0:
        tx.execute(insert(request_specs), {"instance_uuid": server, "spec": spec})


def get(tx: Tx, server: str) -> RequestSpec | None:
    """The request of a server."""
    found: RequestSpec | None = tx.scalar(select(_C.spec).where(_C.instance_uuid == server))
    return found


def many(tx: Tx, servers: Iterable[str]) -> dict[str, RequestSpec]:
    """The requests of those among ``servers`` that have one."""
    query = select(_C.instance_uuid, _C.spec).where(_C.instance_uuid.in_(list(servers)))
    return {row.instance_uuid: row.spec for row in tx.rows(query)}


def delete(tx: Tx, server: str) -> bool:
    """Forget the request; False when there was none."""
    return tx.changes(delete_rows(request_specs).where(_C.instance_uuid == server)) > 0
