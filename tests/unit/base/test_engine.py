"""The engine, case by case."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kilonova.base.engine import Engine
from kilonova.base.errors import Fault, NeighbourUnavailable
from kilonova.base.flow import Event, Flow, Next, Report, Run, Status, Step, What, plan
from tests.flows.stage import BEGIN, RUN, Case, Faults, Stage
from tests.flows.sweep import Failing, Lost, Together
from tests.unit.base.test_sweep import MOVE, World


def stage(flow: Flow = MOVE, faults: Faults | None = None) -> Stage:
    return Stage(Case(flow=flow, state={"server": "s"}, make_world=World, parked={"confirm": {}}), faults)


def changed(name: str, **changes: object) -> Flow:
    steps = tuple(msgspec.structs.replace(s, **changes) if s.name == name else s for s in MOVE.steps)
    return msgspec.structs.replace(MOVE, steps=steps)


def whats(play: Stage, step: str) -> list[str]:
    return [event.what.value for event in play.events() if event.step == step]


def test_steps_at_one_host_travel_as_one_message() -> None:
    play = stage()
    assert play.engine.advance(RUN) is Next.WAIT
    (work,) = play.host("h2").inbox
    assert [(s.name, s.method) for s in work.steps] == [("plug", "plug"), ("spawn", "spawn")]
    assert (work.state["server"], work.state["room"]) == ("s", 7)


def test_a_lost_report_of_a_step_before_the_one_that_fails_is_no_leak() -> None:
    """The host plugged, its report was lost, and it failed to spawn: both are undone."""
    flow = msgspec.structs.replace(MOVE, again=None)
    play = stage(flow, Together(Lost("report", 1, 0), Failing("spawn", when="after")))
    assert play.play().status is Status.UNDONE
    assert whats(play, "plug") == ["dispatched", "undo_dispatched", "undone"]
    assert play.world.picture() == play.before


def test_the_second_attempt_takes_the_alternate() -> None:
    play = stage(faults=Failing("spawn", when="after", times=1))
    assert play.play().status is Status.DONE
    assert play.world.picture() == ({"s": "h3"}, {"s@h3"}, {"h1": set(), "h2": set(), "h3": {"s"}}, "h3")


class DeadFrom(Faults):
    """A host is dead from some write on."""

    def __init__(self, host: str, write: int) -> None:
        self.host, self.number, self.dead = host, write, False

    def write(self, number: int, when: str) -> None:
        self.dead = self.dead or number >= self.number

    def is_up(self, host: str) -> bool:
        return host != self.host or not self.dead


def test_a_host_that_dies_is_noticed_and_an_alternate_taken() -> None:
    play = stage(faults=DeadFrom("h2", 5))
    assert play.play().status is Status.DONE
    failed = [e for e in play.events() if e.what is What.FAILED]
    assert [(e.step, e.error.kind if e.error else "") for e in failed] == [("plug", "HostIsDown")]
    notes = {e.step: e.note for e in play.events() if e.what is What.UNDONE and e.host == "h2"}
    assert notes.keys() == {"plug", "spawn"}
    assert all("clears this when it returns" in note for note in notes.values())


def test_a_dead_host_may_be_passed_over() -> None:
    leaving = Step(name="unplug", at="dest", do=MOVE.step("unplug").do, skip_when_down=True)
    flow = msgspec.structs.replace(MOVE, steps=(*MOVE.steps[:-2], leaving, MOVE.steps[-1]))
    clean = stage(flow)
    clean.play()
    writes = clean.writes
    play = stage(flow, DeadFrom("h2", writes - 5))
    assert play.play().status is Status.DONE
    assert "h2 is down" in next(e.note for e in play.events() if e.step == "unplug")


class Slow(Faults):
    """Messages never arrive."""

    def messages(self, number: int) -> int:
        return 0


def test_a_silent_host_is_sent_its_work_again_and_then_given_up() -> None:
    flow = msgspec.structs.replace(changed("plug", wait=100.0, undo=None, no_undo="x"), again=None)
    flow = msgspec.structs.replace(
        flow,
        steps=tuple(msgspec.structs.replace(s, undo=None, no_undo="x") if s.name == "spawn" else s for s in flow.steps),
    )
    play = stage(flow, Slow())
    run = play.play()
    assert run.status is Status.UNDONE
    assert run.error is not None
    assert (run.error.kind, run.error.message) == ("StepTimeout", "plug took longer than 100 s")
    assert play.sent == 1 + 5


class SecondIsSlow(Faults):
    """The first step of a message takes 80 s, as long as the second."""

    def __init__(self) -> None:
        self.play: Stage

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if name in ("plug", "spawn") and when == "before":
            self.play.now += datetime.timedelta(seconds=80)
            self.play.advance()


def test_the_time_of_a_later_step_begins_when_the_earlier_one_is_reported() -> None:
    steps = tuple(msgspec.structs.replace(s, wait=100.0) if s.at else s for s in MOVE.steps)
    faults = SecondIsSlow()
    faults.play = play = stage(msgspec.structs.replace(MOVE, steps=steps), faults)
    assert play.play().status is Status.DONE
    assert whats(play, "spawn") == ["dispatched", "succeeded"]


def test_a_stuck_run_names_the_step_that_is_stuck_and_keeps_its_secrets() -> None:
    flow = msgspec.structs.replace(changed("leave", tries=2), secrets=frozenset({"server"}))
    twice = Together(Failing("unplug", when="before", times=1), Failing("leave", when="after"))
    play = stage(flow, twice)
    run = play.play()
    assert (run.status, run.state["server"]) == (Status.STUCK, "s")
    assert [e.step for e in play.events() if e.what is What.FAILED] == ["unplug", "leave", "leave"]
    assert run.error == play.events()[-1].error


class Away(Faults):
    """Whoever an undo needs is away for a while, longer than a failing step would be tried."""

    def __init__(self, step: str, times: int) -> None:
        self.name, self.left = step, times

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if undo and (name, when) == (self.name, "before") and self.left:
            self.left -= 1
            raise NeighbourUnavailable(neighbour="neutron", reason="it is away")


@pytest.mark.parametrize("name", ["plug", "claim"])
def test_what_passes_by_itself_leaves_nothing_stuck(name: str) -> None:
    flow = msgspec.structs.replace(MOVE, again=None)
    play = stage(flow, Together(Failing("spawn", when="after"), Away(name, times=3 * flow.step(name).tries)))
    assert play.play().status is Status.UNDONE
    assert whats(play, name).count("undo_failed") == 3 * flow.step(name).tries
    assert play.world.picture() == play.before


class AwayAhead(Faults):
    """Whoever a step needs is away for its first tries."""

    def __init__(self, step: str, times: int) -> None:
        self.name, self.left = step, times

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if not undo and (name, when) == (self.name, "before") and self.left:
            self.left -= 1
            raise NeighbourUnavailable(neighbour="placement", reason="it is away")


@pytest.mark.parametrize("times, end", [(2, Status.DONE), (3, Status.UNDONE)])
def test_a_patient_step_is_tried_again_before_the_pivot(times: int, end: Status) -> None:
    play = stage(msgspec.structs.replace(changed("claim", patience=2), again=None), AwayAhead("claim", times))
    assert play.play().status is end
    assert whats(play, "claim").count("failed") == times


def test_patience_is_for_what_passes_by_itself() -> None:
    flow = msgspec.structs.replace(changed("claim", patience=2), again=None)
    play = stage(flow, Failing("claim", when="before", times=1))
    assert play.play().status is Status.UNDONE


def test_secrets_are_wiped_at_the_end() -> None:
    play = stage(msgspec.structs.replace(MOVE, secrets=frozenset({"server", "room"})))
    run = play.play()
    assert run.status is Status.DONE
    assert "server" not in run.state
    assert all("room" not in event.output for event in play.events())


@pytest.mark.parametrize("output", [{"dest": 5}, {"room": "much"}])
def test_an_output_that_the_state_cannot_hold_is_a_failure(output: dict[str, Any]) -> None:
    flow = msgspec.structs.replace(changed("look", do=lambda env, state: output), again=None)
    play = stage(flow)
    run = play.play()
    assert run.status is Status.UNDONE
    assert run.error is not None
    assert run.error.kind == "ValidationError"
    assert play.world.picture() == play.before


def test_a_report_that_the_state_cannot_hold_is_a_failure() -> None:
    play = stage()
    play.engine.advance(RUN)
    assert play.engine.report(Report(run=RUN, attempt=0, step="plug", host="h2", output={"dest": [1]}))
    assert whats(play, "plug") == ["dispatched", "failed"]


class Nested(Faults):
    """A step's own doing leads to a report and a drive of the same run, as on a bus inside one process."""

    def __init__(self) -> None:
        self.play: Stage
        self.answers: list[object] = []

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if name == "look":
            self.answers.append(self.play.engine.advance(RUN))


def test_a_driver_is_not_driven_from_inside() -> None:
    faults = Nested()
    faults.play = play = stage(faults=faults)
    assert play.play().status is Status.DONE
    assert set(faults.answers) == {None}
    assert whats(play, "look") == ["started", "succeeded"]


def test_a_watcher_that_fails_stops_nothing() -> None:
    seen: list[str] = []

    def watch(run: Run, flow: Flow, event: Event) -> None:
        seen.append(event.step)
        raise ValueError

    play = stage()
    play.engine = Engine({MOVE.name: MOVE}, play.journal, play, env=play.world.env, clock=lambda: play.now, watch=watch)
    assert play.play().status is Status.DONE
    assert seen == [event.step for event in play.events()]


def test_a_flow_of_a_newer_release_is_left_alone() -> None:
    play = stage()
    engine = Engine({}, play.journal, play, env=play.world.env, clock=lambda: play.now)
    assert engine.advance(RUN) is None
    assert play.events() == []
    assert RUN not in engine.due()
    play.now += datetime.timedelta(minutes=2)
    assert RUN in engine.due()


def test_failures_behind_the_pivot_pause_longer_and_longer() -> None:
    play = stage(changed("leave", tries=6), Failing("leave", when="before", times=5))
    assert play.play().status is Status.DONE
    times = [e.at for e in play.events() if (e.step, e.what) == ("leave", What.STARTED)]
    pauses = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    for number, pause in enumerate(pauses):
        assert 0.5 * 2**number <= pause <= 2**number + 0.01


@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda: (Step(name="a", do=print),), "a names no undo"),
        (lambda: (Step(name="a", do=print, no_undo="none"),) * 2, "two steps"),
    ],
)
def test_a_flow_that_is_declared_badly(make: Callable[[], tuple[Step, ...]], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Flow(name="f", state=msgspec.Struct, steps=make())


def test_the_planner_waits_for_a_parked_step_and_goes_on_when_it_is_reported() -> None:
    log = [Event(step="claim", what=What.SUCCEEDED, at=BEGIN), Event(step="confirm", what=What.STARTED, at=BEGIN)]
    steps = (MOVE.step("claim"), MOVE.step("confirm"), MOVE.step("record"))
    flow = Flow(name="f", state=MOVE.state, steps=steps)
    assert plan(flow, log) == (Next.WAIT, (steps[1],))
    done = Event(step="confirm", what=What.SUCCEEDED, at=BEGIN)
    assert plan(flow, [*log, done]) == (Next.DO, (steps[2],))
    refused = Event(step="confirm", what=What.FAILED, at=BEGIN)
    assert plan(flow, [*log, refused]) == (Next.UNDO, (steps[1],))


def test_a_failed_step_of_the_conductor_names_its_kind() -> None:
    def fail(env: object, state: object) -> None:
        raise Fault("no room")

    play = stage(msgspec.structs.replace(changed("look", do=fail), again=None))
    run = play.play()
    assert run.error is not None
    assert (run.error.kind, run.error.message, run.error.safe) == ("Fault", "no room", True)
