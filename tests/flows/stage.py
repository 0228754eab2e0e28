"""A stage to play one run of a flow on: a clock moved by hand, hosts that answer, and whatever is to go wrong.

Nothing runs in threads, so a play with the same faults is the same play. A ``Crash`` is the end of the process that it
happens in: it is no Exception, nothing after it is executed, and another engine takes the run over when the lease is
out.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from kilonova.base.context import Context
from kilonova.base.engine import Engine, Timing, plain
from kilonova.base.errors import ErrorRecord, RunSuperseded, record_of
from kilonova.base.flow import Event, Flow, Report, Run, Status, Step, What, Work
from kilonova.base.journal import Journal, MemoryJournal

BEGIN = datetime.datetime(2026, 8, 1, 12, 0, tzinfo=datetime.UTC)
TIMING = Timing(lease=30.0, resend=20.0, pause=1.0, longest_pause=60.0)
RUN = "0b5c7f0e-5b0c-4a3e-9d53-0d4e4f3c9a01"


class Crash(BaseException):
    """The process ends here."""


class World(Protocol):
    """What the steps act on. ``env`` is what the conductor's steps get; ``perform`` runs a host's step."""

    def env(self, run: Run) -> Any: ...

    def perform(self, host: str, method: str, values: dict[str, Any]) -> Mapping[str, Any] | msgspec.Struct | None: ...

    def picture(self) -> object:
        """All that counts of the world, as something that compares."""


@typing.runtime_checkable
class Timed(Protocol):
    """A world whose steps look at the clock."""

    def bind(self, now: Callable[[], datetime.datetime]) -> None: ...


def call_by_names(implementation: object, method: str, values: Mapping[str, Any]) -> Any:
    """Call a method with the values that its arguments are named after, converted to their types."""
    function = getattr(implementation, method)
    hints = typing.get_type_hints(function)
    given = {
        name: msgspec.convert(values[name], hints.get(name, Any))
        for name in inspect.signature(function).parameters
        if name in values
    }
    return function(**given)


class Faults:
    """What goes wrong; a play's own subclass says it. Hooks may raise Exceptions (a failure) or Crash."""

    def step(self, name: str, *, undo: bool, when: str) -> None:
        """Called "before" and "after" the effect of each step, on the conductor and on hosts."""

    def write(self, number: int, when: str) -> None:
        """Called "before" and "after" each write to the journal; counts from 1."""

    def messages(self, number: int) -> int:
        """How often the ``number``-th message to a host arrives."""
        return 1

    def reports(self, number: int) -> int:
        """How often the ``number``-th report of a host arrives. 0: it is lost, the host believes it was taken."""
        return 1

    def times(self, name: str, *, undo: bool) -> int:
        """How often a step is executed before its result is taken."""
        return 1

    def is_up(self, host: str) -> bool:
        return True


@dataclasses.dataclass
class Case:
    """A flow to be swept. ``parked``: outputs with which parked steps are reported when the run waits for them.

    ``state``: the run's parameters, or a function that makes them of the world. ``undone``: whether the second picture
    is what an unwound run is to leave of the first; None: it must be the same.
    """

    flow: Flow
    state: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
    make_world: Callable[[], World]
    subject: str = "5f5b7c1e-7d0e-4a58-8a67-3a1f6c3b9d02"
    make_journal: Callable[[World], Journal] = lambda world: MemoryJournal()
    parked: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    same: Callable[[object, object], bool] = lambda one, other: one == other
    undone: Callable[[Any, Any], bool] | None = None

    @functools.cached_property
    def clean(self) -> object:
        """The world after a play in which nothing goes wrong."""
        stage = Stage(self)
        stage.play()
        return stage.world.picture()


class _WatchedJournal:
    """Passes on to a journal; its owner dies with the write at which it crashes."""

    def __init__(self, journal: Journal, stage: Stage) -> None:
        self._journal, self._stage = journal, stage
        self._dead = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._journal, name)
        is_write = name in ("append", "append_report", "finish")

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dead:
                raise Crash(f"{name} by a dead process")
            try:
                if is_write:
                    self._stage.writes += 1
                number = self._stage.writes
                if is_write:
                    self._stage.faults.write(number, "before")
                result = function(*args, **kwargs)
                if is_write:
                    self._stage.faults.write(number, "after")
            except Crash:
                self._dead = True
                raise
            return result

        return call


class Host:
    """One host: takes work in order, the newest attempt and direction wins, reports until somebody listens."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name, self.stage = name, stage
        self.inbox: collections.deque[Work] = collections.deque()
        self._newest: tuple[int, bool] = (-1, False)

    def restart(self) -> None:
        """Forget everything; a message that was on its way is not for the one that comes."""
        self.inbox.clear()
        self._newest = (-1, False)

    def work(self) -> None:
        """Do what has arrived. A crash is the host's: it starts anew."""
        while self.inbox:
            work = self.inbox.popleft()
            if (work.attempt, work.undo) < self._newest:
                continue
            self._newest = (work.attempt, work.undo)
            try:
                self._perform(work)
            except Crash:
                self.restart()

    def _perform(self, work: Work) -> None:
        values = dict(work.state)
        for step in work.steps:
            output: dict[str, Any] = {}
            error: ErrorRecord | None = None
            try:
                output = self.stage.execute(step.name, functools.partial(self._do, step.method, values), undo=work.undo)
                values.update(output)
            except Exception as failure:
                error = record_of(failure)
            report = Report(
                run=work.run,
                attempt=work.attempt,
                step=step.name,
                host=self.name,
                undo=work.undo,
                output=output if not work.undo else {},
                error=error,
            )
            if not self.stage.report(report) or error is not None:
                return

    def _do(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        return plain(self.stage.world.perform(self.name, method, values) or {})


class Stage:
    """One play: ``play()`` drives the run to its end and answers it."""

    def __init__(self, case: Case, faults: Faults | None = None) -> None:
        self.case, self.faults = case, faults or Faults()
        self.world = case.make_world()
        self.before = self.world.picture()
        self.now = BEGIN
        if isinstance(self.world, Timed):
            self.world.bind(lambda: self.now)
        state = case.state(self.world) if callable(case.state) else case.state
        self.writes = self.sent = self.reported = 0
        self.hosts: dict[str, Host] = {}
        self.journal = case.make_journal(self.world)
        self.flow = msgspec.structs.replace(case.flow, steps=tuple(map(self._watched, case.flow.steps)))
        self.engines = 0
        self.engine = self.new_engine()
        run = Run(
            id=RUN,
            flow=case.flow.name,
            subject=case.subject,
            state=plain(dict(state)),
            context=Context(request_id="req-of-the-play"),
            created_at=self.now,
        )
        self.journal.start(run)

    def new_engine(self) -> Engine:
        """A process that drives; one that crashed is followed by another."""
        self.engines += 1
        journal: Any = _WatchedJournal(self.journal, self)
        return Engine(
            {self.flow.name: self.flow},
            journal,
            self,
            env=self.world.env,
            owner=f"engine-{self.engines}",
            timing=TIMING,
            clock=lambda: self.now,
        )

    def send(self, host: str, work: Work) -> None:
        """The engine's way to hosts."""
        self.sent += 1
        copied = msgspec.json.decode(msgspec.json.encode(work), type=Work)
        self.host(host).inbox.extend([copied] * self.faults.messages(self.sent))

    def host(self, name: str) -> Host:
        return self.hosts.setdefault(name, Host(name, self))

    def is_up(self, host: str) -> bool:
        return self.faults.is_up(host)

    def _watched(self, step: Step) -> Step:
        if step.at is not None:
            return step

        def watch(function: Callable[..., Any], undo: bool) -> Callable[..., Any]:
            return lambda env, state: self.execute(step.name, lambda: function(env, state), undo=undo)

        return msgspec.structs.replace(
            step,
            do=watch(step.do, False) if step.do else None,
            undo=watch(step.undo, True) if step.undo else None,
        )

    def execute(self, name: str, effect: Callable[[], Any], *, undo: bool) -> Any:
        """One step with whatever goes wrong around it."""
        result = None
        self.faults.step(name, undo=undo, when="before")
        for _ in range(self.faults.times(name, undo=undo)):
            result = effect()
        self.faults.step(name, undo=undo, when="after")
        return result

    def report(self, report: Report) -> bool:
        """Bring a report to the engine, as often as it arrives; a conductor that dies of it is asked again."""
        self.reported += 1
        times = self.faults.reports(self.reported)
        wanted = times == 0
        for number in range(times):
            taken = self._insist(report)
            # A host whose report was taken, but that heard no answer, asks again, and hears that nobody waits.
            wanted = taken if number == 0 else wanted
        return wanted

    def _insist(self, report: Report) -> bool:
        while True:
            try:
                return self.engine.report(report)
            except Crash:
                self.engine = self.new_engine()

    def advance(self) -> None:
        """Drive a little: until the run waits or its driver dies."""
        try:
            self.engine.advance(RUN)
        except Crash:
            self.engine = self.new_engine()

    def play(self, *, limit: int = 400, each: Callable[[], None] = lambda: None) -> Run:
        """Drive, let hosts work, let time pass, until the run has ended."""
        for _ in range(limit):
            run, _ = self.journal.read(RUN)
            if run.status is not Status.RUNNING:
                return run
            seq = run.seq
            self.advance()
            each()
            for host in list(self.hosts.values()):
                if self.is_up(host.name):
                    host.work()
            self._unpark()
            if self.journal.read(RUN)[0].seq == seq:
                self._let_time_pass()
        raise AssertionError(f"the run does not end: {self.story()}")

    def _let_time_pass(self) -> None:
        run, _ = self.journal.read(RUN)
        later = self.now + datetime.timedelta(seconds=TIMING.lease + 1)
        if run.due_at is not None and run.due_at > self.now and not self.journal.leased(RUN, now=self.now):
            later = min(later, run.due_at)
        self.now = later

    def _unpark(self) -> None:
        _, events = self.journal.read(RUN)
        if not events or events[-1].what is not What.STARTED:
            return
        step = self.flow.step(events[-1].step)
        if step.parked and step.name in self.case.parked:
            attempt = sum(event.what is What.AGAIN for event in events)
            output = plain(dict(self.case.parked[step.name]))
            self.report(Report(run=RUN, attempt=attempt, step=step.name, host="", output=output))

    def events(self) -> list[Event]:
        return self.journal.read(RUN)[1]

    def story(self) -> str:
        """The journal, for people who look for the reason of a failure."""
        run, events = self.journal.read(RUN)
        return f"{run.flow} {run.status.value}: " + ", ".join(f"{e.step} {e.what.value}" for e in events)


def kinds(events: Sequence[Event]) -> set[What]:
    return {event.what for event in events}


__all__ = ["RUN", "Case", "Crash", "Faults", "Host", "RunSuperseded", "Stage", "World", "call_by_names", "kinds"]
