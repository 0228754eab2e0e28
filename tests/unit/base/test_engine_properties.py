"""Whatever goes wrong, a run ends, it ends well, and the world agrees with it.

Hypothesis makes up a flow and a tape: each time something might go wrong the next entry says whether it does. When the
tape is over, all goes well. What is tried: failing steps and undos, crashes in steps and around journal writes, a
second engine that takes over when the lease is out, lost and doubled messages, lost, doubled and late reports, hosts
that are slow or die and come back, steps executed twice, and a cancellation at any write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kilonova.base.errors import ErrorRecord, Fault
from kilonova.base.flow import Event, Flow, Report, Run, Status, Step, What, current_attempt, plan
from tests.flows.stage import RUN, Case, Crash, Faults, Stage

HOSTS = ("a", "b")
PLACES = ("conductor", *HOSTS, "parked")
MOST_AGAIN = 1
NEXT = {
    What.STARTED: {What.STARTED, What.SUCCEEDED, What.FAILED, What.UNDO_STARTED, What.UNDONE},
    What.DISPATCHED: {What.SUCCEEDED, What.FAILED, What.UNDO_DISPATCHED, What.UNDONE, What.DISPATCHED},
    What.SUCCEEDED: {What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDONE},
    What.FAILED: {What.STARTED, What.DISPATCHED, What.UNDO_STARTED, What.UNDO_DISPATCHED, What.SUCCEEDED, What.UNDONE},
    What.UNDO_STARTED: {What.UNDO_STARTED, What.UNDONE, What.UNDO_FAILED},
    What.UNDO_DISPATCHED: {What.UNDONE, What.UNDO_FAILED},
    What.UNDO_FAILED: {What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDONE},
    What.UNDONE: set(),
}
"""What may be journaled of a step behind what. SUCCEEDED behind FAILED: a dead host's step that may be passed over."""
UNDOING = {What.UNDO_STARTED, What.UNDO_DISPATCHED, What.UNDONE, What.UNDO_FAILED}


class State(msgspec.Struct, kw_only=True):
    a: str = "a"
    b: str = "b"
    attempt: int = 0
    outputs: dict[str, int] = {}
    s0: int = -1
    s1: int = -1
    s2: int = -1
    s3: int = -1
    s4: int = -1
    s5: int = -1


class Made(msgspec.Struct):
    """A made-up step: where it runs, and whether it has an effect (and so an undo)."""

    place: str
    effect: bool
    skip_when_down: bool = False


class World:
    """Effects by step; each is there or not. ``wrong``: what a step saw that it must not see."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.executed: list[str] = []
        self.wrong: list[str] = []
        self.died: set[str | None] = set()
        self.flow: Flow

    def env(self, run: Run) -> World:
        return self

    def picture(self) -> object:
        return frozenset(self.there)

    def perform(self, host: str, method: str, values: dict[str, Any]) -> dict[str, Any]:
        verb, _, name = method.partition("_")
        return self.act(name, verb, msgspec.convert(values, State))

    def act(self, name: str, verb: str, state: State) -> dict[str, Any]:
        self.executed.append(name)
        names = [step.name for step in self.flow.steps]
        if verb == "undo":
            for later in self.flow.steps[names.index(name) + 1 :]:
                if later.name in self.there and later.undo is not None and later.at not in self.died:
                    self.wrong.append(f"{name} is undone before {later.name}")
            self.there.discard(name)
            return {}
        for earlier in self.flow.steps[: names.index(name)]:
            if not earlier.parked and not earlier.skip_when_down and getattr(state, earlier.name) != state.attempt:
                self.wrong.append(f"{name} lacks the output of {earlier.name}")
        if self.flow.step(name).undo is not None or self._is_behind_pivot(name):
            self.there.add(name)
        return {name: state.attempt}

    def _is_behind_pivot(self, name: str) -> bool:
        pivots = [i for i, step in enumerate(self.flow.steps) if step.pivot]
        first = -1 if self.flow.forward_only else (pivots[0] if pivots else len(self.flow.steps))
        return [step.name for step in self.flow.steps].index(name) > first


def flow_of(made: Sequence[Made], pivot: int | None, forward_only: bool, again: bool) -> Flow:
    steps = []
    for number, one in enumerate(made):
        name = f"s{number}"
        at = one.place if one.place in HOSTS else None
        parked = one.place == "parked"
        step = Step(
            name=name,
            at=at,
            parked=parked,
            do=None if parked else _function("do", name, at),
            undo=_function("undo", name, at) if one.effect and not parked else None,
            no_undo="" if one.effect and not parked else "has no effect",
            pivot=number == pivot,
            wait=90.0,
            tries=3,
            skip_when_down=one.skip_when_down and at is not None,
        )
        steps.append(step)

    def once_more(state: State, error: ErrorRecord) -> Mapping[str, Any] | None:
        return {"attempt": state.attempt + 1} if again and state.attempt < MOST_AGAIN else None

    return Flow(name="made_up", state=State, steps=tuple(steps), forward_only=forward_only, again=once_more)


def _function(verb: str, name: str, at: str | None) -> Any:
    def function(env: World, state: State) -> dict[str, Any]:
        return env.act(name, verb, state)

    function.__name__ = f"{verb}_{name}"
    return function


class Tape(Faults):
    """Reads what goes wrong from a list of small numbers; 0 is "nothing"."""

    def __init__(self, entries: Sequence[int], *, cancels: bool) -> None:
        self.entries, self.cancels = list(entries), cancels
        self.stage: Drama
        self.down: set[str] = set()

    def next(self, limit: int) -> int:
        entry = self.entries.pop(0) if self.entries else 0
        return entry if entry < limit else 0

    def step(self, name: str, *, undo: bool, when: str) -> None:
        match self.next(3):
            case 1:
                raise Fault("as the tape says")
            case 2:
                raise Crash()

    def write(self, number: int, when: str) -> None:
        match self.next(4):
            case 1:
                raise Crash()
            case 2 if when == "before":
                self.stage.take_over()
            case 3 if self.cancels and when == "before":
                self.stage.cancel()

    def messages(self, number: int) -> int:
        return (1, 0, 2)[self.next(3)]

    def reports(self, number: int) -> int:
        return (1, 0, 2, 1)[self.next(3)]

    def times(self, name: str, *, undo: bool) -> int:
        return 1 + self.next(2)

    def is_up(self, host: str) -> bool:
        return host not in self.down


class Drama(Stage):
    """A play by a tape."""

    def __init__(self, case: Case, tape: Tape) -> None:
        self.tape = tape
        tape.stage = self
        self.late: list[Report] = []
        self.at_cancel: int | None = None
        self.taking_over = False
        super().__init__(case, tape)
        self.world.flow = case.flow  # type: ignore[attr-defined]

    def take_over(self) -> None:
        """The driver was too slow to renew its lease: another one comes between its planning and its write."""
        if self.taking_over:
            return
        self.taking_over = True
        self._let_time_pass()
        mine, self.engine = self.engine, self.new_engine()
        self.advance()
        self.engine, self.taking_over = mine, False

    def cancel(self) -> None:
        if self.journal.cancel(RUN, at=self.now):
            self.at_cancel = len(self.events())

    def report(self, report: Report) -> bool:
        if self.tape.next(2):
            self.late.append(report)
        return super().report(report)

    def between(self) -> None:
        """What happens between two drives."""
        for host in HOSTS:
            if host in self.tape.down and not self.tape.next(2):
                self.come_back(host)
            elif host not in self.tape.down and self.tape.next(2):
                self.tape.down.add(host)
                self.world.died.add(host)  # type: ignore[attr-defined]
        if self.late and self.tape.next(2):
            self._insist(self.late.pop(0))
        if self.tape.next(2):
            self._let_time_pass()

    def come_back(self, name: str) -> None:
        """A host that returns clears what it should not hold, before it says that it is up."""
        self.tape.down.discard(name)
        self.host(name).restart()
        run, log = self.journal.read(RUN)
        last = {event.step: event.what for event in current_attempt(log)[1]}
        for step in self.case.flow.steps:
            ended = run.status is Status.UNDONE or last.get(step.name) in (None, What.UNDONE)
            if step.at == name and ended and run.status is not Status.CANCELLED:
                self.there.discard(step.name)

    @property
    def there(self) -> set[str]:
        there: set[str] = self.world.there  # type: ignore[attr-defined]
        return there


STEPS = st.lists(
    st.builds(Made, st.sampled_from(PLACES), st.booleans(), st.sampled_from([False, False, False, True])),
    min_size=1,
    max_size=6,
)
TAPES = st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 3]), max_size=80)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    made = draw(STEPS)
    pivot = draw(st.none() | st.integers(0, len(made) - 1))
    forward_only = draw(st.sampled_from([False, False, False, True]))
    return flow_of(made, pivot, forward_only, draw(st.booleans()))


def play(flow: Flow, tape: Tape) -> tuple[Drama, Run]:
    parked: dict[str, dict[str, Any]] = {step.name: {} for step in flow.steps if step.parked}
    drama = Drama(Case(flow=flow, state={}, make_world=World, parked=parked), tape)
    run = drama.play(limit=600, each=drama.between)
    for host in list(tape.down):
        drama.come_back(host)
    for report in drama.late:
        assert not drama._insist(report), "who comes after the end is not heard"
    return drama, run


def check(drama: Drama, run: Run) -> None:
    flow, events = drama.case.flow, drama.events()
    _, current = current_attempt(events)
    again = [i for i, event in enumerate(events) if event.what is What.AGAIN]
    for begin, end in zip([0, *(i + 1 for i in again)], [*again, len(events)], strict=True):
        _check_order(events[begin:end], drama.story())
    story = drama.story()
    last = {event.step: event for event in current}
    assert drama.world.wrong == [], story  # type: ignore[attr-defined]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    pivots = [i for i, e in enumerate(current) if e.what is What.SUCCEEDED and flow.step(e.step).pivot]
    behind = current if flow.forward_only else current[pivots[0] :] if pivots else []
    assert not UNDOING & {event.what for event in behind}, f"undone past the pivot: {story}"
    executed = set(drama.world.executed)  # type: ignore[attr-defined]
    match run.status:
        case Status.DONE:
            assert all(last[step.name].what is What.SUCCEEDED for step in flow.steps), story
            passed_over = {name for name, event in last.items() if event.note}
            world = drama.world
            effects = {s.name for s in flow.steps if not s.parked and _has_effect(world, s)}
            assert effects - passed_over <= drama.there <= effects, story
            assert {s.name for s in flow.steps if not s.parked} - passed_over <= executed
        case Status.UNDONE:
            assert drama.there == set(), story
            assert run.error is not None
        case Status.STUCK:
            assert run.error is not None
            _check_stuck(flow, last, drama, story)
        case Status.CANCELLED:
            assert len(events) == drama.at_cancel, f"written after the cancellation: {story}"
        case _:
            raise AssertionError(story)


def _check_order(events: Sequence[Event], story: str) -> None:
    last: dict[str, What] = {}
    for event in events:
        before = last.get(event.step)
        assert before is None or event.what in NEXT[before], f"{event.step}: {event.what} behind {before}: {story}"
        last[event.step] = event.what


def _has_effect(world: Any, step: Step) -> bool:
    return step.undo is not None or world._is_behind_pivot(step.name)


def _check_stuck(flow: Flow, last: Mapping[str, Event], drama: Drama, story: str) -> None:
    """What was journaled as done is there, what was journaled as undone is not."""
    for step in flow.steps:
        event = last.get(step.name)
        if event is None or step.parked or event.note or not _has_effect(drama.world, step):
            continue
        if event.what is What.SUCCEEDED:
            assert step.name in drama.there, story
        if event.what is What.UNDONE:
            assert step.name not in drama.there, story


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flows(), TAPES)
@example(flow_of([Made("a", True), Made("a", True)], 1, False, True), [])
def test_every_run_ends_and_the_world_agrees(flow: Flow, entries: list[int]) -> None:
    check(*play(flow, Tape(entries, cancels=False)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flows(), TAPES)
def test_a_cancelled_run_writes_nothing_more(flow: Flow, entries: list[int]) -> None:
    check(*play(flow, Tape(entries, cancels=True)))


@settings(max_examples=50, deadline=None)
@given(flows())
def test_without_faults_every_step_runs_once_in_order(flow: Flow) -> None:
    drama, run = play(flow, Tape([], cancels=False))
    assert run.status is Status.DONE
    assert drama.world.executed == [s.name for s in flow.steps if not s.parked]  # type: ignore[attr-defined]


@settings(max_examples=300, deadline=None)
@given(flows(), st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(What))), max_size=20))
def test_the_planner_answers_for_any_journal(flow: Flow, marks: list[tuple[int, What]]) -> None:
    """Also for one that no run of this release writes: steps that it does not know are passed over."""
    now = drama_time()
    log = [Event(step=f"s{n}", what=what, at=now, seq=i) for i, (n, what) in enumerate(marks, 1)]
    first = plan(flow, log)
    assert first == plan(flow, list(log)), "it depends on the journal alone"
    assert {step.at for step in first.steps} == {first.steps[0].at} if first.steps else True


def drama_time() -> Any:
    from tests.flows.stage import BEGIN

    return BEGIN
