"""Host states in memory: changes, silence, and promises on top of reports."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kilonova.base.errors import NoSuchPeer
from kilonova.contracts.conductor import HostStates
from kilonova.core.host import HostState
from kilonova.scheduler.hosts import PROMISE, HostStore
from tests.unit.scheduler.builders import Conductor, host

AMOUNTS = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 3}


class _Case:
    def __init__(self) -> None:
        self.now = 100.0
        self.conductor = Conductor([host("a"), host("b")])
        self.store = HostStore(self.conductor, clock=lambda: self.now)  # type: ignore[arg-type]
        self.store.refresh()

    def state(self, name: str = "a") -> HostState:
        return self.store.find([host(name).node_uuid])[0]

    def report(self, name: str = "a", **fields: Any) -> None:
        self.conductor.report(host(name, **fields))
        self.store.invalidate()
        self.now += 1
        self.store.refresh()


@pytest.fixture
def case() -> _Case:
    return _Case()


def test_the_conductor_is_asked_once_a_second_and_sooner_when_something_changed(case: _Case) -> None:
    for _ in range(50):
        case.now += 0.01
        case.store.refresh()
    assert len(case.conductor.asked) == 1
    case.store.invalidate()
    case.store.refresh()
    assert len(case.conductor.asked) == 2
    case.store.invalidate()
    case.store.refresh()  # many changes in a short time are fetched together
    assert len(case.conductor.asked) == 2
    case.now += 1.1
    case.store.refresh()
    assert case.conductor.asked == ["", "1", "2"]


def test_a_promise_counts_until_a_later_report_includes_it(case: _Case) -> None:
    node = host("a").node_uuid
    case.store.promise(node, "s1", amounts=AMOUNTS)
    case.report(generation=1)  # told again, without anything new
    assert (case.state().free_ram_mb, case.state().servers) == (64512, ["s1"])
    case.report(generation=2, servers=["s1"])  # it is on the host, whose report may be older than the guest
    found = case.state()
    assert (found.free_ram_mb, found.vcpus_used, found.num_instances, found.num_io_ops) == (64512, 2, 0, 1)
    case.report(generation=3, servers=["s1"], free_ram_mb=64512, vcpus_used=2)
    found = case.state()
    assert (found.free_ram_mb, found.vcpus_used, found.num_io_ops, found.servers) == (64512, 2, 0, ["s1"])


def test_a_promise_that_no_report_confirms_is_forgotten(case: _Case) -> None:
    case.store.promise(host("a").node_uuid, "s1", amounts=AMOUNTS)
    case.now += PROMISE
    case.report(generation=2)
    assert case.state() == host("a", generation=2)


def test_a_promise_taken_back_leaves_no_trace(case: _Case) -> None:
    case.store.promise(host("a").node_uuid, "s1", amounts=AMOUNTS)
    case.store.take_back(host("a").node_uuid, "s1")
    case.store.take_back(host("a").node_uuid, "s1")
    assert case.state() == host("a")


def test_a_silent_host_is_down_and_up_again_when_it_speaks(case: _Case) -> None:
    node = host("a").node_uuid
    case.conductor.living.discard(node)
    case.now += 2
    case.store.refresh()
    assert (case.state("a").up, case.state("b").up) == (False, True)
    case.conductor.living.add(node)
    case.now += 2
    case.store.refresh()
    assert case.state("a").up


def test_a_host_that_was_silent_from_the_start_becomes_known() -> None:
    conductor = Conductor([host("a"), host("b")])
    late = host("b").node_uuid
    conductor.living.discard(late)
    now = [0.0]
    store = HostStore(conductor, clock=lambda: now[0])  # type: ignore[arg-type]
    store.refresh()
    assert store.find([late]) == []
    conductor.living.add(late)  # no change of its record is told
    now[0] += 2
    store.refresh()
    assert [s.host for s in store.find([late])] == ["b"]


def test_a_new_node_is_asked_for_at_once_and_a_stranger_only_once(case: _Case) -> None:
    new = host("new")
    case.conductor.report(new)
    case.store.meet([new.node_uuid])
    assert case.store.find([new.node_uuid]) == [new]
    asked = len(case.conductor.asked)
    for _ in range(3):
        case.store.meet(["a-sharing-provider", new.node_uuid])
    assert len(case.conductor.asked) == asked + 1


def test_without_a_conductor_the_old_states_serve(case: _Case) -> None:
    case.conductor.error = NoSuchPeer(target="conductor")
    case.now += 5
    case.store.refresh()
    assert case.state().up
    empty = HostStore(case.conductor)  # type: ignore[arg-type]
    with pytest.raises(NoSuchPeer):
        empty.refresh()


def test_nodes_are_found_by_host_and_name(case: _Case) -> None:
    case.report("a2", host="a")
    assert case.store.nodes_of("a", None) == [host("a").node_uuid, host("a2").node_uuid]
    assert case.store.nodes_of("a", "a2") == [host("a2").node_uuid]
    assert case.store.nodes_of(None, "b") == [host("b").node_uuid]
    assert case.store.nodes_of("nobody", None) == []


def test_a_decision_does_not_wait_for_the_answer_that_another_one_asked_for(case: _Case) -> None:
    asked, go_on = threading.Event(), threading.Event()
    real = case.conductor.host_states

    def slow(*, marker: str) -> HostStates:
        asked.set()
        assert go_on.wait(10)
        return real(marker=marker)

    case.conductor.host_states = slow  # type: ignore[method-assign]
    case.now += 5
    first = threading.Thread(target=case.store.refresh)
    first.start()
    try:
        assert asked.wait(10)
        case.store.refresh()
        assert case.state().host == "a"
    finally:
        go_on.set()
        first.join()
