"""Why each server is where it is: the records of the scheduler's last decisions, for administrators."""

from __future__ import annotations

import datetime

from sqlalchemy import delete, insert, select

from kilonova.base.engine import utcnow
from kilonova.core.request import Why
from kilonova.store.schema_api import decisions
from kilonova.store.session import Tx

_C = decisions.c
_PER_SERVER = 5
_MAX_AGE = datetime.timedelta(days=30)
_AT_ONCE = 20


def put(tx: Tx, server: str, request_id: str, why: Why) -> None:
    """Record a decision. Of a server the last few are kept; each write also removes a few of all that grew too old."""
    now = utcnow()
    values = {"instance_uuid": server, "request_id": request_id, "created_at": now, "why": why}
    tx.execute(insert(decisions), values)
    kept = select(_C.id).where(_C.instance_uuid == server).order_by(_C.id.desc())
    old = [row.id for row in tx.rows(kept.offset(_PER_SERVER).limit(_AT_ONCE))]
    aged = select(_C.id).where(_C.created_at < now - _MAX_AGE).order_by(_C.created_at).limit(_AT_ONCE)
    old += [row.id for row in tx.rows(aged)]
    if old:
        tx.execute(delete(decisions).where(_C.id.in_(old)))


def latest(tx: Tx, server: str) -> Why | None:
    """The last decision about a server."""
    query = select(_C.why).where(_C.instance_uuid == server).order_by(_C.id.desc()).limit(1)
    found: Why | None = tx.scalar(query)
    return found
