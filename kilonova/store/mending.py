"""Runs that an operator mends: found in whichever database holds them, and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import select, update

from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict
from kilonova.base.flow import Event, Run, Status
from kilonova.store.runs import LIVE, Log, insert_events, run_of, tables, with_events
from kilonova.store.session import Tx


def find(tx: Tx, run_id: str) -> Log | None:
    """The run with its events, if this database holds it."""
    t = tables(tx).runs
    row = tx.row(select(t).where(t.c.id == run_id))
    return None if row is None else with_events(tx, [run_of(row)])[0]


def unfinished(tx: Tx, *, subject: str | None = None, limit: int = 1000) -> list[Log]:
    """Runs that are RUNNING or STUCK, oldest first, with their events."""
    t = tables(tx).runs
    query = select(t).where(t.c.status.in_(LIVE))
    if subject is not None:
        query = query.where(t.c.subject == subject)
    return with_events(tx, [run_of(row) for row in tx.rows(query.order_by(t.c.created_at, t.c.id).limit(limit))])


def mend(tx: Tx, run_id: str, decide: Callable[[Run, Sequence[Event]], list[Event]]) -> Run | None:
    """Write what ``decide`` says behind a run's journal and make it RUNNING and due; None when it is not here.

    Conflict when it has ended. A driver that works on the run meanwhile finds its own write refused and plans anew.
    """
    t = tables(tx).runs
    row = tx.row(select(t).where(t.c.id == run_id).with_for_update())
    if row is None:
        return None
    run, log = with_events(tx, [run_of(row)])[0]
    if run.status.value not in LIVE:
        raise Conflict(f"Run {run.id} has ended ({run.status.value}).")
    events, now = decide(run, log), utcnow()
    values = {
        "seq": run.seq + len(events),
        "status": Status.RUNNING.value,
        "due_at": now,
        "updated_at": now,
        "finished_at": None,
        "error": None,
    }
    same = (t.c.id == run_id, t.c.seq == run.seq, t.c.status == run.status.value)
    if tx.changes(update(t).where(*same).values(values)) == 0:
        raise Conflict(f"Run {run.id} has just moved on; look at it again.")
    insert_events(tx, run_id, events, after=run.seq)
    return run
