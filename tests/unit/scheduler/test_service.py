"""Decisions with a Placement in memory: batches, claims, refusals, and what they cost."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.base.config import BadConfig
from kilonova.base.errors import BadRequest, NeighbourUnavailable, NoValidHost
from kilonova.core.request import RequestSpec, Why
from tests.unit.scheduler.builders import World, aggregate, chosen, flavor, group, host, request


def _why(error: pytest.ExceptionInfo[NoValidHost]) -> Why:
    return msgspec.convert(error.value.facts["why"], Why)


def _held(world: World) -> Counter[str]:
    names = {host_.node_uuid: host_.host for host_ in world.hosts.find(world.placement.providers)}
    return Counter(names[uuid_] for held in world.placement.held.values() for uuid_ in held.allocations)


def test_a_batch_on_two_equal_hosts_is_halved() -> None:
    world = World([host("a"), host("b")], room=(400, 65536, 1000))
    decision = world.select(count=100)
    assert Counter(chosen(decision)) == {"a": 50, "b": 50}
    assert _held(world) == {"a": 50, "b": 50}


@pytest.mark.parametrize("on_each, servers", [(0, 1), (200, 1), (0, 40)])
def test_a_decision_costs_two_requests_whatever_is_on_the_hosts(on_each: int, servers: int) -> None:
    states = [host(f"h{i}", servers=[f"{i}-{j}" for j in range(on_each)], num_instances=on_each) for i in range(20)]
    world = World(states)
    world.select(count=servers)
    assert world.placement.orders.calls == ["candidates", "claim_many"]
    for _ in range(5):
        world.select()
    assert len(world.conductor.asked) == 1


def test_decisions_one_after_another_spread_before_any_report() -> None:
    world = World([host(f"h{i}") for i in range(4)])
    assert Counter(chosen(world.select())[0] for _ in range(20)) == {f"h{i}": 5 for i in range(4)}


def test_alternates_are_of_the_same_cell_and_not_claimed() -> None:
    world = World([host("a"), host("b"), host("c", cell="cell2"), host("d", cell="cell2"), host("e")])
    for _ in range(5):
        [selections] = world.select(alternates=2).selections
        assert len({s.cell for s in selections}) == 1
        assert len({s.host for s in selections}) == len(selections) == (3 if selections[0].cell == "cell1" else 2)
        assert all(s.node_uuid in s.allocations["allocations"] for s in selections)
    assert len(world.placement.held) == 5
    assert [len(s) for s in world.select(alternates=0).selections] == [1]


def test_anti_affinity_within_a_batch_and_its_alternates() -> None:
    world = World([host(f"h{i}") for i in range(5)])
    decision = world.select(request(group=group("anti-affinity", {"there": "h0"})), count=3)
    hosts = chosen(decision)
    assert len(set(hosts)) == 3
    assert "h0" not in hosts
    for selections in decision.selections:
        assert not {s.host for s in selections[1:]} & {*hosts, "h0"}


def test_anti_affinity_holds_between_two_requests_made_at_once() -> None:
    world = World([host("a"), host("b")])
    both = {"s1": "", "s2": ""}
    first = world.select_for(["s1"], request(group=group("anti-affinity", both)))
    second = world.select_for(["s2"], request(group=group("anti-affinity", both)))
    assert sorted(chosen(first) + chosen(second)) == ["a", "b"]


def test_anti_affinity_beyond_the_hosts_claims_nothing() -> None:
    world = World([host("a"), host("b")])
    with pytest.raises(NoValidHost, match="not enough hosts"):
        world.select(request(group=group("anti-affinity")), count=3)
    assert world.placement.held == {}
    assert Counter(chosen(world.select(count=10))) == {"a": 5, "b": 5}


def test_affinity_keeps_a_batch_together() -> None:
    world = World([host("a"), host("b"), host("c")])
    decision = world.select(request(group=group("affinity")), count=4)
    assert len(set(chosen(decision))) == 1
    assert [len(s) for s in decision.selections] == [1] * 4
    [alone] = world.select(request(group=group("affinity"))).selections
    assert len(alone) == 3  # the first of its group may still go elsewhere


def test_a_policy_without_its_filter_is_refused() -> None:
    world = World([host("a")], enabled_filters=["ComputeFilter"])
    with pytest.raises(NoValidHost, match="ServerGroupAffinityFilter not configured"):
        world.select(request(group=group("affinity")))


def test_room_is_minded_while_a_batch_is_placed() -> None:
    world = World([host("small", free_ram_mb=10**6), host("big", free_ram_mb=1)], room=(5, 65536, 1000))
    assert Counter(chosen(world.select(count=10))) == {"small": 5, "big": 5}
    assert world.placement.orders.calls.count("claim_many") == 1


def _take_room(world: World, name: str, vcpus: int) -> None:
    offer = {"allocations": {host(name).node_uuid: {"resources": {"VCPU": vcpus}}}}
    assert world.placement.claim(str(uuid.uuid4()), offer, project_id="x", user_id="x")


def _rob_before_claims(world: World, name: str, vcpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another scheduler takes room between Placement's answer and our claim."""
    real, robbed = world.placement.claim_many, []

    def robbing(claims: dict[str, Any], **who: str) -> bool:
        if not robbed:
            robbed.append(name)
            _take_room(world, name, vcpus)
        return real(claims, **who)

    monkeypatch.setattr(world.placement, "claim_many", robbing)


def test_a_lost_claim_takes_the_next_host(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([host("best", free_ram_mb=99999), host("next", free_ram_mb=500)], room=(1, 65536, 1000))
    _rob_before_claims(world, "best", 1, monkeypatch)
    decision = world.select()
    assert chosen(decision) == ["next"]
    assert decision.why.claims == [("best", "taken by another"), ("next", "claimed")]
    assert world.hosts.find([host("best").node_uuid])[0].servers == []


def test_a_batch_that_loses_some_room_is_placed_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([host("a"), host("b"), host("c")], room=(4, 65536, 1000))
    _rob_before_claims(world, "a", 3, monkeypatch)
    assert Counter(chosen(world.select(count=9))) == {"a": 1, "b": 4, "c": 4}


def test_a_batch_that_loses_too_much_releases_all_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([host("a"), host("b")], room=(4, 65536, 1000))
    _rob_before_claims(world, "a", 4, monkeypatch)
    with pytest.raises(NoValidHost) as error:
        world.select(count=6)
    assert len(world.placement.held) == 1  # the robber's
    assert ("a", "taken by another") in _why(error).claims
    assert all(not s.servers for s in world.hosts.find([host("a").node_uuid, host("b").node_uuid]))


def test_placement_that_fails_in_a_claim_leaves_no_promise() -> None:
    world = World([host("a"), host("b")])
    world.placement.orders.fail("claim_many")
    with pytest.raises(NeighbourUnavailable):
        world.select(count=3)
    assert world.placement.held == {}
    assert all(not s.servers for s in world.hosts.find([host("a").node_uuid, host("b").node_uuid]))


def test_a_request_worked_on_before_is_claimed_afresh() -> None:
    """The worker died between claim and journal: the second decision must not hold room on two hosts."""
    world = World([host("a"), host("b")])
    servers = ["s1", "s2", "s3"]
    world.select_for(servers)
    decision = world.select_for(servers)
    assert {s: list(held.allocations) for s, held in world.placement.held.items()} == {
        server: [selections[0].node_uuid] for server, selections in zip(servers, decision.selections, strict=True)
    }
    full = World([host("a")], room=(3, 65536, 1000))
    full.select_for(servers)
    assert chosen(full.select_for(servers)) == ["a"] * 3


@given(
    rooms=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    servers=st.integers(1, 12),
    robbed=st.integers(0, 6),
)
@settings(max_examples=60, deadline=None)
def test_all_or_none_and_never_more_than_there_is(rooms: list[int], servers: int, robbed: int) -> None:
    states = [host(f"h{i}") for i in range(len(rooms))]
    world = World(states)
    for state, room in zip(states, rooms, strict=True):
        world.add_room(state, (max(room, 1), 65536, 1000))
        if room == 0:
            _take_room(world, state.host, 1)
    robbed = min(robbed, rooms[0])
    before = len(world.placement.held)
    with pytest.MonkeyPatch.context() as patch:
        if robbed:
            _rob_before_claims(world, "h0", robbed, patch)
        try:
            decision = world.select(count=servers)
        except NoValidHost:
            assert sum(rooms) - robbed < servers
            assert len(world.placement.held) <= before + bool(robbed)
        else:
            assert len(decision.selections) == servers
            assert len(world.placement.held) == before + servers + bool(robbed)


def test_a_forced_host_is_not_filtered_and_a_requested_one_is() -> None:
    world = World([host("a"), host("off", enabled=False)])
    assert chosen(world.select(request(force_host="off"))) == ["off"]
    with pytest.raises(NoValidHost, match="ComputeFilter refused 1"):
        world.select(request(requested_host="off"))
    with pytest.raises(NoValidHost, match="No such host - host: none node: None"):
        world.select(request(force_host="none"))


def test_one_of_several_nodes_of_a_forced_host() -> None:
    world = World([host("n1", host="rack"), host("n2", host="rack"), host("other")])
    assert chosen(world.select(request(force_host="rack"))) == ["rack"]
    [selections] = world.select(request(force_host="rack", force_node="n2")).selections
    assert selections[0].node == "n2"


def _traits(world: World, name: str, *traits: str) -> None:
    world.placement.ensure_traits(host(name).node_uuid, list(traits))


@pytest.mark.parametrize(
    "spec, lacking",
    [
        (request(flavor=flavor(memory_mb=10**7)), ["MEMORY_MB 10000000"]),
        (request(flavor=flavor(vcpus=500)), ["VCPU 500"]),
        (request(specs={"resources:CUSTOM_GPU": "1"}), ["CUSTOM_GPU 1"]),
        (request(specs={"trait:CUSTOM_FAST": "required"}), ["trait CUSTOM_FAST"]),
        (request(specs={"trait:HW_ALL": "forbidden"}), ["the absence of trait HW_ALL"]),
        (request(availability_zone="moon"), ["the availability zone or aggregate asked for"]),
        (
            request(flavor=flavor(memory_mb=10**7, extra_specs={"trait:CUSTOM_FAST": "required"})),
            ["MEMORY_MB 10000000", "trait CUSTOM_FAST"],
        ),
    ],
)
def test_what_is_lacking_is_named(spec: RequestSpec, lacking: list[str]) -> None:
    world = World([host("a"), host("b")])
    for name in ("a", "b"):
        _traits(world, name, "HW_ALL")
    with pytest.raises(NoValidHost) as error:
        world.select(spec)
    assert _why(error).lacking == lacking
    assert "; ".join(lacking) in error.value.message


def test_hosts_that_are_all_disabled_are_named_so() -> None:
    world = World([host("a")])
    _traits(world, "a", "COMPUTE_STATUS_DISABLED")
    with pytest.raises(NoValidHost) as error:
        world.select()
    assert _why(error).lacking == ["a host that is not disabled"]


def test_constraints_that_only_together_are_too_much() -> None:
    world = World([host("a", aggregates=[aggregate("n", availability_zone="north")]), host("b")])
    _traits(world, "b", "CUSTOM_FAST")
    spec = request(specs={"trait:CUSTOM_FAST": "required"}, availability_zone="north")
    with pytest.raises(NoValidHost) as error:
        world.select(spec)
    assert _why(error).lacking == ["trait CUSTOM_FAST", "the availability zone or aggregate asked for"]


def test_a_query_that_placement_refuses_is_no_valid_host() -> None:
    world = World([host("a")])
    world.placement.orders.fail("candidates", error=BadRequest("Placement refuses the query: No such trait"))
    with pytest.raises(NoValidHost, match="No such trait"):
        world.select()


def test_placement_down_is_said_by_its_name() -> None:
    world = World([host("a")])
    world.placement.orders.down = True
    with pytest.raises(NeighbourUnavailable) as error:
        world.select()
    assert "placement" in error.value.message


def test_the_record_of_a_decision() -> None:
    world = World([host("a", free_ram_mb=9000), host("b", free_ram_mb=8000), host("c", up=True, enabled=False)])
    why = world.select().why
    assert why.candidates == 3
    assert why.query.startswith("limit=1000&resources=DISK_GB:1")
    assert (why.filters[0].filter, why.filters[0].refused) == ("ComputeFilter", 1)
    assert why.weights[0][0] == "a"
    assert (why.claims, why.chosen, why.seed) == ([("a", "claimed")], ["a"], "req-1")


def test_the_same_request_is_decided_alike_over_equal_hosts() -> None:
    spec = request(request_id="req-77")
    decisions = {tuple(chosen(World([host(f"h{i}") for i in range(9)]).select(spec, count=4))) for _ in range(5)}
    assert len(decisions) == 1


def test_images_without_an_architecture_get_the_configured_one() -> None:
    arm = host("arm", supported=[("aarch64", "kvm", "hvm")])
    world = World([arm], image_properties_default_architecture="x86_64")
    with pytest.raises(NoValidHost, match="ImagePropertiesFilter refused 1"):
        world.select()
    assert chosen(world.select(request(image_properties={"hw_architecture": "arm64"}))) == ["arm"]


def test_nothing_is_claimed_when_no_claim_is_wanted() -> None:
    world = World([host("a")])
    assert chosen(world.select(claim=False)) == ["a"]
    assert world.placement.held == {}


def test_unknown_filters_stop_the_service() -> None:
    with pytest.raises(BadConfig, match="NoSuchFilter"):
        World([host("a")], enabled_filters=["ComputeFilter", "nova.scheduler.filters.NoSuchFilter"])
