"""The plan: from any host to any wish in one pass, in an order that a real host can follow, and then nothing more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilonova.embedded.plane.parts import (
    HOST,
    Address,
    Bridge,
    Dhcp,
    DhcpHosts,
    Namespace,
    Part,
    Route,
    Ruleset,
    Veth,
)
from kilonova.embedded.plane.plan import Change, Ensure, Remove, plan

NAMES = ("n1", "n2")
DIGESTS = st.sampled_from(["one", "two"])


@st.composite
def worlds(draw: st.DrawFn) -> frozenset[Part]:
    """A consistent set of parts: nothing stands on what is not there."""
    bridges = [Bridge(name, draw(st.sampled_from([1450, 1500]))) for name in ("b1", "b2") if draw(st.booleans())]
    parts: set[Part] = set(bridges)
    for name in NAMES:
        if not bridges or not draw(st.booleans()):
            continue
        parts.add(Namespace(name, sound=draw(st.integers(0, 9)) > 0))
        if Namespace(name) not in parts:
            continue
        bridge = draw(st.sampled_from(bridges)).name
        mac = draw(st.sampled_from(["fa:16:3e:00:00:01", "fa:16:3e:00:00:02"]))
        parts.add(Veth(f"v-{name}", bridge, name, "dhcp0", mac, 1450))
        cidrs = draw(st.sets(st.sampled_from(["10.0.0.2/24", "10.0.1.2/24"])))
        parts |= {Address(name, "dhcp0", cidr) for cidr in cidrs}
        if cidrs and draw(st.booleans()):
            parts.add(Route(name, "default", draw(st.sampled_from(["10.0.0.1", "10.0.1.1"])), "dhcp0"))
        if draw(st.booleans()):
            parts.add(Ruleset(name, draw(DIGESTS)))
        if draw(st.booleans()):
            parts |= {DhcpHosts(name, name, draw(DIGESTS)), Dhcp(name, name, "dhcp0", draw(DIGESTS))}
    if bridges and draw(st.booleans()):
        parts |= {Address(HOST, bridges[0].name, "172.31.4.1/24"), Ruleset(HOST, draw(DIGESTS))}
    return frozenset(parts)


class Host:
    """What the kernel does: things need their foundations, and vanish with them; processes do not."""

    def __init__(self, parts: frozenset[Part]) -> None:
        self.there = {part.key: part for part in parts}

    def obey(self, change: Change) -> None:
        part = change.part
        if isinstance(change, Remove):
            assert self.there.pop(part.key, None) == part, f"{part} is not there"
            self._sweep()
        else:
            assert all(key in self.there for key in part.inside), f"{part} has nothing to stand on"
            old = self.there.get(part.key)
            assert old is None or part.in_place, f"{old} cannot be changed in place"
            self.there[part.key] = part

    def _sweep(self) -> None:
        while True:
            loose = [part for part in self.there.values() if any(key not in self.there for key in part.inside)]
            assert not [part for part in loose if isinstance(part, Dhcp)], "a server lost its network while running"
            if not loose:
                return
            for part in loose:
                del self.there[part.key]


@given(present=worlds(), wanted=worlds())
def test_any_host_becomes_what_is_wanted(present: frozenset[Part], wanted: frozenset[Part]) -> None:
    wanted = frozenset(part for part in wanted if not isinstance(part, Namespace) or part.sound)
    host = Host(present)
    for change in plan(wanted, present):
        host.obey(change)
    assert frozenset(host.there.values()) == wanted
    assert plan(wanted, host.there.values()) == []


@given(present=worlds())
def test_what_is_right_is_left_alone(present: frozenset[Part]) -> None:
    assert plan(present, present) == []


@given(present=worlds(), wanted=worlds(), cut=st.integers(0, 12))
def test_a_kill_in_the_middle_is_mended_by_the_next_plan(
    present: frozenset[Part], wanted: frozenset[Part], cut: int
) -> None:
    wanted = frozenset(part for part in wanted if not isinstance(part, Namespace) or part.sound)
    host = Host(present)
    for change in plan(wanted, present)[:cut]:
        host.obey(change)
    for change in plan(wanted, host.there.values()):
        host.obey(change)
    assert frozenset(host.there.values()) == wanted


def test_a_changed_filter_touches_nothing_else() -> None:
    namespace = Namespace("n1")
    assert plan([namespace, Ruleset("n1", "new")], [namespace, Ruleset("n1", "old")]) == [Ensure(Ruleset("n1", "new"))]


def test_a_bridge_changes_its_mtu_in_place() -> None:
    assert plan([Bridge("b", 1450)], [Bridge("b", 1500)]) == [Ensure(Bridge("b", 1450))]
