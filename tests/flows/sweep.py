"""The sweep of a flow: what must hold of every workflow, whatever its steps are.

    CASE = Case(flow=BUILD, state={...}, make_world=World)

    @pytest.mark.parametrize("play", plays(CASE), ids=str)
    def test_sweep(play): play()

For each step: it fails (before its effect, and after it) and the world is as before, or, behind the pivot, the run goes
on when the failure passes and is STUCK when it does not. For each write to the journal, on the way forward and on the
way back: the driver dies before or after it, and the end is the same. For each step: it is executed twice, its host or
its conductor dies before and after its effect, its message or its report is lost or comes twice, and the end is the
same. A pivot needs an undo as the steps before it: it may fail when its effect is there already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kilonova.base.errors import Fault
from kilonova.base.flow import Run, Status
from tests.flows.stage import Case, Crash, Faults, Stage


class MadeToFail(Fault):
    text = "made to fail"


class Play(NamedTuple):
    """One way to go wrong, with what must come of it."""

    name: str
    act: Callable[[], None]

    def __call__(self) -> None:
        self.act()

    def __str__(self) -> str:
        return self.name


class Failing(Faults):
    """A step fails, so often (None: always)."""

    def __init__(self, step: str, *, when: str, times: int | None = None, undo: bool = False) -> None:
        self.name, self.when, self.left, self.undo = step, when, times, undo

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if (name, undo, when) == (self.name, self.undo, self.when) and self.left != 0:
            self.left = None if self.left is None else self.left - 1
            raise MadeToFail()


class Together(Faults):
    """Several things go wrong in one play."""

    def __init__(self, *faults: Faults) -> None:
        self.faults = faults

    def step(self, name: str, *, undo: bool, when: str) -> None:
        for fault in self.faults:
            fault.step(name, undo=undo, when=when)

    def write(self, number: int, when: str) -> None:
        for fault in self.faults:
            fault.write(number, when)

    def messages(self, number: int) -> int:
        return min((fault.messages(number) for fault in self.faults), key=lambda n: (n == 1, n))

    def reports(self, number: int) -> int:
        return min((fault.reports(number) for fault in self.faults), key=lambda n: (n == 1, n))

    def times(self, name: str, *, undo: bool) -> int:
        return max(fault.times(name, undo=undo) for fault in self.faults)


class CrashAtWrite(Faults):
    def __init__(self, number: int, when: str) -> None:
        self.number, self.when = number, when

    def write(self, number: int, when: str) -> None:
        if (number, when) == (self.number, self.when):
            raise Crash()


class CrashInStep(Faults):
    """Once."""

    def __init__(self, step: str, *, when: str, undo: bool = False) -> None:
        self.at, self.done = (step, undo, when), False

    def step(self, name: str, *, undo: bool, when: str) -> None:
        if (name, undo, when) == self.at and not self.done:
            self.done = True
            raise Crash()


class Twice(Faults):
    def times(self, name: str, *, undo: bool) -> int:
        return 2


class Lost(Faults):
    """The ``number``-th message or report arrives ``times`` times: 0 or 2."""

    def __init__(self, what: str, number: int, times: int) -> None:
        self.what, self.number, self.count = what, number, times

    def messages(self, number: int) -> int:
        return self.count if (self.what, number) == ("message", self.number) else 1

    def reports(self, number: int) -> int:
        return self.count if (self.what, number) == ("report", self.number) else 1


def expect_done(case: Case, faults: Faults) -> None:
    """The run ends as if nothing had happened."""
    clean = case.clean
    stage = Stage(case, faults)
    run = stage.play()
    assert run.status is Status.DONE, stage.story()
    assert case.same(clean, stage.world.picture()), stage.story()


def expect_undone(case: Case, faults: Faults) -> None:
    """The world is as before, or as the case says of an unwound run."""
    stage = Stage(case, faults)
    run = stage.play()
    assert run.status is Status.UNDONE, stage.story()
    assert (case.undone or case.same)(stage.before, stage.world.picture()), stage.story()
    assert run.error is not None
    assert run.error.message, "the run says why"


def expect_stuck(case: Case, faults: Faults) -> None:
    """The run asks a person, and says why."""
    stage = Stage(case, faults)
    run = stage.play(limit=5000)
    assert run.status is Status.STUCK, stage.story()
    assert run.error is not None


def counted(case: Case, faults: Faults) -> tuple[Run, Stage]:
    """A play and how many writes, messages and reports it had."""
    stage = Stage(case, faults)
    return stage.play(), stage


def plays(case: Case, *, stuck_tries: int = 50) -> list[Play]:
    """All of them. Steps that are tried more than ``stuck_tries`` times are not driven until they are stuck."""
    return [*_failures(case, stuck_tries), *_crashes(case), *_repeats(case)]


def _play(name: str, expect: Callable[[Case, Faults], None], case: Case, make: Callable[[], Faults]) -> Play:
    return Play(name, lambda: expect(case, make()))


def _failures(case: Case, stuck_tries: int) -> Iterator[Play]:
    before_pivot = not case.flow.forward_only
    for step in case.flow.steps:
        if step.parked:
            continue
        for when in ("before", "after"):
            make = functools.partial(Failing, step.name, when=when)
            if before_pivot:
                yield _play(f"{step.name} fails {when} its effect", expect_undone, case, make)
            else:
                once = functools.partial(Failing, step.name, when=when, times=1)
                yield _play(f"{step.name} fails once {when} its effect", expect_done, case, once)
        if not before_pivot and step.tries <= stuck_tries:
            always = functools.partial(Failing, step.name, when="after")
            yield _play(f"{step.name} fails for ever", expect_stuck, case, always)
        if step.pivot:
            before_pivot = False


def last_step_back(case: Case) -> str | None:
    """The step whose failure unwinds the most; None where there is no way back."""
    found = None
    for step in case.flow.steps if not case.flow.forward_only else ():
        if not step.parked:
            found = step.name
        if step.pivot:
            break
    return found


def ways(case: Case) -> Iterator[tuple[str, Callable[[Case, Faults], None], Callable[[], Faults]]]:
    """The way forward, and the longest way back."""
    yield "forward", expect_done, Faults
    last = last_step_back(case)
    if last is not None:
        yield "back", expect_undone, functools.partial(Failing, last, when="after")


def _crashes(case: Case) -> Iterator[Play]:
    for way, expect, base in ways(case):
        _, stage = counted(case, base())
        for number in range(1, stage.writes + 1):
            for when in ("before", "after"):
                crash = functools.partial(CrashAtWrite, number, when)
                yield _play(f"{way}: crash {when} write {number}", expect, case, _both(base, crash))


def _repeats(case: Case) -> Iterator[Play]:
    for way, expect, base in ways(case):
        yield _play(f"{way}: every step twice", expect, case, _both(base, Twice))
        for step in case.flow.steps:
            for undo in {False, way == "back"}:
                for when in ("before", "after"):
                    crash = functools.partial(CrashInStep, step.name, when=when, undo=undo)
                    name = f"{way}: crash {when} the effect of {'the undo of ' if undo else ''}{step.name}"
                    yield _play(name, expect, case, _both(base, crash))
        _, stage = counted(case, base())
        for what, count in (("message", stage.sent), ("report", stage.reported)):
            for number in range(1, count + 1):
                for times, fate in ((0, "lost"), (2, "doubled")):
                    fault = functools.partial(Lost, what, number, times)
                    yield _play(f"{way}: {what} {number} is {fate}", expect, case, _both(base, fault))


def _both(one: Callable[[], Faults], other: Callable[[], Faults]) -> Callable[[], Faults]:
    return lambda: Together(one(), other())
