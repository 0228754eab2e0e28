"""``nova-manage flow``: runs that are stuck or wait are listed with their reason, and mended."""

from __future__ import annotations

import datetime
import uuid

import msgspec
import pytest

from kilonova.base.context import Context
from kilonova.base.engine import Engine, Timing, utcnow
from kilonova.base.flow import Flow, Next, Report, Run, Status, Step, What, Work
from kilonova.cmd.manage import flow as verbs
from kilonova.store.journal import DatabaseJournal
from tests.unit.cmd.conftest import Site


class _World(msgspec.Struct):
    """What the steps did; names in ``broken`` fail."""

    broken: set[str] = set()
    done: list[str] = []


class _State(msgspec.Struct):
    host: str = "h1"


def _do(name: str, *, undo: bool = False) -> object:
    def act(world: _World, state: _State) -> None:
        label = f"undo {name}" if undo else name
        if label in world.broken:
            raise RuntimeError(f"{label} is broken")
        world.done.append(label)

    return act


def _step(name: str, **more: object) -> Step:
    return Step(**({"name": name, "do": _do(name), "undo": _do(name, undo=True), "tries": 2} | more))  # type: ignore[arg-type]


TOY = Flow(
    name="toy",
    state=_State,
    steps=(
        _step("first"),
        _step("on_host", at="host", no_undo="nothing", undo=None),
        _step("second"),
        _step("turn", pivot=True),
        _step("last"),
    ),
)


class _Hosts:
    def send(self, host: str, work: Work) -> None:
        """It gets lost."""

    def is_up(self, host: str) -> bool:
        return True


class _Case:
    def __init__(self, site: Site) -> None:
        self.site, self.world = site, _World()
        self.run = str(uuid.uuid4())
        self.journal = DatabaseJournal(site.cells.database(site.cell))
        self.engine = Engine(
            {"toy": TOY}, self.journal, _Hosts(), env=lambda run: self.world, timing=Timing(pause=0.0), owner="t"
        )

    def begin(self, *broken: str) -> Next | None:
        self.world.broken = set(broken)
        begun = utcnow() - datetime.timedelta(minutes=5)
        context = Context(request_id="req-toy")
        self.journal.start(
            Run(id=self.run, flow="toy", subject="server-1", state={}, context=context, created_at=begun)
        )
        self.engine.advance(self.run)
        return self.host_reports()

    def host_reports(self) -> Next | None:
        self.engine.report(Report(run=self.run, attempt=0, step="on_host", host="h1"))
        return self.engine.advance(self.run)

    @property
    def status(self) -> Status:
        return self.journal.read(self.run)[0].status

    def do(self, verb: str) -> tuple[int, str]:
        ran = self.site.manage("flow", verb, self.run)
        return ran.code, ran.out + ran.err

    def listed(self, *arguments: str) -> list[list[str]]:
        return self.site.manage("flow", "list", *arguments).rows()


@pytest.fixture
def case(site: Site, monkeypatch: pytest.MonkeyPatch) -> _Case:
    monkeypatch.setattr(verbs, "FLOWS", {"toy": TOY})
    return _Case(site)


def test_a_stuck_run_is_listed_shown_and_retried(case: _Case) -> None:
    assert case.begin("last") is Next.STUCK
    [row] = case.listed()
    assert (row[0], row[1], row[2], row[4], row[6]) == (case.run, "toy", "server-1", "stuck", "last")
    assert "last failed 2 times of 2" in row[7]
    code, shown = case.do("show")
    assert code == 0
    assert "last is broken" in shown
    assert "req-toy" in shown

    assert case.do("retry")[0] == 0
    assert case.status is Status.RUNNING
    assert case.engine.advance(case.run) is Next.STUCK  # still broken: tried as often again
    assert sum(e.what is What.FAILED for e in case.journal.read(case.run)[1]) == 4
    case.world.broken.clear()
    assert case.do("retry")[0] == 0
    assert case.engine.due() == [case.run]
    assert case.engine.advance(case.run) is Next.DONE
    assert case.world.done == ["first", "second", "turn", "last"]
    assert case.listed("--all") == []


def test_a_stuck_undo_is_retried_backwards(case: _Case) -> None:
    assert case.begin("second", "undo first") is Next.STUCK
    assert "undoing first failed 2 times" in case.listed()[0][7]
    case.world.broken = set()
    assert case.do("retry")[0] == 0
    assert case.engine.advance(case.run) is Next.UNDONE
    assert case.world.done == ["first", "undo second", "undo first"]


def test_a_stuck_step_is_skipped(case: _Case) -> None:
    assert case.begin("last") is Next.STUCK
    assert case.do("skip")[0] == 0
    assert case.engine.advance(case.run) is Next.DONE
    assert "last" not in case.world.done
    assert any(e.note == "skipped by an operator" for e in case.journal.read(case.run)[1])


def test_a_stuck_undo_is_skipped(case: _Case) -> None:
    assert case.begin("second", "undo first") is Next.STUCK
    assert case.do("skip")[0] == 0
    assert case.engine.advance(case.run) is Next.UNDONE


def test_behind_the_pivot_nothing_is_unwound(case: _Case) -> None:
    assert case.begin("last") is Next.STUCK
    code, said = case.do("unwind")
    assert code == 1
    assert "only goes forward" in said
    assert case.status is Status.STUCK


def test_a_run_that_waits_for_a_host_is_unwound(case: _Case) -> None:
    context, begun = Context(), utcnow() - datetime.timedelta(minutes=5)
    case.journal.start(Run(id=case.run, flow="toy", subject="s", state={}, context=context, created_at=begun))
    assert case.engine.advance(case.run) is Next.WAIT
    [row] = case.listed("--server", "s")
    assert "on_host waits for h1 since" in row[7]
    assert case.listed("--server", "other") == []
    assert case.listed("--older-than", "3600") == []
    assert len(case.listed("--older-than", "3600", "--all")) == 1
    assert case.do("unwind")[0] == 0
    assert case.engine.advance(case.run) is Next.UNDONE
    assert case.world.done == ["first", "undo first"]
    assert not case.engine.report(Report(run=case.run, attempt=0, step="on_host", host="h1"))


def test_what_has_ended_or_is_unknown_is_not_mended(case: _Case) -> None:
    assert case.begin() is Next.DONE
    for verb in ("retry", "skip", "unwind"):
        code, said = case.do(verb)
        assert (code, "has ended (done)" in said) == (1, True)
    for verb in ("show", "retry"):
        ran = case.site.manage("flow", verb, "no-such-run")
        assert (ran.code, "could not be found" in ran.err) == (1, True)


def test_a_flow_of_another_release_is_left_alone(case: _Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case.begin("last") is Next.STUCK
    monkeypatch.setattr(verbs, "FLOWS", {})
    assert case.listed()[0][7] == "a flow of another release"
    assert "another release" in case.do("skip")[1]
