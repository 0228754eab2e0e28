"""The journal's Protocol, and one in memory that passes the same contract tests as the ones in databases.

Concurrency is by compare-and-swap. Every write that belongs to a driver names the ``seq`` it planned from: when a
report of a host came in between, the write is refused (Stale), and the driver reads and plans again. A run that was
cancelled refuses every write (RunSuperseded), so that a driver that does not know of a delete changes nothing more.
"""

from __future__ import annotations

import copy
import datetime
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilonova.base.errors import Conflict, ErrorRecord, NotFound, RunSuperseded
from kilonova.base.flow import Event, Report, Run, Status, What, current_attempt


class Stale(Exception):
    """The journal has moved since it was read."""


class Journal(Protocol):
    """Where runs and their events are kept: one per database."""

    def start(self, run: Run) -> None:
        """Enter a run. Conflict when its subject has an exclusive run already. Starting an id twice changes nothing."""

    def read(self, run_id: str) -> tuple[Run, list[Event]]:
        """The run and its events in order; NotFound."""

    def append(self, run_id: str, events: Sequence[Event], *, expect: int, task: str | None = None) -> None:
        """Write events behind ``expect``; Stale, RunSuperseded. ``task``: the subject's task_state from now on."""

    def append_report(self, report: Report, *, at: datetime.datetime, task: str | None = None) -> bool:
        """Write what a host says if the step is still awaited; False when nobody waits for it any more.

        The run is due at once. ``task``: the subject's task_state from now on, if the report is taken.
        """

    def acquire(self, run_id: str, owner: str, *, until: datetime.datetime, now: datetime.datetime) -> bool:
        """Take the lease if nobody's holds at ``now``; also renews one's own. False when held or not RUNNING."""

    def release(self, run_id: str, owner: str, *, due_at: datetime.datetime | None) -> None:
        """Give the lease back; the run is looked at again at ``due_at`` at the latest."""

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
        """End the run. DONE and UNDONE free the subject and clear its task_state; Stale, RunSuperseded.

        ``wipe``: keys to be removed from the run's state and from the outputs of its events.
        """

    def cancel(self, run_id: str, *, at: datetime.datetime, wipe: frozenset[str] = frozenset()) -> bool:
        """Make a RUNNING or STUCK run CANCELLED and free its subject; False when it had ended."""

    def leased(self, run_id: str, *, now: datetime.datetime) -> bool:
        """Whether a driver still holds the run (also a cancelled one)."""

    def due(self, *, now: datetime.datetime, limit: int) -> list[str]:
        """Ids of RUNNING runs that nobody drives and that are due, or whose driver let its lease run out."""


def without(values: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, Any]:
    """``values`` less its secrets."""
    return {key: value for key, value in values.items() if key not in secrets}


def accepts(log: Sequence[Event], report: Report) -> bool:
    """Whether ``report`` answers what the journal waits for: a step dispatched in this very attempt."""
    attempt, events = current_attempt(log)
    if attempt != report.attempt:
        return False
    last = next((e.what for e in reversed(events) if e.step == report.step), None)
    return last in ((What.UNDO_DISPATCHED,) if report.undo else (What.DISPATCHED, What.STARTED))


def event_of(report: Report, *, at: datetime.datetime) -> Event:
    """The journal's entry for a report."""
    if report.undo:
        what = What.UNDO_FAILED if report.error else What.UNDONE
    else:
        what = What.FAILED if report.error else What.SUCCEEDED
    return Event(step=report.step, what=what, at=at, output=report.output, error=report.error, host=report.host)


class MemoryJournal:
    """Implements ``Journal`` in memory."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._events: dict[str, list[Event]] = {}
        self._leases: dict[str, tuple[str, datetime.datetime]] = {}
        self._lock = threading.RLock()

    def start(self, run: Run) -> None:
        with self._lock:
            if run.id in self._runs:
                return
            rivals = (r for r in self._runs.values() if r.subject == run.subject and r.exclusive)
            if run.exclusive and any(r.status in (Status.RUNNING, Status.STUCK) for r in rivals):
                raise Conflict(f"{run.subject} has another operation under way")
            self._runs[run.id] = copy.deepcopy(run)
            self._events[run.id] = []

    def read(self, run_id: str) -> tuple[Run, list[Event]]:
        with self._lock:
            self._known(run_id)
            return copy.deepcopy(self._runs[run_id]), copy.deepcopy(self._events[run_id])

    def _known(self, run_id: str) -> Run:
        if run_id not in self._runs:
            raise NotFound(f"run {run_id} is not known")
        return self._runs[run_id]

    def append(self, run_id: str, events: Sequence[Event], *, expect: int, task: str | None = None) -> None:
        with self._lock:
            run = self._writable(run_id, expect)
            self._add(run, events)

    def _writable(self, run_id: str, expect: int) -> Run:
        run = self._known(run_id)
        if run.status is not Status.RUNNING:
            raise RunSuperseded()
        if run.seq != expect:
            raise Stale(run_id)
        return run

    def _add(self, run: Run, events: Sequence[Event]) -> None:
        for event in events:
            run.seq += 1
            self._events[run.id].append(msgspec.structs.replace(copy.deepcopy(event), seq=run.seq))

    def append_report(self, report: Report, *, at: datetime.datetime, task: str | None = None) -> bool:
        with self._lock:
            run = self._runs.get(report.run)
            if run is None or run.status is not Status.RUNNING or not accepts(self._events[run.id], report):
                return False
            self._add(run, [event_of(report, at=at)])
            run.due_at = None
            return True

    def acquire(self, run_id: str, owner: str, *, until: datetime.datetime, now: datetime.datetime) -> bool:
        with self._lock:
            run, held = self._runs.get(run_id), self._leases.get(run_id)
            if run is None or run.status is not Status.RUNNING or (held and held[0] != owner and held[1] > now):
                return False
            self._leases[run_id] = (owner, until)
            return True

    def release(self, run_id: str, owner: str, *, due_at: datetime.datetime | None) -> None:
        with self._lock:
            if self._leases.get(run_id, ("",))[0] == owner:
                del self._leases[run_id]
                self._runs[run_id].due_at = due_at

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
        with self._lock:
            run = self._writable(run_id, expect)
            run.status, run.error, run.finished_at = status, error, at
            self._wipe(run, wipe)

    def _wipe(self, run: Run, secrets: frozenset[str]) -> None:
        run.state = without(run.state, secrets)
        self._events[run.id] = [
            msgspec.structs.replace(event, output=without(event.output, secrets)) for event in self._events[run.id]
        ]

    def cancel(self, run_id: str, *, at: datetime.datetime, wipe: frozenset[str] = frozenset()) -> bool:
        with self._lock:
            run = self._runs.get(run_id)
            if run is None or run.status not in (Status.RUNNING, Status.STUCK):
                return False
            run.status, run.finished_at = Status.CANCELLED, at
            self._wipe(run, wipe)
            return True

    def leased(self, run_id: str, *, now: datetime.datetime) -> bool:
        with self._lock:
            held = self._leases.get(run_id)
            return held is not None and held[1] > now

    def due(self, *, now: datetime.datetime, limit: int) -> list[str]:
        with self._lock:
            return [
                run.id
                for run in self._runs.values()
                if run.status is Status.RUNNING
                and not self.leased(run.id, now=now)
                and (run.due_at is None or run.due_at <= now or run.id in self._leases)
            ][:limit]
