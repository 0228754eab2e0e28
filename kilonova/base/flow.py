"""Resumable workflows: a list of steps, a journal of what happened, and a pure planner.

A flow is a tuple of steps. A step is a plain function from the flow's state to outputs, which are journaled and become
part of the state of the later steps; or the name of a contract's method that a host runs. ``plan`` looks at the journal
alone and says what is next, so any process may go on with a run after a crash of the one that drove it. Steps run at
least once: each is written as ``ensure_…``. Up to the *pivot* a failure unwinds the run; behind it the run only goes
forward, tries again, and then asks a person (STUCK).

Consecutive steps at one host travel as one message; the host reports each. Where they were sent stands in the journal
as DISPATCHED (UNDO_DISPATCHED on the way back), and the run waits.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kilonova.base.context import Context
from kilonova.base.errors import ErrorRecord


class What(enum.Enum):
    """What may be journaled of a step."""

    STARTED = "started"
    DISPATCHED = "dispatched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNDO_STARTED = "undo_started"
    UNDO_DISPATCHED = "undo_dispatched"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"
    AGAIN = "again"
    RETRY = "retry"  # an operator wants what failed to be tried afresh; belongs to no step


class Status(enum.Enum):
    """How a run stands. RUNNING includes waiting; CANCELLED is what a delete makes of a rival."""

    RUNNING = "running"
    DONE = "done"
    UNDONE = "undone"
    STUCK = "stuck"
    CANCELLED = "cancelled"


class Next(enum.Enum):
    """What the planner says."""

    DO = "do"
    UNDO = "undo"
    WAIT = "wait"
    DONE = "done"
    UNDONE = "undone"
    STUCK = "stuck"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    ``do``/``undo``: functions (env, state) run by the conductor; or, with ``at``, methods of the hosts' contract.
    ``at``: the attribute of the state that names the host that runs it; None is the conductor.
    ``no_undo``: why there is nothing to undo, where ``undo`` is None and the step stands before the pivot.
    ``wait``: seconds that a host may take, or a parked step may stand.
    ``parked``: nothing runs; the run waits until somebody reports the step (a user's confirmation, an event).
    ``event``: the name under which users see it among the events of an instance action.
    ``task``: the task_state of the server from this step on.
    ``tries``: how often it is tried behind the pivot, and how often its undo is; failures of ``PASSING`` kinds do not
    count.
    ``patience``: how often a conductor's step before the pivot is tried again after failures of ``PASSING`` kinds.
    ``skip_when_down``: a host that is down, or no host at all, is no failure: the step counts as done.
    """

    name: str
    do: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    at: str | None = None
    no_undo: str = ""
    pivot: bool = False
    parked: bool = False
    wait: float = 600.0
    event: str | None = None
    task: str | None = None
    tries: int = 5
    patience: int = 0
    skip_when_down: bool = False


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow.

    ``name`` is unique; ``action`` is how users see it in the instance actions (None: not shown).
    ``state`` is the struct that the run's parameters and the steps' outputs make up.
    ``again``: asked when all is undone: new values of the state, and the list starts once more; or None.
    ``undone``/``stuck``: called (idempotent) with (env, state, error) when the run ends so, e.g. to record a fault.
    ``forward_only``: there is no way back from the first step on (a delete).
    ``secrets``: attributes of the state that are wiped from the journal at the end.
    """

    name: str
    state: type[msgspec.Struct]
    steps: tuple[Step, ...]
    action: str | None = None
    again: Callable[[Any, ErrorRecord], Mapping[str, Any] | None] | None = None
    undone: Callable[[Any, Any, ErrorRecord], None] | None = None
    stuck: Callable[[Any, Any, ErrorRecord], None] | None = None
    forward_only: bool = False
    secrets: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name}: two steps have one name")
        before_pivot = not self.forward_only
        for step in self.steps:
            if before_pivot and not step.pivot and step.undo is None and not step.no_undo:
                raise ValueError(f"{self.name}.{step.name} names no undo and does not say why")
            if step.pivot:
                before_pivot = False

    def step(self, name: str) -> Step:
        """The step of that name."""
        return next(step for step in self.steps if step.name == name)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a run's journal. ``seq`` counts from 1 within the run; ``public`` is the name that users see."""

    step: str
    what: What
    at: datetime.datetime
    seq: int = 0
    output: dict[str, Any] = {}
    error: ErrorRecord | None = None
    host: str = ""
    note: str = ""
    public: str = ""


class Run(msgspec.Struct, kw_only=True):
    """One execution of a flow. ``seq`` is the number of its last event; ``subject`` the server it is about.

    ``action``: how users see it among the instance actions ("" for not at all).
    ``exclusive``: holds its subject: no second such run may be RUNNING or STUCK on it.
    """

    id: str
    flow: str
    subject: str
    state: dict[str, Any]
    context: Context
    created_at: datetime.datetime
    status: Status = Status.RUNNING
    seq: int = 0
    owner: str = ""
    due_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    error: ErrorRecord | None = None
    exclusive: bool = True
    action: str = ""


class WorkStep(msgspec.Struct, frozen=True):
    """A step as a host gets it: its name, and the method of the contract."""

    name: str
    method: str


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Steps for a host, to be run in order; it reports each, and stops at the first failure.

    ``attempt`` counts the AGAINs before; ``undo``: they are undos. ``where`` names the database that holds the run.
    """

    run: str
    attempt: int
    steps: list[WorkStep]
    state: dict[str, Any]
    subject: str = ""
    undo: bool = False
    where: str = ""
    wait: float = 600.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of a step: exactly one of ``error`` and ``output`` counts."""

    run: str
    attempt: int
    step: str
    host: str
    undo: bool = False
    output: dict[str, Any] = {}
    error: ErrorRecord | None = None
    where: str = ""


class Plan(NamedTuple):
    """The planner's word: what to do, with which steps (in order; several only when one host gets them together)."""

    next: Next
    steps: tuple[Step, ...] = ()


PASSING = frozenset({"NeighbourUnavailable", "DatabaseUnavailable", "BusTimeout", "NoSuchPeer"})
"""Kinds of errors that say nothing of the step: whoever it needs is away for now."""
PATIENCE = 1000
_BROKEN = {What.FAILED, What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDONE, What.UNDO_FAILED}


def current_attempt(log: Sequence[Event]) -> tuple[int, Sequence[Event]]:
    """How often the list was begun again, and the events since."""
    starts = [i for i, event in enumerate(log) if event.what is What.AGAIN]
    return len(starts), log[starts[-1] + 1 :] if starts else log


def plan(flow: Flow, log: Sequence[Event]) -> Plan:
    """What to do now, from the journal alone. Never touches the world."""
    _, events = current_attempt(log)
    last = {event.step: event.what for event in events}
    pivoted = flow.forward_only or any(s.pivot and last.get(s.name) is What.SUCCEEDED for s in flow.steps)
    broken = {name for name, what in last.items() if what in _BROKEN}
    if not pivoted and broken and not all(_may_pass(flow, events, last, name) for name in broken):
        return _plan_back(flow, events, last)
    return _plan_forward(flow, events, last)


def _may_pass(flow: Flow, events: Sequence[Event], last: Mapping[str, What], name: str) -> bool:
    """Whether a step before the pivot is tried once more, instead of the way back."""
    step = next((s for s in flow.steps if s.name == name), None)
    if step is None or step.at is not None or last[name] is not What.FAILED:
        return False
    failed = failures(events, step, What.FAILED)
    error = failed[-1].error if failed else None
    return error is not None and error.kind in PASSING and len(failed) <= step.patience


def _plan_forward(flow: Flow, events: Sequence[Event], last: Mapping[str, What]) -> Plan:
    for i, step in enumerate(flow.steps):
        what = last.get(step.name)
        if what is What.SUCCEEDED:
            continue
        if what is What.DISPATCHED or (step.parked and what is What.STARTED):
            return Plan(Next.WAIT, (step,))
        if _tried_enough(events, step, What.FAILED):
            return Plan(Next.STUCK, (step,))
        together = [step]
        if step.at is not None:
            for later in flow.steps[i + 1 :]:
                if later.at != step.at or step.pivot or last.get(later.name) not in (None, What.DISPATCHED):
                    break
                together.append(later)
                if later.pivot:
                    break
        return Plan(Next.DO, tuple(together))
    return Plan(Next.DONE)


def _plan_back(flow: Flow, events: Sequence[Event], last: Mapping[str, What]) -> Plan:
    touched = [s for s in flow.steps if last.get(s.name) not in (None, What.UNDONE)]
    if not touched:
        return Plan(Next.UNDONE)
    step = touched[-1]
    if last[step.name] is What.UNDO_DISPATCHED:
        return Plan(Next.WAIT, (step,))
    if _tried_enough(events, step, What.UNDO_FAILED):
        return Plan(Next.STUCK, (step,))
    together = [step]
    if step.at is not None and step.undo is not None:
        for earlier in reversed(touched[:-1]):
            if earlier.at != step.at or earlier.undo is None:
                break
            together.append(earlier)
    return Plan(Next.UNDO, tuple(together))


def _tried_enough(events: Sequence[Event], step: Step, what: What) -> bool:
    """Whether a person is to look. What passes by itself is waited for: most of a day, as pauses grow to a minute."""
    found = failures(events, step, what)
    lasting = [event for event in found if event.error is None or event.error.kind not in PASSING]
    return len(lasting) >= step.tries or len(found) >= max(step.tries, PATIENCE)


def failures(log: Sequence[Event], step: Step, what: What) -> list[Event]:
    """How often a step (or, by ``what``, its undo) failed in this attempt, since an operator wanted it tried afresh."""
    _, events = current_attempt(log)
    retries = [i for i, event in enumerate(events) if event.what is What.RETRY]
    counted = events[retries[-1] + 1 :] if retries else events
    return [event for event in counted if event.step == step.name and event.what is what]


def values_of(run: Run, log: Sequence[Event]) -> dict[str, Any]:
    """The state as plain data: the parameters with all outputs laid over them, in order."""
    values = dict(run.state)
    for event in log:
        if event.what in (What.SUCCEEDED, What.AGAIN):
            values.update(event.output)
    return values


def failure_of(log: Sequence[Event], stuck: Step | None = None) -> ErrorRecord:
    """The error that broke the current attempt: the first one journaled in it; the last of the step that is stuck."""
    _, events = current_attempt(log)
    for event in events if stuck is None else reversed(events):
        if event.error is not None and (stuck is None or event.step == stuck.name):
            return event.error
    return ErrorRecord(kind="Unknown", message="no failure is in the journal")
