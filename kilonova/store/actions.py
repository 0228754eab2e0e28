"""What users see of the journal: the actions of a server, and their events."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from kilonova.base.errors import BadRequest, NotFound, public_text
from kilonova.base.flow import Event, Run, Status, What
from kilonova.store.runs import Log, run_of, tables, with_events
from kilonova.store.session import Tx

_DONE_BACK = {What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDONE, What.UNDO_FAILED}


class ActionEvent(msgspec.Struct, kw_only=True):
    """A part of an action. ``result``: Success, Error, or None while it runs. ``traceback`` is for administrators."""

    event: str
    start_time: datetime.datetime
    finish_time: datetime.datetime | None = None
    result: str | None = None
    traceback: str | None = None
    host: str = ""
    details: str | None = None


class Action(msgspec.Struct, kw_only=True):
    """Something done to a server. ``message`` is Error when it failed. ``events`` are oldest first."""

    action: str
    server: str
    request_id: str
    user_id: str
    project_id: str
    start_time: datetime.datetime
    updated_at: datetime.datetime
    finish_time: datetime.datetime | None = None
    message: str | None = None
    events: list[ActionEvent] = []


def actions(
    tx: Tx,
    server: str,
    *,
    limit: int | None = None,
    marker: str | None = None,
    changes_since: datetime.datetime | None = None,
    changes_before: datetime.datetime | None = None,
) -> list[Action]:
    """The actions of a server, newest first, without their events.

    ``marker``: the request id of the last one of the page before; BadRequest when it is none of this server's.
    The times are compared with updated_at.
    """
    columns = tables(tx).runs.c
    query = select(tables(tx).runs).where(columns.subject == server, columns.action != "")
    if changes_since is not None:
        query = query.where(columns.updated_at >= changes_since)
    if changes_before is not None:
        query = query.where(columns.updated_at <= changes_before)
    rows = tx.rows(query.order_by(columns.created_at.desc(), columns.id.desc()))
    if marker is not None:
        at = next((number for number, row in enumerate(rows) if row.request_id == marker), None)
        if at is None:
            raise BadRequest(f"marker [{marker}] not found")
        rows = rows[at + 1 :]
    return [_action((run_of(row), []), updated_at=row.updated_at) for row in rows[:limit]]


def action(tx: Tx, server: str, request_id: str) -> Action:
    """One action with its events; NotFound."""
    columns = tables(tx).runs.c
    query = select(tables(tx).runs).where(
        columns.subject == server, columns.request_id == request_id, columns.action != ""
    )
    row = tx.row(query.order_by(columns.created_at.desc(), columns.id.desc()))
    if row is None:
        raise NotFound(f"Action for request_id {request_id} on instance {server} not found")
    return _action(with_events(tx, [run_of(row)])[0], updated_at=row.updated_at)


def _action(log: Log, *, updated_at: datetime.datetime) -> Action:
    run, events = log
    return Action(
        action=run.action,
        server=run.subject,
        request_id=run.context.request_id,
        user_id=run.context.user_id,
        project_id=run.context.project_id,
        start_time=run.created_at,
        updated_at=updated_at,
        finish_time=run.finished_at,
        message="Error" if run.status in (Status.UNDONE, Status.STUCK) else None,
        events=events_of(run, events),
    )


def events_of(run: Run, log: Sequence[Event]) -> list[ActionEvent]:
    """The journal's entries as events: consecutive steps with one public name are one; what is undone is not shown.

    A host's report does not repeat the public name of the step, so it is taken from where the step began.
    """
    names: dict[str, str] = {}
    found: list[ActionEvent] = []
    open_steps: set[str] = set()
    for event in log:
        if event.what is What.AGAIN:
            names.clear()
            open_steps.clear()
            # Parts the events of the next attempt from those of this one; it has no name, so it is not shown.
            found.append(ActionEvent(event="", start_time=event.at))
            continue
        name = names.setdefault(event.step, event.public) or event.public
        if not name or event.what in _DONE_BACK:
            continue
        if not found or found[-1].event != name:
            found.append(ActionEvent(event=name, start_time=event.at))
            open_steps.clear()
        _add(found[-1], event, open_steps)
    shown = [each for each in found if each.event]
    if run.status is not Status.RUNNING:
        for each in shown:
            each.finish_time = each.finish_time or run.finished_at
            each.result = each.result or "Error"
    return shown


def _add(shown: ActionEvent, event: Event, open_steps: set[str]) -> None:
    shown.host = event.host or shown.host
    if event.what in (What.STARTED, What.DISPATCHED):
        open_steps.add(event.step)
        shown.finish_time = shown.result = None
        return
    open_steps.discard(event.step)
    if event.error is not None:
        shown.result, shown.finish_time = "Error", event.at
        shown.details, shown.traceback = public_text(event.error), event.error.details or event.error.message
    elif not open_steps:
        shown.result, shown.finish_time = "Success", event.at
