"""The question to Placement, against reference/scheduler.md, section 2."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.core.request import RequestSpec
from kilonova.scheduler.query import NOWHERE, Query, build
from tests.unit.scheduler.builders import aggregate, flavor, request

NORTH, SOUTH = aggregate("n", availability_zone="north"), aggregate("s", availability_zone="south")
PLAIN = aggregate("plain")


def _build(spec: RequestSpec, **more: Any) -> Query:
    return build(spec, [NORTH, SOUTH, PLAIN], **({"limit": 1000, "default_zone": "nova"} | more))


def _parameters(spec: RequestSpec, **more: Any) -> dict[str, str]:
    pairs = _build(spec, **more).parameters()
    assert pairs == sorted(pairs)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_a_plain_request() -> None:
    spec = request(flavor=flavor(vcpus=2, memory_mb=1024, root_gb=10, ephemeral_gb=5, swap=1025))
    assert _parameters(spec) == {
        "limit": "1000",
        "resources": "DISK_GB:17,MEMORY_MB:1024,VCPU:2",
        "root_required": "!COMPUTE_STATUS_DISABLED",
    }


@pytest.mark.parametrize(
    "specs, resources",
    [
        ({"resources:VCPU": "0"}, "DISK_GB:1,MEMORY_MB:512"),
        ({"resources:VCPU": "7"}, "DISK_GB:1,MEMORY_MB:512,VCPU:7"),
        ({"resources:CUSTOM_GPU": "2"}, "CUSTOM_GPU:2,DISK_GB:1,MEMORY_MB:512,VCPU:1"),
        ({"resources:CUSTOM_GPU": "0"}, "DISK_GB:1,MEMORY_MB:512,VCPU:1"),
    ],
)
def test_amounts_may_be_overridden(specs: dict[str, str], resources: str) -> None:
    assert _parameters(request(specs=specs))["resources"] == resources


def test_a_volume_backed_server_needs_no_root_disk() -> None:
    assert _parameters(request(volume_backed=True))["resources"] == "MEMORY_MB:512,VCPU:1"
    swap = request(volume_backed=True, flavor=flavor(swap=1))
    assert _parameters(swap)["resources"] == "DISK_GB:1,MEMORY_MB:512,VCPU:1"


def test_traits_of_flavor_and_image() -> None:
    spec = request(
        specs={"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "trait:CUSTOM_C": "optional"},
        image_properties={"trait:CUSTOM_D": "required", "trait:CUSTOM_E": "no", "hw_disk_bus": "virtio"},
    )
    assert _parameters(spec)["required"] == "!CUSTOM_B,CUSTOM_A,CUSTOM_D"


def test_groups_by_suffix() -> None:
    specs = {"resources1:VGPU": "1", "trait1:CUSTOM_A": "required", "resources_x-Y:SRIOV_NET_VF": "2"}
    found = _parameters(request(specs=specs | {"group_policy": "isolate"}))
    assert found["resources1"] == "VGPU:1"
    assert found["required1"] == "CUSTOM_A"
    assert found["resources_x-Y"] == "SRIOV_NET_VF:2"
    assert found["resources"] == "DISK_GB:1,MEMORY_MB:512,VCPU:1"
    assert found["group_policy"] == "isolate"


@pytest.mark.parametrize("specs", [{}, {"resources1:VGPU": "1"}, {"resources1:VGPU": "1", "resources2:VGPU": "1"}])
def test_no_group_policy_is_made_up_for_the_flavors_own_groups(specs: dict[str, str]) -> None:
    assert "group_policy" not in _parameters(request(specs=specs))


def test_zones() -> None:
    assert _build(request(availability_zone="north")).member_of == [[NORTH.uuid]]
    assert _build(request(availability_zone="unheard-of")).member_of == [[NOWHERE]]
    assert _parameters(request(availability_zone="south"))["member_of"] == f"in:{SOUTH.uuid}"


def test_the_default_zone_is_all_that_is_in_no_other() -> None:
    outside = ",".join(sorted([NORTH.uuid, SOUTH.uuid]))
    assert _parameters(request(availability_zone="nova"))["member_of"] == f"!in:{outside}"
    assert _build(request(availability_zone="north"), default_zone="north").member_of == [[NORTH.uuid]]


@pytest.mark.parametrize(
    "hints, limited",
    [({}, True), ({"query": ["x"]}, True), ({"group": ["g"]}, False), ({"same_host": ["s"]}, False)],
)
def test_the_limit_is_dropped_where_hosts_behind_it_matter(hints: dict[str, list[str]], limited: bool) -> None:
    assert ("limit" in _parameters(request(hints=hints))) is limited
    assert "limit" in _parameters(request(), nodes=["a"])
    assert "limit" not in _parameters(request(), nodes=["a", "b"])


def test_one_node_is_asked_for_by_its_tree() -> None:
    assert _parameters(request(), nodes=["a"])["in_tree"] == "a"
    assert "in_tree" not in _parameters(request(), nodes=["a", "b"])
