"""Runs and their events as rows, and what is done with them inside a caller's transaction.

Locks are taken in one order everywhere: the server's row, then the run's. ``active_subject`` is unique, so the database
itself holds that a server has one exclusive run at most, whoever starts it and wherever.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from kilonova.base.errors import Conflict, ServerBusy, ServerNotFound
from kilonova.base.flow import Event, Run, Status, What
from kilonova.base.journal import without
from kilonova.core.server import Server
from kilonova.store import schema_api, schema_cell, servers
from kilonova.store.schema_cell import instances
from kilonova.store.schema_flow import FlowTables
from kilonova.store.session import AnyRow, Tx

LIVE = (Status.RUNNING.value, Status.STUCK.value)
Log = tuple[Run, list[Event]]


def tables(tx: Tx) -> FlowTables:
    """The journal's tables of the transaction's database."""
    return schema_api.flows if tx.schema == "api" else schema_cell.flows


def start_in(tx: Tx, run: Run, events: Sequence[Event] = ()) -> None:
    """Enter a run (with events of its own: one that moves here). An id that is known changes nothing.

    Conflict when another exclusive run holds the subject.
    """
    t = tables(tx)
    if tx.scalar(select(t.runs.c.id).where(t.runs.c.id == run.id)) is not None:
        return
    try:
        tx.execute(insert(t.runs), _row_of(run, seq=max(run.seq, len(events))))
    except IntegrityError as error:
        raise Conflict(f"Instance {run.subject} has another operation under way.") from error
    insert_events(tx, run.id, events, after=0)


def begin(
    tx: Tx,
    run: Run,
    *,
    vm_states: Collection[str] | None,
    task_states: Collection[str | None] | None,
    task: str | None,
    must_be_launched: bool = True,
    over: Collection[str] = (),
) -> Server:
    """Start ``run`` if its server stands as asked (None: any state will do), and set its task_state to ``task``.

    One UPDATE that names the states decides, so that of two processes one wins. The answer is the server as changed.
    ``over``: flows whose run on the server is cancelled in favour of this one. ServerNotFound; ServerBusy.
    """
    states: dict[str, tuple[str | None, ...]] = {}
    if vm_states is not None:
        states["vm_state"] = tuple(vm_states)
    if task_states is not None:
        states["task_state"] = tuple(task_states)
    changes = {} if task is None else {"task_state": task}
    if not servers.compare_and_set(tx, run.subject, where=states, **changes):
        raise _refusal(run, servers.get(tx, run.subject), states)
    server = servers.get(tx, run.subject)
    if must_be_launched and server.launched_at is None:
        raise ServerBusy(f"Instance {server.uuid} is in an invalid state for '{_named(run)}'")
    rival = _rival(tx, run)
    if rival is not None and rival.flow in over:
        cancel_in(tx, rival.id, at=run.created_at)
    elif rival is not None:
        what = f"'{rival.action or rival.flow}' is under way"
        raise ServerBusy(f"Cannot '{_named(run)}' instance {server.uuid} while {what}", server=server.uuid)
    start_in(tx, run)
    return server


def _refusal(run: Run, server: Server, states: dict[str, tuple[str | None, ...]]) -> ServerBusy:
    """Which of the states was in the way, as the server stands now."""
    for attribute, allowed in states.items():
        state = getattr(server, attribute)
        if state not in allowed:
            break
    else:
        attribute, state = "task_state", server.task_state
    return ServerBusy(action=_named(run), server=server.uuid, attribute=attribute, state=state)


def _named(run: Run) -> str:
    return run.action or run.flow


def _rival(tx: Tx, run: Run) -> AnyRow | None:
    """The run that holds the subject: its id, action and flow."""
    columns = tables(tx).runs.c
    wanted = (columns.id, columns.action, columns.flow)
    query = select(*wanted).where(columns.active_subject == run.subject, columns.id != run.id)
    return tx.row(query) if run.exclusive else None


def begin_delete(tx: Tx, run: Run, *, task: str = "deleting", wipe: frozenset[str] = frozenset()) -> list[str]:
    """Start ``run`` over everything else: its rivals become CANCELLED; their ids, for who waits for their drivers.

    The run gets them too, as ``cancelled`` in its state. In a cell the server's task_state becomes ``task``;
    ServerNotFound. ``wipe``: secrets to remove from the rivals.
    """
    if tx.schema == "cell" and not servers.compare_and_set(tx, run.subject, where={}, task_state=task):
        raise ServerNotFound(server=run.subject)
    columns = tables(tx).runs.c
    query = select(columns.id).where(
        columns.subject == run.subject, columns.status.in_(LIVE), columns.id != run.id, columns.exclusive
    )
    rivals = [row.id for row in tx.rows(query.order_by(columns.created_at).with_for_update())]
    cancelled = [rival for rival in rivals if cancel_in(tx, rival, at=run.created_at, wipe=wipe)]
    start_in(tx, msgspec.structs.replace(run, state={**run.state, "cancelled": cancelled}))
    return cancelled


def cancel_in(tx: Tx, run_id: str, *, at: datetime.datetime, wipe: frozenset[str] = frozenset()) -> bool:
    """Make a RUNNING or STUCK run CANCELLED and free its subject; False when it had ended."""
    t = tables(tx)
    values = {"status": Status.CANCELLED.value, "active_subject": None, "finished_at": at, "updated_at": at}
    if tx.changes(update(t.runs).where(t.runs.c.id == run_id, t.runs.c.status.in_(LIVE)).values(values)) == 0:
        return False
    wipe_in(tx, run_id, wipe)
    return True


def record(tx: Tx, run: Run, events: Sequence[Event] = ()) -> None:
    """Enter something that is over already, to be shown among the actions; it holds nobody up."""
    status = run.status if run.status in (Status.DONE, Status.UNDONE) else Status.DONE
    ended = run.finished_at or (events[-1].at if events else run.created_at)
    start_in(tx, msgspec.structs.replace(run, exclusive=False, status=status, finished_at=ended), events)


def wipe_in(tx: Tx, run_id: str, secrets: frozenset[str]) -> None:
    """Remove keys from the run's state and from what its steps gave."""
    if not secrets:
        return
    t = tables(tx)
    state = tx.scalar(select(t.runs.c.state).where(t.runs.c.id == run_id))
    tx.execute(update(t.runs).where(t.runs.c.id == run_id).values(state=without(state, secrets)))
    for seq, output in tx.rows(select(t.events.c.seq, t.events.c.output).where(t.events.c.run_id == run_id)):
        if secrets & output.keys():
            query = update(t.events).where(t.events.c.run_id == run_id, t.events.c.seq == seq)
            tx.execute(query.values(output=without(output, secrets)))


def insert_events(tx: Tx, run_id: str, events: Sequence[Event], *, after: int) -> None:
    """Enter events, numbered behind ``after``."""
    rows = [
        {
            "run_id": run_id,
            "seq": after + number,
            "step": event.step,
            "what": event.what.value,
            "at": event.at,
            "public": event.public,
            "host": event.host,
            "note": event.note,
            "output": event.output,
            "error": event.error,
        }
        for number, event in enumerate(events, 1)
    ]
    if rows:
        tx.execute(insert(tables(tx).events), rows)


def runs(
    tx: Tx,
    *,
    subject: str | None = None,
    request_id: str | None = None,
    status: Status | None = None,
    limit: int = 1000,
) -> list[Log]:
    """Runs with their events, oldest first; of more than ``limit`` the newest."""
    columns = tables(tx).runs.c
    query = select(tables(tx).runs)
    for column, value in ((columns.subject, subject), (columns.request_id, request_id)):
        if value is not None:
            query = query.where(column == value)
    if status is not None:
        query = query.where(columns.status == status.value)
    found = tx.rows(query.order_by(columns.created_at.desc(), columns.id.desc()).limit(limit))
    return with_events(tx, [run_of(row) for row in reversed(found)])


def awaited_from(tx: Tx, host: str) -> list[str]:
    """Ids of RUNNING runs of which a step was sent to ``host`` and is not reported."""
    t = tables(tx)
    last = (
        select(t.events.c.run_id, func.max(t.events.c.seq).label("seq"))
        .join(t.runs, t.runs.c.id == t.events.c.run_id)
        .where(t.runs.c.status == Status.RUNNING.value)
        .group_by(t.events.c.run_id, t.events.c.step)
        .subquery()
    )
    sent = (What.DISPATCHED.value, What.UNDO_DISPATCHED.value)
    query = (
        select(t.events.c.run_id)
        .join(last, (last.c.run_id == t.events.c.run_id) & (last.c.seq == t.events.c.seq))
        .where(t.events.c.host == host, t.events.c.what.in_(sent))
        .distinct()
    )
    return [row.run_id for row in tx.rows(query)]


def hurry(tx: Tx, ids: list[str], at: datetime.datetime) -> list[str]:
    """Make RUNNING runs due at ``at``, so that what they wait for is asked for again then; the ids given."""
    t = tables(tx)
    if ids:
        tx.execute(
            update(t.runs).where(t.runs.c.id.in_(ids), t.runs.c.status == Status.RUNNING.value).values(due_at=at)
        )
    return ids


def purge(tx: Tx, before: datetime.datetime, *, limit: int) -> int:
    """Remove runs that ended before a time, in a cell only those whose server is not here any more; how many."""
    t = tables(tx)
    query = select(t.runs.c.id).where(t.runs.c.finished_at < before, t.runs.c.status.not_in(LIVE))
    if tx.schema == "cell":
        query = query.where(t.runs.c.subject.not_in(select(instances.c.uuid)))
    ids = [row.id for row in tx.rows(query.limit(limit))]
    if ids:
        tx.execute(delete(t.runs).where(t.runs.c.id.in_(ids)))
    return len(ids)


def with_events(tx: Tx, found: Iterable[Run]) -> list[Log]:
    """The runs with their events: one query."""
    t = tables(tx)
    logs: dict[str, Log] = {run.id: (run, []) for run in found}
    query = select(t.events).where(t.events.c.run_id.in_(list(logs))).order_by(t.events.c.run_id, t.events.c.seq)
    for row in tx.rows(query) if logs else ():
        logs[row.run_id][1].append(event_of_row(row))
    return list(logs.values())


def _row_of(run: Run, *, seq: int) -> dict[str, Any]:
    values = msgspec.structs.asdict(run)
    holds = run.exclusive and run.status.value in LIVE
    return values | {
        "seq": seq,
        "status": run.status.value,
        "active_subject": run.subject if holds else None,
        "request_id": run.context.request_id,
        "user_id": run.context.user_id,
        "project_id": run.context.project_id,
        "updated_at": run.finished_at or run.created_at,
        "lease_until": None,
    }


_ATTRIBUTES = tuple(name for name in Run.__struct_fields__ if name != "status")


def run_of(row: AnyRow) -> Run:
    """The run of a row. ``owner`` is who holds its lease, or held it last."""
    values = {name: getattr(row, name) for name in _ATTRIBUTES}
    return Run(status=Status(row.status), **values)


def event_of_row(row: AnyRow) -> Event:
    """The event of a row."""
    return Event(
        step=row.step,
        what=What(row.what),
        at=row.at,
        seq=row.seq,
        output=row.output,
        error=row.error,
        host=row.host,
        note=row.note,
        public=row.public,
    )
