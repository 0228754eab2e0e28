"""The journal in a database: ``base.journal.Journal`` over the tables of runs.

Every write names the ``seq`` it follows and is one UPDATE with it in its condition; what it met tells Stale from
RunSuperseded. The server's task_state changes in the same transaction, before the run's row (see ``runs`` on locks).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from sqlalchemy import or_, select, update

from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict, ErrorRecord, NotFound, RunSuperseded
from kilonova.base.flow import Event, Report, Run, Status
from kilonova.base.journal import Stale, accepts, event_of
from kilonova.store.actions import Action, ActionEvent, action, actions
from kilonova.store.runs import (
    awaited_from,
    begin,
    begin_delete,
    cancel_in,
    insert_events,
    record,
    run_of,
    runs,
    start_in,
    tables,
    wipe_in,
    with_events,
)
from kilonova.store.schema_cell import instances
from kilonova.store.session import AnyRow, Database, Tx

__all__ = [
    "Action",
    "ActionEvent",
    "DatabaseJournal",
    "action",
    "actions",
    "awaited_from",
    "begin",
    "begin_delete",
    "record",
    "runs",
    "start_in",
]


class _Unwanted(Exception):
    """Nobody waits for the report: nothing of its transaction stays."""


class DatabaseJournal:
    """The journal of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, run: Run) -> None:
        """As the Protocol says."""
        try:
            self._database.write(lambda tx: start_in(tx, run))
        except Conflict:
            # Of two who enter the same id at once, the second finds it there now.
            if self._database.query(lambda tx: _row(tx, run.id)) is None:
                raise

    def read(self, run_id: str) -> tuple[Run, list[Event]]:
        """As the Protocol says."""

        def read(tx: Tx) -> tuple[Run, list[Event]]:
            row = _row(tx, run_id)
            if row is None:
                raise NotFound(f"run {run_id} is not known")
            return with_events(tx, [run_of(row)])[0]

        return self._database.query(read)

    def append(self, run_id: str, events: Sequence[Event], *, expect: int, task: str | None = None) -> None:
        """As the Protocol says."""

        def write(tx: Tx) -> None:
            if task is not None:
                _set_task(tx, run_id, task)
            _swap(tx, run_id, expect=expect, seq=expect + len(events))
            insert_events(tx, run_id, events, after=expect)

        self._database.write(write)

    def append_report(self, report: Report, *, at: datetime.datetime, task: str | None = None) -> bool:
        """As the Protocol says."""

        def write(tx: Tx) -> None:
            if task is not None:
                _set_task(tx, report.run, task)
            row = _row(tx, report.run, lock=True)
            if row is None or row.status != Status.RUNNING.value:
                raise _Unwanted
            run, log = with_events(tx, [run_of(row)])[0]
            if not accepts(log, report):
                raise _Unwanted
            # Due at once: should this process die before it drives the run on, any other one does.
            _swap(tx, run.id, expect=run.seq, seq=run.seq + 1, due_at=None)
            insert_events(tx, run.id, [event_of(report, at=at)], after=run.seq)

        try:
            self._database.write(write)
        except _Unwanted:
            return False
        return True

    def acquire(self, run_id: str, owner: str, *, until: datetime.datetime, now: datetime.datetime) -> bool:
        """As the Protocol says."""

        def write(tx: Tx) -> bool:
            t = tables(tx).runs
            free = or_(t.c.lease_until.is_(None), t.c.lease_until <= now, t.c.owner == owner)
            query = update(t).where(t.c.id == run_id, t.c.status == Status.RUNNING.value, free)
            return tx.changes(query.values(owner=owner, lease_until=until)) > 0

        return self._database.write(write)

    def release(self, run_id: str, owner: str, *, due_at: datetime.datetime | None) -> None:
        """As the Protocol says."""

        def write(tx: Tx) -> None:
            t = tables(tx).runs
            query = update(t).where(t.c.id == run_id, t.c.owner == owner)
            tx.execute(query.values(owner="", lease_until=None, due_at=due_at))

        self._database.write(write)

    def finish(
        self,
        run_id: str,
        status: Status,
        *,
        expect: int,
        at: datetime.datetime,
        error: ErrorRecord | None = None,
        wipe: frozenset[str] = frozenset(),
    ) -> None:
        """As the Protocol says."""
        values: dict[str, Any] = {"status": status.value, "finished_at": at, "updated_at": at, "error": error}
        frees = status in (Status.DONE, Status.UNDONE)
        if frees:
            values["active_subject"] = None

        def write(tx: Tx) -> None:
            if frees:
                _set_task(tx, run_id, None)
            _swap(tx, run_id, expect=expect, **values)
            wipe_in(tx, run_id, wipe)

        self._database.write(write)

    def cancel(self, run_id: str, *, at: datetime.datetime, wipe: frozenset[str] = frozenset()) -> bool:
        """As the Protocol says."""
        return self._database.write(lambda tx: cancel_in(tx, run_id, at=at, wipe=wipe))

    def leased(self, run_id: str, *, now: datetime.datetime) -> bool:
        """As the Protocol says."""

        def read(tx: Tx) -> bool:
            t = tables(tx).runs
            return tx.scalar(select(t.c.id).where(t.c.id == run_id, t.c.lease_until > now)) is not None

        return self._database.query(read)

    def due(self, *, now: datetime.datetime, limit: int) -> list[str]:
        """As the Protocol says; those that wait longest first."""

        def read(tx: Tx) -> list[str]:
            t = tables(tx).runs
            query = select(t.c.id).where(
                t.c.status == Status.RUNNING.value,
                or_(t.c.lease_until.is_(None), t.c.lease_until <= now),
                # A lease that ran out was a dead driver's, who may have been anywhere in its work.
                or_(t.c.due_at.is_(None), t.c.due_at <= now, t.c.lease_until.is_not(None)),
            )
            return [row.id for row in tx.rows(query.order_by(t.c.created_at).limit(limit))]

        return self._database.query(read)


def _row(tx: Tx, run_id: str, *, lock: bool = False) -> AnyRow | None:
    t = tables(tx).runs
    query = select(t).where(t.c.id == run_id)
    return tx.row(query.with_for_update() if lock else query)


def _swap(tx: Tx, run_id: str, *, expect: int, **values: Any) -> None:
    """Change a RUNNING run that stands at ``expect``."""
    t = tables(tx).runs
    query = update(t).where(t.c.id == run_id, t.c.seq == expect, t.c.status == Status.RUNNING.value)
    if tx.changes(query.values({"updated_at": utcnow()} | values)) > 0:
        return
    row = _row(tx, run_id)
    if row is None:
        raise NotFound(f"run {run_id} is not known")
    if row.status != Status.RUNNING.value:
        raise RunSuperseded()
    raise Stale(run_id)


def _set_task(tx: Tx, run_id: str, task: str | None) -> None:
    """The task_state of the server that an exclusive run holds; that of a deleted server stays as it is."""
    if tx.schema != "cell":
        return
    t = tables(tx).runs
    subject = tx.scalar(select(t.c.subject).where(t.c.id == run_id, t.c.exclusive))
    if subject is not None:
        query = update(instances).where(instances.c.uuid == subject, instances.c.deleted == 0)
        tx.execute(query.values(task_state=task, updated_at=utcnow()))
