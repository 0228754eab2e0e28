"""The sweep itself, on a flow with everything in it; and that it finds what it is made to find."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kilonova.base.errors import ErrorRecord
from kilonova.base.flow import Flow, Run, Step
from tests.flows.stage import Case, call_by_names
from tests.flows.sweep import Play, plays


class MoveState(msgspec.Struct, kw_only=True):
    server: str
    dest: str = ""
    room: int = 0
    guest: str = ""
    tried: list[str] = []


class World:
    """Claims, ports and guests, by name."""

    def __init__(self) -> None:
        self.claims: dict[str, str] = {}
        self.ports: set[str] = set()
        self.guests: dict[str, set[str]] = {"h1": {"s"}, "h2": set(), "h3": set()}
        self.record = "h1"

    def env(self, run: Run) -> World:
        return self

    def picture(self) -> object:
        return (dict(self.claims), set(self.ports), {h: set(g) for h, g in self.guests.items()}, self.record)

    def perform(self, host: str, method: str, values: dict[str, Any]) -> Mapping[str, Any] | msgspec.Struct | None:
        return call_by_names(Agent(self, host), method, values)  # type: ignore[no-any-return]


class Agent:
    def __init__(self, world: World, host: str) -> None:
        self.world, self.host = world, host

    def plug(self, *, server: str) -> dict[str, object]:
        self.world.ports.add(f"{server}@{self.host}")
        return {}

    def unplug(self, *, server: str) -> dict[str, object]:
        self.world.ports.discard(f"{server}@{self.host}")
        return {}

    def spawn(self, *, server: str) -> dict[str, object]:
        self.world.guests[self.host].add(server)
        return {"guest": f"{server}@{self.host}"}

    def destroy(self, *, server: str) -> dict[str, object]:
        self.world.guests[self.host].discard(server)
        return {}


def claim(env: World, state: MoveState) -> dict[str, object]:
    dest = "h2" if not state.tried else "h3"
    env.claims[state.server] = dest
    return {"dest": dest, "room": 7}


def release(env: World, state: MoveState) -> None:
    env.claims.pop(state.server, None)


def record(env: World, state: MoveState) -> None:
    assert state.guest.startswith(state.server)
    env.record = state.dest


def unrecord(env: World, state: MoveState) -> None:
    env.record = "h1"


def leave(env: World, state: MoveState) -> None:
    env.guests["h1"].discard(state.server)


def another(state: MoveState, error: ErrorRecord) -> Mapping[str, object] | None:
    return {"tried": [state.dest], "dest": ""} if not state.tried else None


MOVE = Flow(
    name="move",
    state=MoveState,
    again=another,
    steps=(
        Step(name="claim", do=claim, undo=release),
        Step(name="look", do=lambda env, state: None, no_undo="changes nothing"),
        Step(name="plug", at="dest", do=Agent.plug, undo=Agent.unplug),
        Step(name="spawn", at="dest", do=Agent.spawn, undo=Agent.destroy),
        Step(name="confirm", parked=True, no_undo="nothing was done"),
        Step(name="record", do=record, undo=unrecord, pivot=True),
        Step(name="unplug", at="dest", do=Agent.plug),
        Step(name="leave", do=leave),
    ),
)
CASE = Case(flow=MOVE, state={"server": "s"}, make_world=World, parked={"confirm": {}})


@pytest.mark.parametrize("play", plays(CASE), ids=str)
def test_a_sound_flow_passes(play: Play) -> None:
    play()


def _without(name: str, **changes: object) -> Case:
    steps = tuple(msgspec.structs.replace(s, **changes) if s.name == name else s for s in MOVE.steps)
    return Case(
        flow=msgspec.structs.replace(MOVE, steps=steps), state={"server": "s"}, make_world=World, parked={"confirm": {}}
    )


def forgetful(env: World, state: MoveState) -> None:
    """Not an undo."""


def counting(env: World, state: MoveState) -> dict[str, object]:
    env.claims[f"{state.server}{len(env.claims)}"] = "h2"
    return {"dest": "h2"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(_without("claim", undo=forgetful), id="an undo that does nothing"),
        pytest.param(_without("claim", do=counting), id="a step that is not repeatable"),
        pytest.param(_without("spawn", undo=None, no_undo="forgotten"), id="a host's step without undo"),
    ],
)
def test_an_unsound_flow_is_found_out(case: Case) -> None:
    def fails(play: Play) -> bool:
        try:
            play()
        except AssertionError:
            return True
        return False

    assert any(map(fails, plays(case)))
