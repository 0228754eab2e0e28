"""Every flow, swept: failures, crashes, repeats and lost messages at every step, in a world that keeps books."""

from __future__ import annotations

import pytest

from kilonova.base.flow import Status
from kilonova.flows import delete
from kilonova.flows.registry import FLOWS
from tests.flows.cases import CASES, SECOND
from tests.flows.stage import Case, Stage
from tests.flows.sweep import Play, plays
from tests.flows.world import PORT, SERVER


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage's clock stands still while a step waits."""
    monkeypatch.setattr(delete, "LETTING_GO", 0.0)


def test_every_flow_has_a_case() -> None:
    assert CASES.keys() == FLOWS.keys()


@pytest.mark.parametrize("play", [pytest.param(p, id=f"{name}: {p}") for name in CASES for p in plays(CASES[name])])
def test_sweep(play: Play) -> None:
    play()


def _played(name: str) -> tuple[Case, Stage]:
    stage = Stage(CASES[name])
    assert stage.play().status is Status.DONE, stage.story()
    return CASES[name], stage


def test_a_build_gives_what_was_asked_for() -> None:
    _, stage = _played("build")
    after = stage.world.picture()
    assert after["claims"] == {SERVER: {"h1": {"VCPU": 1, "MEMORY_MB": 512}}}
    assert after["ports"] == [("0", SERVER, "h1", "bridge", False), ("None", SERVER, "h1", "bridge", True)]
    assert [(status, held) for _, status, held in after["volumes"]] == [("in-use", [(SERVER, "attached", "h1")])] * 2
    assert after["guests"] == {"h1": {SERVER: 1}, "h2": {}, "h3": {}}
    found = after["servers"]["cell"][SERVER]
    assert found["state"] == ("active", None, 1, False)
    assert found["nics"] == [False, True]
    assert [attached for _, attached in found["devices"]] == [True, True]


def test_a_build_keeps_no_secret() -> None:
    _, stage = _played("build")
    run, events = stage.journal.read("0b5c7f0e-5b0c-4a3e-9d53-0d4e4f3c9a01")
    assert "hunter2" not in repr((run, events))


def test_a_schedule_hands_all_over() -> None:
    _, stage = _played("schedule")
    after = stage.world.picture()
    assert after["requests"] == {}
    assert after["mappings"] == {SERVER: ("cell", False), SECOND: ("cell", False)}
    assert after["runs"]["cell"] == [
        ("build", server, "running", host) for server in (SERVER, SECOND) for host in after["claims"][server]
    ]
    assert after["claims"].keys() == {SERVER, SECOND}
    assert after["specs"] == [SERVER, SECOND]


@pytest.mark.parametrize("name", ["delete", "delete_unscheduled"])
def test_a_delete_leaves_nothing(name: str) -> None:
    _, stage = _played(name)
    after = stage.world.picture()
    assert after["claims"] == {}
    assert after["ports"] == [("None", "", "", "unbound", True)]
    assert after["volumes"] == [("data", "available", [])]
    assert not any(after["guests"].values())
    assert after["requests"] == {}
    assert after["specs"] == []
    assert all(deleted for _, deleted in after["mappings"].values())
    assert all(s["state"] == ("deleted", None, s["state"][2], True) for s in after["servers"]["cell"].values())
    assert PORT in stage.world.neighbours.neutron.records
