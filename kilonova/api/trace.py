"""Our own resources for administrators: the time line of what was done to a server, or for one request.

It is read from the journals of the API database and of the cells: every run, every step with where it ran, when it
began, how long it took and how it ended. What runs or is stuck is named at the top.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.api.moments import aware, micro, now
from kilonova.base.errors import NotFound
from kilonova.base.flow import Event, Run, Status, What
from kilonova.base.operation import operation
from kilonova.store import build_requests, journal

_RULE = "os_compute_api:kilonova:trace"

_BEGINS = {
    What.STARTED: False,
    What.DISPATCHED: False,
    What.UNDO_STARTED: True,
    What.UNDO_DISPATCHED: True,
}
_ENDS = {
    What.SUCCEEDED: (False, "done"),
    What.FAILED: (False, "failed"),
    What.UNDONE: (True, "undone"),
    What.UNDO_FAILED: (True, "undo failed"),
}


class TracedStep(msgspec.Struct, kw_only=True):
    """One try of one step. ``result``: done, failed, undone, undo failed, or running."""

    step: str
    where: str
    started_at: datetime.datetime
    undo: bool = False
    attempt: int = 1
    seconds: float | None = None
    result: str = "running"
    error: str | None = None
    note: str = ""


def steps_of(events: Sequence[Event]) -> list[TracedStep]:
    """The tries of a run's steps, in the order of their beginnings."""
    found: list[TracedStep] = []
    last_report: dict[str, datetime.datetime] = {}
    open_steps: dict[tuple[str, bool], TracedStep] = {}
    attempt = 1
    for event in events:
        if event.what is What.AGAIN:
            attempt += 1
            open_steps.clear()
        elif event.what in _BEGINS:
            undo = _BEGINS[event.what]
            step = TracedStep(
                step=event.step, where=event.host or "conductor", started_at=event.at, undo=undo, attempt=attempt
            )
            found.append(step)
            open_steps[event.step, undo] = step
        elif event.what in _ENDS:
            undo, result = _ENDS[event.what]
            done = open_steps.pop((event.step, undo), None)
            if done is None:
                done = TracedStep(
                    step=event.step, where=event.host or "conductor", started_at=event.at, undo=undo, attempt=attempt
                )
                found.append(done)
            if event.host in last_report:  # steps sent together run one after another
                done.started_at = max(aware(done.started_at), last_report[event.host])
            last_report[event.host or "conductor"] = aware(event.at)
            _end(done, event, result)
    return found


def _end(step: TracedStep, event: Event, result: str) -> None:
    step.result = result
    step.seconds = (aware(event.at) - aware(step.started_at)).total_seconds()
    step.note = event.note
    if event.host:
        step.where = event.host
    if event.error is not None:
        step.error = f"{event.error.kind}: {event.error.message}"


def _run(where: str, run: Run, events: Sequence[Event], *, moment: datetime.datetime) -> dict[str, Any]:
    end = run.finished_at or moment
    return {
        "id": run.id,
        "flow": run.flow,
        "action": run.action,
        "server": run.subject,
        "request_id": run.context.request_id,
        "where": where,
        "status": run.status.value,
        "driver": run.owner,
        "started_at": micro(run.created_at),
        "finished_at": micro(run.finished_at),
        "seconds": (aware(end) - aware(run.created_at)).total_seconds(),
        "error": f"{run.error.kind}: {run.error.message}" if run.error is not None else None,
        "steps": [_step(step, run, moment=moment) for step in steps_of(events)],
    }


def _step(step: TracedStep, run: Run, *, moment: datetime.datetime) -> dict[str, Any]:
    """A step that never ended runs still, or the run ended around it."""
    unfinished = step.result == "running"
    seconds = step.seconds
    if unfinished and run.status is Status.RUNNING:
        seconds = (moment - aware(step.started_at)).total_seconds()
    return {
        "step": step.step,
        "where": step.where,
        "started_at": micro(step.started_at),
        "seconds": seconds,
        "result": "abandoned" if unfinished and run.status is not Status.RUNNING else step.result,
        "undo": step.undo,
        "attempt": step.attempt,
        "error": step.error,
        "note": step.note,
    }


def _trace(call: Call[Any], *, subject: str | None = None, request_id: str | None = None) -> dict[str, Any]:
    """The runs of a server or request in all databases that answer, oldest first."""
    cells = call.services.cells
    names = {mapping.uuid: mapping.name or mapping.uuid for mapping in cells.all()}
    gathered = cells.gather(lambda tx: journal.runs(tx, subject=subject, request_id=request_id))
    parts = {names.get(cell, cell): part for cell, part in gathered.found.items()}
    with cells.api.read() as tx:
        parts["api"] = journal.runs(tx, subject=subject, request_id=request_id)
        if subject is not None:  # its scheduling is a run of the whole request
            created = {run.context.request_id for part in parts.values() for run, _ in part if run.action == "create"}
            if build_requests.waiting(tx, [subject]):
                created.add(build_requests.get(tx, subject).request.request_id)
            known = {run.id for run, _ in parts["api"]}
            of_requests = [found for request in sorted(created) for found in journal.runs(tx, request_id=request)]
            parts["api"] += [found for found in of_requests if found[0].id not in known]
    moment = now()
    runs = [_run(where, run, events, moment=moment) for where, part in parts.items() for run, events in part]
    if not runs and not gathered.down:
        raise NotFound(f"No run of {subject or request_id} is on record.")
    runs.sort(key=lambda run: str(run["started_at"]))
    return {
        "trace": {
            "running": [run["id"] for run in runs if run["status"] == Status.RUNNING.value],
            "stuck": [run["id"] for run in runs if run["status"] == Status.STUCK.value],
            "silent_cells": sorted(names.get(cell, cell) for cell in gathered.down),
            "runs": runs,
        }
    }


@operation("GET", "/servers/{server_id}/kilonova-trace", rule=_RULE, query=NoQuery, refuses={403, 404})
def trace_server(call: Call[None]) -> dict[str, Any]:
    """All runs on a server, with their steps."""
    call.authorize()
    return _trace(call, subject=call.params["server_id"])


@operation("GET", "/kilonova-trace/{request_id}", rule=_RULE, query=NoQuery, refuses={403, 404})
def trace_request(call: Call[None]) -> dict[str, Any]:
    """All runs that one request began, with their steps."""
    call.authorize()
    return _trace(call, request_id=call.params["request_id"])
