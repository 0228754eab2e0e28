"""The neighbours in memory: the contract, and failures to order."""

from __future__ import annotations

import threading

import pytest

from kilonova.base.errors import BuildAborted, BuildFailed, NeighbourUnavailable, OverQuota
from kilonova.clients.fakes.neighbours import FakeNeighbours, fake_neighbours
from kilonova.core.network import NetworkRequest
from tests.contracts.neighbours_suite import *  # noqa: F403
from tests.contracts.neighbours_suite import World, new


@pytest.fixture
def fakes() -> FakeNeighbours:
    return fake_neighbours()


@pytest.fixture
def world(fakes: FakeNeighbours) -> World:
    network = fakes.neutron.add_network("private", project_id="project").id
    content = b"kernel" * 1000
    return World(
        clients=fakes.typed(),
        project="project",
        network=network,
        other_network=fakes.neutron.add_network("foreign", project_id="other").id,
        make_port=lambda: str(fakes.neutron.add_port(network, project_id="project")["id"]),
        image=fakes.glance.add_image(content=content).id,
        content=content,
    )


def test_a_failure_is_counted(fakes: FakeNeighbours) -> None:
    fakes.placement.orders.fail("claim", times=2)
    for _ in range(2):
        with pytest.raises(NeighbourUnavailable, match="placement"):
            fakes.placement.claim(new(), {"allocations": {}}, project_id="p", user_id="u")
    assert fakes.placement.claim(new(), {"allocations": {}}, project_id="p", user_id="u")
    assert fakes.placement.orders.calls == ["claim"] * 3


def test_down_and_hanging(fakes: FakeNeighbours) -> None:
    fakes.cinder.orders.down = True
    with pytest.raises(NeighbourUnavailable, match="cinder"):
        fakes.cinder.zones()
    go_on = fakes.glance.orders.hang("images")
    asking = threading.Thread(target=fakes.glance.images)
    asking.start()
    asking.join(0.05)
    assert asking.is_alive()
    go_on.set()
    asking.join(5)
    assert not asking.is_alive()


def test_a_host_that_cannot_bind(fakes: FakeNeighbours, world: World) -> None:
    fakes.neutron.unbindable.add("cmp-1")
    with pytest.raises(BuildFailed, match="Binding failed"):
        fakes.neutron.ensure_ports(
            new(),
            [NetworkRequest(network_id=world.network)],
            project_id="project",
            host="cmp-1",
            security_groups=[],
            zone="nova",
        )


def test_port_quota(fakes: FakeNeighbours, world: World) -> None:
    fakes.neutron.port_quotas["project"] = 0
    with pytest.raises(OverQuota):
        world.make_port()


def test_a_broken_image_ends_in_an_error(fakes: FakeNeighbours) -> None:
    fakes.cinder.broken.add("bad-image")
    volume = fakes.cinder.create_volume(project_id="p", size=1, name="", image_id="bad-image")
    with pytest.raises(BuildAborted, match=volume.id):
        fakes.cinder.wait_available(volume.id, seconds=1)
