"""Weights, ties, and the placing of a batch."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.options import FilterOptions
from kilonova.scheduler.selection import Field, brief, narrow, order
from kilonova.scheduler.weighers import weigh
from tests.unit.scheduler.builders import aggregate, group, host, request

hosts_of_any_kind = st.lists(
    st.builds(
        lambda ram, disk, used, ops, failed: {
            "free_ram_mb": ram,
            "free_disk_mb": disk,
            "vcpus_used": used,
            "num_io_ops": ops,
            "failed_builds": failed,
        },
        ram=st.integers(-4096, 1 << 20),
        disk=st.integers(-1024, 1 << 24),
        used=st.integers(0, 500),
        ops=st.integers(0, 20),
        failed=st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
).map(lambda many: [host(f"h{i:02}", **fields) for i, fields in enumerate(many)])


@given(hosts_of_any_kind)
def test_each_weigher_gives_between_nothing_and_its_multiplier(hosts: list[HostState]) -> None:
    for _, total, parts in weigh(hosts, request(), FilterOptions()):
        for name, part in parts.items():
            most = {"IoOpsWeigher": -1.0, "BuildFailureWeigher": 1_000_000.0}.get(name, 1.0)
            assert min(0.0, most) - 1e-9 <= part <= max(0.0, most) + 1e-9
        assert total == pytest.approx(sum(parts.values()))


@given(hosts_of_any_kind)
def test_a_weigher_that_sees_no_difference_weighs_nothing(hosts: list[HostState]) -> None:
    same = [host(f"same{i}") for i in range(len(hosts))]
    assert {total for _, total, _ in weigh(same, request(), FilterOptions())} == {0.0}


@given(hosts_of_any_kind, st.permutations(range(12)))
def test_the_best_comes_first_whatever_the_order_of_the_hosts(hosts: list[HostState], shuffled: list[int]) -> None:
    mixed = [hosts[i] for i in shuffled if i < len(hosts)]
    first = order(hosts, request(), FilterOptions(), seed="s")
    again = order(mixed, request(), FilterOptions(), seed="s")
    assert [h.host for h in first.hosts] == [h.host for h in again.hosts]
    weights = {h.host: total for h, total, _ in weigh(hosts, request(), FilterOptions())}
    found = [weights[h.host] for h in first.hosts]
    assert found == sorted(found, reverse=True)


@given(hosts_of_any_kind, st.integers(1, 8))
@settings(max_examples=50)
def test_what_is_kept_over_a_batch_is_what_a_fresh_look_finds(hosts: list[HostState], servers: int) -> None:
    field = Field(hosts, request(), FilterOptions())
    for number in range(servers):
        winner = field.ranked(str(number))[0]
        winner.free_ram_mb -= 512
        winner.num_io_ops += 1
        field.changed(winner)
        fresh = order(hosts, request(), FilterOptions(), seed="x")
        assert [h.host for h in field.ranked("x")] == [h.host for h in fresh.hosts]


def test_a_host_that_a_batch_filled_is_out() -> None:
    one, two = host("one", stats={"open": "yes"}), host("two", stats={"open": "yes"})
    field = Field([one, two], request(specs={"capabilities:open": "yes"}), FilterOptions())
    one.stats = {"open": "no"}
    field.changed(one)
    assert field.ranked("s") == [two]
    assert next(r for r in field.refusals if r.filter == "ComputeCapabilitiesFilter").refused == 1


@pytest.mark.parametrize(
    "better, worse",
    [
        ({"free_ram_mb": 9000}, {"free_ram_mb": 8000}),
        ({"vcpus_used": 1}, {"vcpus_used": 2}),
        ({"free_disk_mb": 9000}, {"free_disk_mb": 8000}),
        ({"num_io_ops": 0}, {"num_io_ops": 5}),
        ({"failed_builds": 0, "free_ram_mb": 1}, {"failed_builds": 1, "free_ram_mb": 9000}),
        ({"hypervisor_version": 9}, {"hypervisor_version": 8}),
    ],
)
def test_what_is_preferred(better: dict[str, int], worse: dict[str, int]) -> None:
    found = order([host("a", **worse), host("b", **better)], request(), FilterOptions(), seed="s")
    assert [h.host for h in found.hosts] == ["b", "a"]


@pytest.mark.parametrize("policy, first", [("soft-affinity", "a"), ("soft-anti-affinity", "b")])
def test_soft_policies(policy: str, first: str) -> None:
    spec = request(group=group(policy, {"m1": "a", "m2": "a", "m3": "b"}))
    assert order([host("a"), host("b")], spec, FilterOptions(), seed="s").hosts[0].host == first


def test_the_least_of_the_aggregates_multipliers_counts() -> None:
    many = [aggregate("x", ram_weight_multiplier="-2.0"), aggregate("y", ram_weight_multiplier="3"), aggregate("z")]
    bad = [aggregate("w", ram_weight_multiplier="much")]
    hosts = [
        host("a", free_ram_mb=2, aggregates=many),
        host("b", free_ram_mb=1),
        host("c", free_ram_mb=2, aggregates=bad),
    ]
    parts = {h.host: p.get("RAMWeigher", 0.0) for h, _, p in weigh(hosts, request(), FilterOptions())}
    assert parts == {"a": -2.0, "b": 0.0, "c": 1.0}


def test_equals_share_the_load_and_a_seed_repeats_the_decision() -> None:
    hosts = [host(f"h{i}") for i in range(5)]
    firsts = [order(hosts, request(), FilterOptions(), seed=f"req-{i}").hosts[0].host for i in range(500)]
    assert min(Counter(firsts).values()) > 50
    assert len(Counter(firsts)) == 5
    again = [order(hosts[::-1], request(), FilterOptions(), seed=f"req-{i}").hosts[0].host for i in range(500)]
    assert again == firsts


def test_the_winner_is_drawn_among_the_best() -> None:
    hosts = [host(f"h{i}", free_ram_mb=1000 * (9 - i)) for i in range(6)]
    options = FilterOptions(host_subset_size=3)
    firsts = {order(hosts, request(), options, seed=str(i)).hosts[0].host for i in range(100)}
    assert firsts == {"h0", "h1", "h2"}


@pytest.mark.parametrize(
    "spec, left",
    [
        (request(force_host="down"), ["down"]),
        (request(force_node="down"), ["down"]),
        (request(requested_host="down"), []),
        (request(requested_host="up"), ["up"]),
        (request(ignore_hosts=["up"]), []),
        (request(), ["up"]),
    ],
)
def test_a_forced_host_skips_the_filters_a_requested_one_does_not(spec: RequestSpec, left: list[str]) -> None:
    kept, refusals = narrow([host("up"), host("down", up=False)], spec, FilterOptions().enabled_filters)
    assert [h.host for h in kept] == left
    assert (
        bool(spec.force_host or spec.force_node) is not any(r.filter == "ComputeFilter" for r in refusals) or not left
    )


def test_refusals_count_and_give_reasons() -> None:
    hosts = [host(f"d{i}", up=False) for i in range(30)] + [host("ok")]
    found = order(hosts, request(), FilterOptions(), seed="s")
    compute = next(r for r in found.refusals if r.filter == "ComputeFilter")
    assert (compute.refused, compute.left, len(compute.reasons)) == (30, 1, 20)
    assert brief(found.refusals, candidates=31, lacking=[]) == "Of 31 hosts with room, ComputeFilter refused 30."


def test_a_decision_over_a_thousand_hosts_is_quick() -> None:
    hosts = [host(f"h{i}", free_ram_mb=4096 + i % 7, servers=[f"s{i}-{j}" for j in range(50)]) for i in range(1000)]
    took = []
    for seed in range(5):
        begun = time.perf_counter()
        order(hosts, request(image_properties={"hw_architecture": "x86_64"}), FilterOptions(), seed=str(seed))
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.03
