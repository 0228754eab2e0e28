"""How an operator mends a run that is stuck or waits too long: what is written into its journal. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

from kilonova.base.errors import Conflict, ErrorRecord
from kilonova.base.flow import Event, Flow, Next, Step, What, current_attempt, failure_of, failures, plan

_BACK = {What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDO_FAILED}


class Standing(NamedTuple):
    """Where a run stands: the step that is next or under way (None: it is about to end), the way, and why it waits."""

    step: Step | None
    undo: bool
    reason: str


def standing(flow: Flow, log: Sequence[Event]) -> Standing:
    """Look at a run's journal as its driver does."""
    decision = plan(flow, log)
    if not decision.steps:
        return Standing(None, decision.next is Next.UNDONE, "it is about to end")
    step = decision.steps[0]
    _, events = current_attempt(log)
    last = next((event for event in reversed(events) if event.step == step.name), None)
    undo = decision.next is Next.UNDO or (last is not None and last.what in _BACK)
    return Standing(step, undo, _reason(log, step, undo=undo, decision=decision.next, last=last))


def _reason(log: Sequence[Event], step: Step, *, undo: bool, decision: Next, last: Event | None) -> str:
    doing = f"undoing {step.name}" if undo else step.name
    failed = failures(log, step, What.UNDO_FAILED if undo else What.FAILED)
    if failed and decision is not Next.WAIT:
        error = failed[-1].error or failure_of(log)
        return f"{doing} failed {len(failed)} times of {step.tries}: {error.message}"
    if decision is Next.WAIT and last is not None:
        whom = f"for {last.host} " if last.host else "to be reported "
        return f"{doing} waits {whom}since {last.at:%Y-%m-%d %H:%M:%S}, at most {step.wait:.0f} s"
    return f"{doing} is next"


def retry(log: Sequence[Event], *, at: datetime.datetime) -> list[Event]:
    """Forget the failures: what is stuck is tried as often again, what pauses is tried now."""
    return [Event(step="", what=What.RETRY, at=at, note="an operator wants it tried afresh")]


def skip(flow: Flow, log: Sequence[Event], *, at: datetime.datetime) -> list[Event]:
    """Take the step (on the way back: its undo) for done. What it would have given is missing from then on."""
    where = standing(flow, log)
    step = _step(where)
    what = What.UNDONE if where.undo else What.SUCCEEDED
    return [Event(step=step.name, what=what, at=at, public=step.event or "", note="skipped by an operator")]


def unwind(flow: Flow, log: Sequence[Event], *, at: datetime.datetime) -> list[Event]:
    """Give up and undo all that was done; Conflict behind the pivot, from which on a run only goes forward."""
    where = standing(flow, log)
    step = _step(where)
    if where.undo:
        raise Conflict("It is being unwound already: retry or skip the undo that fails.")
    _, events = current_attempt(log)
    done = {event.step for event in events if event.what is What.SUCCEEDED}
    if flow.forward_only or any(each.pivot and each.name in done for each in flow.steps):
        raise Conflict(f"The flow {flow.name} is past the point from which on it only goes forward: retry or skip.")
    error = ErrorRecord(kind="Unwound", message="An operator unwound the operation.", safe=True)
    return [Event(step=step.name, what=What.FAILED, at=at, public=step.event or "", error=error)]


def _step(where: Standing) -> Step:
    if where.step is None:
        raise Conflict("Nothing is left to do: it ends by itself.")
    return where.step
