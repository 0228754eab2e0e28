"""Each filter against reference/scheduler.md, section 4: whether a host passes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kilonova.core.host import HostState
from kilonova.core.request import RequestSpec
from kilonova.scheduler.filters import FILTERS
from kilonova.scheduler.filters.matching import matches
from kilonova.scheduler.options import FilterOptions
from tests.unit.scheduler.builders import aggregate, group, host, request


def _passes(name: str, state: HostState, spec: RequestSpec) -> bool:
    reason = FILTERS[name](state, spec)
    assert reason is None or reason.strip()
    return reason is None


@pytest.mark.parametrize(
    "state, passes",
    [
        (host(), True),
        (host(enabled=False), False),
        (host(enabled=False, disabled_reason="moving house"), False),
        (host(up=False), False),
    ],
)
def test_compute_filter(state: HostState, passes: bool) -> None:
    assert _passes("ComputeFilter", state, request()) is passes


def test_the_reason_of_a_disabled_service_is_told() -> None:
    assert "moving house" in str(
        FILTERS["ComputeFilter"](host(enabled=False, disabled_reason="moving house"), request())
    )


@pytest.mark.parametrize(
    "specs, passes",
    [
        ({}, True),
        ({"capabilities:hypervisor_type": "qemu"}, True),
        ({"capabilities:hypervisor_type": "s== qemu"}, True),
        ({"capabilities:hypervisor_type": "ironic"}, False),
        ({"hypervisor_type": "ironic"}, False),
        ({"capabilities:hypervisor_version": ">= 8002000"}, True),
        ({"capabilities:hypervisor_version": "<= 8001999"}, False),
        ({"capabilities:free_ram_mb": "= 65536"}, True),
        ({"capabilities:free_ram_mb": "= 65537"}, False),
        ({"capabilities:colour": "<or> red <or> blue"}, True),
        ({"capabilities:colour": "<or> red <or> green"}, False),
        ({"capabilities:nothing_of_the_kind": "1"}, False),
        ({"nothing_of_the_kind": "1"}, True),
        ({"hw:cpu_policy": "dedicated", "trait:CUSTOM_X": "required", "aggregate_instance_extra_specs:a": "1"}, True),
    ],
)
def test_capabilities(specs: dict[str, str], passes: bool) -> None:
    state = host(stats={"colour": "blue"})
    assert _passes("ComputeCapabilitiesFilter", state, request(specs=specs)) is passes


@pytest.mark.parametrize(
    "properties, passes",
    [
        ({}, True),
        ({"hw_disk_bus": "virtio"}, True),
        ({"hw_architecture": "x86_64"}, True),
        ({"hw_architecture": "amd64"}, True),
        ({"hw_architecture": "ppc64le"}, False),
        ({"hw_architecture": "x86_64", "img_hv_type": "kvm", "hw_vm_mode": "hvm"}, True),
        ({"hw_architecture": "aarch64", "img_hv_type": "kvm"}, False),  # each is supported, but not together
        ({"hw_vm_mode": "xen"}, False),
        ({"img_hv_requested_version": ">=8.0, <9"}, True),
        ({"img_hv_requested_version": ">8.2"}, False),
        ({"img_hv_requested_version": "==8.2.0"}, True),
        ({"img_hv_requested_version": "whatever"}, False),
    ],
)
def test_image_properties(properties: dict[str, str], passes: bool) -> None:
    assert _passes("ImagePropertiesFilter", host(), request(image_properties=properties)) is passes


def test_a_hypervisor_that_tells_no_version_meets_any() -> None:
    spec = request(image_properties={"img_hv_requested_version": ">=99"})
    assert _passes("ImagePropertiesFilter", host(hypervisor_version=0), spec)


@pytest.mark.parametrize(
    "specs, passes",
    [
        ({}, True),
        ({"aggregate_instance_extra_specs:ssd": "true"}, True),
        ({"ssd": "true"}, True),
        ({"aggregate_instance_extra_specs:ssd": "false"}, False),
        ({"aggregate_instance_extra_specs:rack": "7"}, True),  # one of a comma list
        ({"aggregate_instance_extra_specs:rack": "8"}, False),
        ({"aggregate_instance_extra_specs:speed": ">= 10"}, True),
        ({"aggregate_instance_extra_specs:a:b": "1"}, True),
        ({"aggregate_instance_extra_specs:missing": "1"}, False),
        ({"hw:numa_nodes": "2", "capabilities:x": "1"}, True),
    ],
)
def test_aggregate_extra_specs(specs: dict[str, str], passes: bool) -> None:
    aggregates = [
        aggregate("one", ssd="true", rack="6, 7"),
        aggregate("two", speed="25", **{"a:b": "1"}),
    ]
    state = host(aggregates=aggregates)
    assert _passes("AggregateInstanceExtraSpecsFilter", state, request(specs=specs)) is passes
    assert _passes("AggregateInstanceExtraSpecsFilter", host(), request(specs=specs)) is (
        not specs or "hw:numa_nodes" in specs
    )


@pytest.mark.parametrize(
    "policy, members, rules, passes",
    [
        ("anti-affinity", {}, {}, True),
        ("anti-affinity", {"a": "h2"}, {}, True),
        ("anti-affinity", {"a": "h1"}, {}, False),
        ("anti-affinity", {"a": "h1"}, {"max_server_per_host": "2"}, True),
        ("anti-affinity", {"a": "h1", "b": "h1"}, {"max_server_per_host": "2"}, False),
        ("anti-affinity", {"seen": ""}, {}, False),  # the host's state knows of it before the request does
        ("soft-anti-affinity", {"a": "h1"}, {}, True),
    ],
)
def test_anti_affinity(policy: str, members: dict[str, str], rules: dict[str, str], passes: bool) -> None:
    state = host("h1", servers=["seen", "other"])
    assert _passes("ServerGroupAntiAffinityFilter", state, request(group=group(policy, members, **rules))) is passes


@pytest.mark.parametrize(
    "policy, members, passes",
    [
        ("affinity", {}, True),
        ("affinity", {"a": ""}, True),
        ("affinity", {"a": "h1"}, True),
        ("affinity", {"a": "h2"}, False),
        ("soft-affinity", {"a": "h2"}, True),
    ],
)
def test_affinity(policy: str, members: dict[str, str], passes: bool) -> None:
    assert _passes("ServerGroupAffinityFilter", host("h1"), request(group=group(policy, members))) is passes


@pytest.mark.parametrize(
    "name, wanted, passes",
    [
        ("DifferentHostFilter", ["here"], False),
        ("DifferentHostFilter", ["elsewhere"], True),
        ("DifferentHostFilter", [], True),
        ("SameHostFilter", ["here", "elsewhere"], True),
        ("SameHostFilter", ["elsewhere"], False),
        ("SameHostFilter", [], True),
    ],
)
def test_hints_about_servers(name: str, wanted: list[str], passes: bool) -> None:
    hint = {"DifferentHostFilter": "different_host", "SameHostFilter": "same_host"}[name]
    assert _passes(name, host(servers=["here"]), request(hints={hint: wanted} if wanted else {})) is passes


@pytest.mark.parametrize(
    "value, wanted, met",
    [
        ("4", "= 3", True),  # "=" is at least
        ("2", "= 3", False),
        ("3.0", "== 3", True),
        ("4", "!= 4", False),
        ("9", "<= 10", True),  # as numbers, not as texts
        ("b", "s> a", True),
        ("a", "s>= b", False),
        ("a", "s< b", True),
        ("a", "s!= a", False),
        ("abc", "<in> bc", True),
        ("abc", "<all-in> a c", True),
        ("abc", "<all-in> a d", False),
        ("two", "<or> one <or> two", True),
        ("text", ">= 3", False),
        ("plain", "plain", True),
        ("plain", "Plain", False),
    ],
)
def test_matching(value: str, wanted: str, met: bool) -> None:
    assert matches(value, wanted) is met


def test_filters_and_options_are_those_of_the_reference(reference: Path) -> None:
    options: list[dict[str, Any]] = json.loads((reference / "config.json").read_text())
    known = {o["name"]: o for o in options if o["group"] == "filter_scheduler"}
    assert known["enabled_filters"]["default"] == FilterOptions().enabled_filters
    for field in dataclasses.fields(FilterOptions):  # type: ignore[arg-type]
        assert field.name in known
        if field.name.endswith("_multiplier"):
            assert float(known[field.name]["default"]) == getattr(FilterOptions(), field.name), field.name
