"""Drives runs of flows by their journals. Safe to call from anywhere, at any time, as often as one likes.

``advance`` takes the run's lease, asks the planner, obeys, and gives the lease back when the run has ended or waits.
Who holds no lease does nothing, so two drivers never work on one run; the lease is renewed while a step runs. A driver
that dies leaves a lease that runs out, and ``sweep`` of any other process takes the run over.

A report that comes in while the lease is held is not lost: it is in the journal, and the driver looks once more after
it has given the lease back (the reporter cannot drive, for it does not get the lease).
"""

from __future__ import annotations

import datetime
import itertools
import random
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilonova.base import log, telemetry
from kilonova.base.context import acting
from kilonova.base.errors import ErrorRecord, HostIsDown, NotFound, RunSuperseded, record_of
from kilonova.base.flow import (
    Event,
    Flow,
    Next,
    Plan,
    Report,
    Run,
    Status,
    Step,
    What,
    Work,
    WorkStep,
    current_attempt,
    failure_of,
    plan,
    values_of,
)
from kilonova.base.journal import Journal, Stale, event_of

LOG = log.of(__name__)

_SENT = (What.DISPATCHED, What.UNDO_DISPATCHED, What.STARTED, What.UNDO_STARTED)


class Hosts(Protocol):
    """The engine's way to hosts."""

    def send(self, host: str, work: Work) -> None:
        """Hand work over; it may get lost, then it is sent again."""

    def is_up(self, host: str) -> bool:
        """Whether the host's service is believed to be alive."""


def utcnow() -> datetime.datetime:
    """The time, aware of its zone."""
    return datetime.datetime.now(datetime.UTC)


class Timing(msgspec.Struct, frozen=True):
    """Seconds: how long a lease lasts, when work is sent to a silent host again, the first pause after a failure."""

    lease: float = 30.0
    resend: float = 20.0
    pause: float = 1.0
    longest_pause: float = 60.0


class Engine:
    """Drives the runs of one database.

    ``env``: makes what the steps get as their first argument, from the run. ``watch`` is told of every event written.
    """

    def __init__(
        self,
        flows: Mapping[str, Flow],
        journal: Journal,
        hosts: Hosts,
        *,
        env: Callable[[Run], Any],
        where: str = "",
        owner: str = "",
        timing: Timing = Timing(),
        clock: Callable[[], datetime.datetime] = utcnow,
        watch: Callable[[Run, Flow, Event], None] = lambda run, flow, event: None,
    ) -> None:
        self._flows, self._journal, self._hosts = flows, journal, hosts
        self._env, self._where, self._timing, self._clock, self._watch = env, where, timing, clock, watch
        self._owner = owner or f"engine-{uuid.uuid4()}"
        self._driving: dict[str, str] = {}
        self._lock = threading.Lock()

    def advance(self, run_id: str) -> Next | None:
        """Drive the run until it ends or waits; None when somebody else drives it or it has ended."""
        while True:
            owner = f"{self._owner}/{uuid.uuid4().hex[:12]}"
            with self._lock:
                # A step may cause a report that leads back here; the driver above looks again when it has done.
                if run_id in self._driving:
                    return None
                self._driving[run_id] = owner
            try:
                now = self._clock()
                if not self._journal.acquire(run_id, owner, until=self._lease_end(now), now=now):
                    return None
                verdict, seen = self._drive_and_release(run_id, owner)
            finally:
                with self._lock:
                    self._driving.pop(run_id, None)
            if verdict is not Next.WAIT or self._journal.read(run_id)[0].seq == seen:
                return verdict

    def _drive_and_release(self, run_id: str, owner: str) -> tuple[Next | None, int]:
        due: datetime.datetime | None = self._after(self._timing.pause)
        try:
            verdict, seen, due = self._drive(run_id, owner)
        finally:
            self._journal.release(run_id, owner, due_at=due)
        return verdict, seen

    def report(self, report: Report) -> bool:
        """A host, or whoever ends a parked step, says how it went. False: nobody waits for it, stop working on it."""
        try:
            run, events = self._journal.read(report.run)
        except NotFound:
            return False
        task = self._task_behind(report, run, events)
        if not self._journal.append_report(self._fitting(report, run, events), at=self._clock(), task=task):
            return False
        run, events = self._journal.read(report.run)
        if run.flow in self._flows:
            taken = next((e for e in reversed(events) if e.step == report.step and e.what not in _SENT), events[-1])
            sent = next((e.at for e in reversed(events) if e.step == report.step and e.what in _SENT), taken.at)
            seconds = (taken.at - sent).total_seconds()
            telemetry.step_done(run.flow, taken.step, taken.what.value, seconds)
            self._tell(run, self._flows[run.flow], taken)
        return True

    def _task_behind(self, report: Report, run: Run, events: Sequence[Event]) -> str | None:
        """The task of the step that the host begins now: the next of those that were sent with the one it reports."""
        if report.error is not None or report.undo or run.flow not in self._flows:
            return None
        steps = self._flows[run.flow].steps
        place = next((n for n, step in enumerate(steps) if step.name == report.step), len(steps)) + 1
        if place >= len(steps) or steps[place] not in self._awaited(self._flows[run.flow], events, undo=False):
            return None
        return steps[place].task

    def knows(self, report: Report) -> bool:
        """Whether just this is journaled already: its sender did not hear the answer, and says it again."""
        run, events = self._journal.read(report.run)
        attempt, since = current_attempt(events)
        last = next((event for event in reversed(since) if event.step == report.step), None)
        said = event_of(report, at=self._clock())
        if run.status is not Status.RUNNING or attempt != report.attempt or last is None:
            return False
        return (last.what, last.host) == (said.what, said.host)

    def _fitting(self, report: Report, run: Run, events: Sequence[Event]) -> Report:
        """A report whose output the flow's state cannot hold is one of a failure: journaled, it would stop the run."""
        if report.error is not None or not report.output or run.flow not in self._flows:
            return report
        try:
            msgspec.convert(values_of(run, events) | report.output, self._flows[run.flow].state)
        except msgspec.ValidationError as error:
            return msgspec.structs.replace(report, output={}, error=record_of(error))
        return report

    def renew_leases(self) -> None:
        """To be called well within a lease's time, as long as the process lives."""
        with self._lock:
            held = list(self._driving.items())
        now = self._clock()
        for run_id, owner in held:
            self._journal.acquire(run_id, owner, until=self._lease_end(now), now=now)

    def due(self, *, limit: int = 100) -> list[str]:
        """Runs that want a driver now: new ones, ones left by a dead driver, ones whose wait or pause is over."""
        return self._journal.due(now=self._clock(), limit=limit)

    def _lease_end(self, now: datetime.datetime) -> datetime.datetime:
        return now + datetime.timedelta(seconds=self._timing.lease)

    def _drive(self, run_id: str, owner: str) -> tuple[Next | None, int, datetime.datetime | None]:
        """The verdict, the last event seen, and when to look again."""
        while True:
            run, events = self._journal.read(run_id)
            flow = self._flows.get(run.flow)
            if flow is None:
                return None, run.seq, self._after(60)  # a newer release's flow: left for a conductor that knows it
            if run.status is not Status.RUNNING:
                return None, run.seq, None
            decision = plan(flow, events)
            try:
                with acting(run.context):
                    due = self._obey(run, flow, events, decision)
            except Stale:
                # A report came in, or the lease ran out and another one drives: only the lease can tell.
                now = self._clock()
                if not self._journal.acquire(run_id, owner, until=self._lease_end(now), now=now):
                    return None, run.seq, None
                continue
            except RunSuperseded:
                LOG.info("run %s of %s was superseded", run.id, run.flow)
                return None, run.seq, None
            if due is not None:
                return Next.WAIT, run.seq, due
            if decision.next in (Next.DONE, Next.UNDONE, Next.STUCK):
                run, _ = self._journal.read(run_id)
                if run.status is not Status.RUNNING:
                    return decision.next, run.seq, None

    def _obey(self, run: Run, flow: Flow, events: Sequence[Event], decision: Plan) -> datetime.datetime | None:
        """Do what the planner says; a time when the run is to wait until then, None to plan again."""
        match decision.next:
            case Next.DO:
                return self._do(run, flow, events, decision.steps)
            case Next.UNDO:
                return self._undo(run, flow, events, decision.steps)
            case Next.WAIT:
                return self._wait(run, flow, events, decision.steps[0])
            case _:
                self._end(run, flow, events, decision)
                return None

    def _do(self, run: Run, flow: Flow, events: Sequence[Event], steps: tuple[Step, ...]) -> datetime.datetime | None:
        step = steps[0]
        pause = self._pause_before(events, step, What.FAILED)
        if pause is not None:
            return pause
        if step.parked:
            self._write(run, flow, [self._event(step, What.STARTED)], task=step.task)
            return None
        if step.at is not None:
            return self._dispatch(run, flow, events, steps, undo=False)
        self._write(run, flow, [self._event(step, What.STARTED)], task=step.task)
        begun = self._clock()
        try:
            assert step.do is not None, f"{flow.name}.{step.name} has nothing to do"
            output = plain(step.do(self._env(run), self._state(run, flow, events)) or {})
            msgspec.convert(values_of(run, events) | output, flow.state)
        except (Stale, RunSuperseded):
            raise
        except Exception as error:
            self._note_failure(run, step, error)
            self._write(run, flow, [self._event(step, What.FAILED, error=record_of(error))], begun=begun)
        else:
            self._write(run, flow, [self._event(step, What.SUCCEEDED, output=output)], begun=begun)
        return None

    def _undo(self, run: Run, flow: Flow, events: Sequence[Event], steps: tuple[Step, ...]) -> datetime.datetime | None:
        step = steps[0]
        pause = self._pause_before(events, step, What.UNDO_FAILED)
        if pause is not None:
            return pause
        if step.undo is None:
            self._write(run, flow, [self._event(step, What.UNDONE, note=step.no_undo)])
            return None
        if step.at is not None:
            return self._dispatch(run, flow, events, steps, undo=True)
        self._write(run, flow, [self._event(step, What.UNDO_STARTED)])
        begun = self._clock()
        try:
            step.undo(self._env(run), self._state(run, flow, events))
        except (Stale, RunSuperseded):
            raise
        except Exception as error:
            self._note_failure(run, step, error)
            self._write(run, flow, [self._event(step, What.UNDO_FAILED, error=record_of(error))], begun=begun)
        else:
            self._write(run, flow, [self._event(step, What.UNDONE)], begun=begun)
        return None

    def _dispatch(
        self, run: Run, flow: Flow, events: Sequence[Event], steps: tuple[Step, ...], *, undo: bool
    ) -> datetime.datetime | None:
        """Journal where the steps go, then send them. Lost on the way: ``_wait`` sends them again."""
        host = self._host_of(run, flow, events, steps[0])
        if not host or not self._hosts.is_up(host):
            self._write(run, flow, self._at_dead_host(steps, host, undo=undo))
            return None
        what = What.UNDO_DISPATCHED if undo else What.DISPATCHED
        self._write(run, flow, [self._event(s, what, host=host) for s in steps], task=None if undo else steps[0].task)
        self._send(run, flow, events, steps, host=host, undo=undo)
        return self._after(self._timing.resend)

    def _at_dead_host(self, steps: tuple[Step, ...], host: str, *, undo: bool) -> list[Event]:
        """A dead host's part is undone by itself: it asks what it should hold before it says it is up again."""
        if undo:
            note = f"host {host} is down; it clears this when it returns"
            return [self._event(s, What.UNDONE, host=host, note=note) for s in steps]
        if steps[0].skip_when_down:
            note = f"host {host} is down; it clears this when it returns" if host else "there is no host"
            return [self._event(steps[0], What.SUCCEEDED, host=host, note=note)]
        error = record_of(HostIsDown(f"The host {host} of this server is down.", host=host))
        return [self._event(steps[0], What.FAILED, host=host, error=error)]

    def _send(
        self, run: Run, flow: Flow, events: Sequence[Event], steps: Sequence[Step], *, host: str, undo: bool
    ) -> None:
        functions = [(s.name, s.undo if undo else s.do) for s in steps]
        work = Work(
            run=run.id,
            attempt=current_attempt(events)[0],
            steps=[WorkStep(name, function.__name__) for name, function in functions if function is not None],
            state=values_of(run, events),
            subject=run.subject,
            undo=undo,
            where=self._where,
            wait=max(s.wait for s in steps),
        )
        try:
            self._hosts.send(host, work)
        except Exception as error:
            LOG.warning("sending %s of run %s to %s failed, it is sent again: %s", steps[0].name, run.id, host, error)

    def _wait(self, run: Run, flow: Flow, events: Sequence[Event], step: Step) -> datetime.datetime | None:
        """Time out, notice a dead host, or send again; else go on waiting."""
        sent = next(e for e in reversed(events) if e.step == step.name)
        undo = sent.what is What.UNDO_DISPATCHED
        now = self._clock()
        # The later steps of one message begin when the host has reported the one before.
        begun = max(sent.at, events[-1].at)
        if (now - begun).total_seconds() > step.wait:
            text = f"{step.name} took longer than {step.wait:.0f} s"
            error = ErrorRecord(kind="StepTimeout", message=text, safe=True)
            what = What.UNDO_FAILED if undo else What.FAILED
            self._write(run, flow, [self._event(step, what, host=sent.host, error=error)])
            return None
        if step.parked:
            return sent.at + datetime.timedelta(seconds=step.wait)
        if not self._hosts.is_up(sent.host):
            self._write(run, flow, self._at_dead_host((step,), sent.host, undo=undo))
            return None
        if run.due_at is not None and run.due_at <= now:
            self._send(run, flow, events, self._awaited(flow, events, undo=undo), host=sent.host, undo=undo)
        return self._after(self._timing.resend)

    def _awaited(self, flow: Flow, events: Sequence[Event], *, undo: bool) -> list[Step]:
        """The steps that were sent and not reported, in the order in which the host is to run them.

        Only up to one that failed: when the report of a step before that was lost, none behind it may be run yet.
        """
        _, since = current_attempt(events)
        last = {e.step: e.what for e in since}
        wanted, failed = (What.UNDO_DISPATCHED, What.UNDO_FAILED) if undo else (What.DISPATCHED, What.FAILED)
        ordered = flow.steps[::-1] if undo else flow.steps
        until_failed = itertools.takewhile(lambda s: last.get(s.name) is not failed, ordered)
        return [s for s in until_failed if last.get(s.name) is wanted]

    def _end(self, run: Run, flow: Flow, events: Sequence[Event], decision: Plan) -> None:
        verdict, step = decision.next, next(iter(decision.steps), None)
        if verdict is Next.DONE:
            self._journal.finish(run.id, Status.DONE, expect=run.seq, at=self._clock(), wipe=flow.secrets)
            self._count_end(run, Status.DONE)
            return
        error = failure_of(events, step if verdict is Next.STUCK else None)
        state = self._state(run, flow, events)
        if verdict is Next.UNDONE and flow.again is not None:
            values = flow.again(state, error)
            if values is not None:
                event = Event(step="", what=What.AGAIN, at=self._clock(), output=plain(values))
                self._write(run, flow, [event])
                return
        hook = flow.undone if verdict is Next.UNDONE else flow.stuck
        if hook is not None:
            hook(self._env(run), state, error)
        status = Status.UNDONE if verdict is Next.UNDONE else Status.STUCK
        wipe = flow.secrets if verdict is Next.UNDONE else frozenset[str]()
        self._journal.finish(run.id, status, expect=run.seq, at=self._clock(), error=error, wipe=wipe)
        self._count_end(run, status)
        LOG.warning("run %s of %s on %s ended %s: %s", run.id, flow.name, run.subject, status.value, error.message)

    def _count_end(self, run: Run, status: Status) -> None:
        telemetry.flow_ended(run.flow, status.value, (self._clock() - run.created_at).total_seconds())

    def _write(
        self,
        run: Run,
        flow: Flow,
        events: list[Event],
        *,
        task: str | None = None,
        begun: datetime.datetime | None = None,
    ) -> None:
        self._journal.append(run.id, events, expect=run.seq, task=task)
        run.seq += len(events)
        for event in events:
            if begun is not None:
                telemetry.step_done(flow.name, event.step, event.what.value, (event.at - begun).total_seconds())
            self._tell(run, flow, event)

    def _tell(self, run: Run, flow: Flow, event: Event) -> None:
        """The journal is written whatever becomes of those who watch it."""
        try:
            self._watch(run, flow, event)
        except Exception:
            LOG.exception("watching run %s of %s failed", run.id, run.flow)

    def _event(self, step: Step, what: What, **more: Any) -> Event:
        return Event(step=step.name, what=what, at=self._clock(), public=step.event or "", **more)

    def _state(self, run: Run, flow: Flow, events: Sequence[Event]) -> Any:
        return msgspec.convert(values_of(run, events), flow.state)

    def _host_of(self, run: Run, flow: Flow, events: Sequence[Event], step: Step) -> str:
        assert step.at is not None
        host: str = getattr(self._state(run, flow, events), step.at)
        return host

    def _after(self, seconds: float) -> datetime.datetime:
        return self._clock() + datetime.timedelta(seconds=seconds)

    def _pause_before(self, events: Sequence[Event], step: Step, what: What) -> datetime.datetime | None:
        """When a failed step is tried again: pauses double, with a draw so that many runs do not come at once."""
        _, since = current_attempt(events)
        failures = [e for e in since if e.step == step.name and e.what is what]
        if not failures:
            return None
        longest = min(self._timing.pause * 2 ** min(len(failures) - 1, 30), self._timing.longest_pause)
        draw = random.Random(f"{failures[-1].seq}{step.name}").uniform(0.5, 1.0)
        until = failures[-1].at + datetime.timedelta(seconds=longest * draw)
        return until if until > self._clock() else None

    def _note_failure(self, run: Run, step: Step, error: Exception) -> None:
        LOG.warning("step %s of run %s (%s) on %s failed", step.name, run.id, run.flow, run.subject, exc_info=error)


def plain(output: Mapping[str, Any] | msgspec.Struct) -> dict[str, Any]:
    """Outputs as the data that the journal holds."""
    built: dict[str, Any] = msgspec.to_builtins(output, str_keys=True)
    return built
