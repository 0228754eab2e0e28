"""What the clients of the neighbours must do: the same tests for the fakes in memory and for the real services.

A test module imports the suite and gives a fixture ``world``.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from kilonova.base.errors import (
    BadRequest,
    Conflict,
    ImageNotFound,
    NetworkNotFound,
    NotFound,
    PortInUse,
    PortNotFound,
    VolumeNotFound,
)
from kilonova.clients import volumes
from kilonova.clients.neighbours import Neighbours
from kilonova.core.device import BlockDevice
from kilonova.core.network import NetworkRequest, Nic

__all__ = ["TestCinder", "TestGlance", "TestKeystone", "TestNeutron", "TestPlacement", "provider", "server"]


@dataclasses.dataclass
class World:
    """Neighbours with a scene.

    ``network`` has room and belongs to ``project``, ``other_network`` to nobody that ``project`` knows; ``make_port``
    makes a port as a user does and answers its id; ``image`` has the content ``content``.
    """

    clients: Neighbours
    project: str
    network: str
    other_network: str
    make_port: Callable[[], str]
    image: str
    content: bytes
    host: str = "cmp-1"
    user: str = "a-user"


INVENTORY: dict[str, dict[str, float]] = {
    "VCPU": {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 2.0},
    "MEMORY_MB": {"total": 1024, "reserved": 512, "max_unit": 1024, "initial_allocation_ratio": 1.0},
}
TRAITS = ["COMPUTE_NODE", "CUSTOM_KILONOVA_SUITE"]


def new() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def server(world: World) -> Iterator[str]:
    """A server's id; what it holds is let go in the end."""
    key = new()
    yield key
    world.clients.placement.release(key)
    world.clients.neutron.release_ports(key)


@pytest.fixture
def provider(world: World) -> Iterator[str]:
    key = new()
    placement = world.clients.placement
    placement.ensure_provider(key, f"host-{key}")
    placement.ensure_inventory(key, INVENTORY)
    placement.ensure_traits(key, TRAITS)
    yield key
    for consumer in placement.consumers(key):
        placement.release(consumer)
    placement.delete_provider(key)


def wanting(provider: str, vcpus: int = 1, memory: int = 64) -> dict[str, Any]:
    return {
        "allocations": {provider: {"resources": {"VCPU": vcpus, "MEMORY_MB": memory}}},
        "mappings": {"": [provider]},
    }


class TestPlacement:
    def candidates(self, world: World, provider: str, **more: str) -> dict[str, Any]:
        query = [("resources", "VCPU:1,MEMORY_MB:64"), ("in_tree", provider), *more.items()]
        return world.clients.placement.candidates(query).summaries

    def test_a_host_with_room_is_a_candidate(self, world: World, provider: str) -> None:
        found = self.candidates(world, provider, required="COMPUTE_NODE,!COMPUTE_STATUS_DISABLED")
        assert list(found) == [provider]
        assert found[provider]["resources"]["VCPU"] == {"capacity": 8, "used": 0}
        assert found[provider]["resources"]["MEMORY_MB"] == {"capacity": 512, "used": 0}
        assert set(TRAITS) <= set(found[provider]["traits"])

    def test_a_forbidden_trait_excludes(self, world: World, provider: str) -> None:
        world.clients.placement.ensure_traits(provider, [*TRAITS, "COMPUTE_STATUS_DISABLED"])
        assert self.candidates(world, provider, required="!COMPUTE_STATUS_DISABLED") == {}
        world.clients.placement.ensure_traits(provider, TRAITS)
        assert list(self.candidates(world, provider, required="!COMPUTE_STATUS_DISABLED")) == [provider]

    def test_aggregates_limit(self, world: World, provider: str) -> None:
        aggregate = new()
        assert self.candidates(world, provider, member_of=aggregate) == {}
        world.clients.placement.ensure_aggregates(provider, [aggregate])
        assert list(self.candidates(world, provider, member_of=aggregate)) == [provider]
        assert world.clients.placement.aggregates(provider) == [aggregate]
        world.clients.placement.ensure_traits(provider, ["COMPUTE_NODE"])

    def test_a_nonsense_query_is_refused(self, world: World) -> None:
        with pytest.raises(BadRequest):
            world.clients.placement.candidates([("resources", "VCPU:many")])

    def test_a_claim_is_held_once(self, world: World, provider: str, server: str) -> None:
        placement = world.clients.placement
        for _ in range(2):
            assert placement.claim(server, wanting(provider), project_id=world.project, user_id=world.user)
        held = placement.allocations(server)
        assert held["allocations"][provider]["resources"] == {"VCPU": 1, "MEMORY_MB": 64}
        assert held["project_id"] == world.project
        assert placement.consumers(provider) == {server: {"resources": {"VCPU": 1, "MEMORY_MB": 64}}}
        assert self.candidates(world, provider)[provider]["resources"]["VCPU"]["used"] == 1

    def test_room_is_given_once(self, world: World, provider: str, server: str) -> None:
        placement, second = world.clients.placement, new()
        assert placement.claim(server, wanting(provider, memory=512), project_id=world.project, user_id=world.user)
        assert not placement.claim(second, wanting(provider), project_id=world.project, user_id=world.user)
        assert placement.allocations(second)["allocations"] == {}
        placement.release(server)
        assert placement.claim(second, wanting(provider), project_id=world.project, user_id=world.user)

    def test_a_second_claim_is_added(self, world: World, provider: str, server: str) -> None:
        placement, other = world.clients.placement, new()
        placement.ensure_provider(other, f"host-{other}")
        placement.ensure_inventory(other, INVENTORY)
        for one in (provider, other):
            assert placement.claim(server, wanting(one), project_id=world.project, user_id=world.user)
        assert set(placement.allocations(server)["allocations"]) == {provider, other}
        with pytest.raises(Conflict):
            placement.delete_provider(other)
        placement.release(server)
        placement.delete_provider(other)

    def test_release_of_nothing_is_fine(self, world: World) -> None:
        world.clients.placement.release(new())
        assert world.clients.placement.allocations(new())["allocations"] == {}
        assert world.clients.placement.consumers(new()) == {}
        world.clients.placement.delete_provider(new())

    def test_usages_count_a_project(self, world: World, provider: str, server: str) -> None:
        project = uuid.uuid4().hex
        world.clients.placement.claim(server, wanting(provider), project_id=project, user_id=world.user)
        assert world.clients.placement.usages(project) == {"VCPU": 1, "MEMORY_MB": 64}
        assert world.clients.placement.usages(project, "somebody-else") == {}

    def test_inventory_follows(self, world: World, provider: str) -> None:
        placement = world.clients.placement
        placement.ensure_inventory(provider, {"VCPU": INVENTORY["VCPU"]})
        assert placement.candidates([("resources", "MEMORY_MB:1"), ("in_tree", provider)]).summaries == {}
        placement.ensure_inventory(provider, INVENTORY)
        assert list(self.candidates(world, provider)) == [provider]

    def test_what_is_in_use_stays(self, world: World, provider: str, server: str) -> None:
        placement = world.clients.placement
        placement.claim(server, wanting(provider), project_id=world.project, user_id=world.user)
        with pytest.raises(Conflict):
            placement.ensure_inventory(provider, {"VCPU": INVENTORY["VCPU"]})

    def test_a_name_is_used_once(self, world: World, provider: str) -> None:
        placement = world.clients.placement
        assert placement.ensure_provider(provider, f"host-{provider}").uuid == provider
        with pytest.raises(Conflict):
            placement.ensure_provider(new(), f"host-{provider}")

    def test_an_unknown_provider_is_said_so(self, world: World) -> None:
        with pytest.raises(NotFound):
            world.clients.placement.ensure_inventory(new(), INVENTORY)


class TestNeutron:
    def ports(self, world: World, server: str, requests: list[NetworkRequest], host: str = "") -> list[Nic]:
        return world.clients.neutron.ensure_ports(
            server,
            requests,
            project_id=world.project,
            host=host or world.host,
            security_groups=["default"],
            zone="nova",
            hostname="web",
        )

    def test_ports_are_made_bound_and_described(self, world: World, server: str) -> None:
        wanted = [NetworkRequest(network_id=world.network, tag=tag) for tag in ("first", "second")]
        nics = self.ports(world, server, wanted)
        assert [nic.tag for nic in nics] == ["first", "second"]
        for nic in nics:
            assert nic.created
            assert nic.network_id == world.network
            assert nic.vif_type == "bridge"
            assert nic.mac.count(":") == 5
            assert nic.fixed_ips[0].version == 4
            assert nic.fixed_ips[0].cidr
            assert nic.fixed_ips[0].gateway
            assert nic.network_name
            assert nic.mtu
            record = world.clients.neutron.port(nic.port_id)
            assert record["device_id"] == server
            assert record["device_owner"] == "compute:nova"
            assert record["binding:host_id"] == world.host
            assert record["project_id"] == world.project

    def test_a_second_call_finds_them_again(self, world: World, server: str) -> None:
        wanted = [NetworkRequest(network_id=world.network), NetworkRequest(network_id=world.network)]
        first = self.ports(world, server, wanted[:1])
        both = self.ports(world, server, wanted)
        assert both[0].port_id == first[0].port_id
        assert [nic.port_id for nic in self.ports(world, server, wanted)] == [nic.port_id for nic in both]
        assert len(world.clients.neutron.ports(device_id=server)) == 2

    def test_they_move_to_another_host(self, world: World, server: str) -> None:
        wanted = [NetworkRequest(network_id=world.network)]
        first, second = self.ports(world, server, wanted), self.ports(world, server, wanted, host="cmp-2")
        assert first[0].port_id == second[0].port_id
        assert world.clients.neutron.port(second[0].port_id)["binding:host_id"] == "cmp-2"

    def test_a_users_port_is_borrowed(self, world: World, server: str) -> None:
        port = world.make_port()
        wanted = [NetworkRequest(network_id=world.network), NetworkRequest(port_id=port)]
        nics = self.ports(world, server, wanted)
        assert [nic.created for nic in nics] == [True, False]
        assert nics[1].port_id == port
        world.clients.neutron.release_ports(server)
        world.clients.neutron.release_ports(server)
        back = world.clients.neutron.port(port)
        assert (back["device_id"], back["device_owner"], back["binding:host_id"]) == ("", "", "")
        with pytest.raises(PortNotFound):
            world.clients.neutron.port(nics[0].port_id)

    def test_a_port_serves_one_server(self, world: World, server: str) -> None:
        port, second = world.make_port(), new()
        self.ports(world, server, [NetworkRequest(port_id=port)])
        with pytest.raises(PortInUse):
            self.ports(world, second, [NetworkRequest(port_id=port)])
        assert world.clients.neutron.ports(device_id=second) == []

    def test_what_is_not_there_is_named(self, world: World, server: str) -> None:
        missing = new()
        with pytest.raises(PortNotFound, match=missing):
            self.ports(world, server, [NetworkRequest(port_id=missing)])
        with pytest.raises(NetworkNotFound, match=missing):
            self.ports(world, server, [NetworkRequest(network_id=missing)])
        with pytest.raises(PortNotFound):
            world.clients.neutron.port("no-uuid")

    def test_an_address_is_given_once(self, world: World, server: str) -> None:
        address = self.ports(world, server, [NetworkRequest(network_id=world.network)])[0].fixed_ips[0].address
        with pytest.raises(BadRequest, match=address.replace(".", r"\.")):
            self.ports(world, new(), [NetworkRequest(network_id=world.network, fixed_ip=address)])
        assert world.clients.neutron.ports(fixed_ips=f"ip_address={address}")[0]["device_id"] == server

    def test_an_unknown_group_is_refused(self, world: World, server: str) -> None:
        with pytest.raises(BadRequest, match="no-such-group"):
            world.clients.neutron.ensure_ports(
                server,
                [NetworkRequest(network_id=world.network)],
                project_id=world.project,
                host=world.host,
                security_groups=["no-such-group"],
                zone="nova",
            )

    def test_nics_are_read_in_order(self, world: World, server: str) -> None:
        made = self.ports(world, server, [NetworkRequest(network_id=world.network) for _ in range(3)])
        assert [nic.port_id for nic in world.clients.neutron.nics(server)] == [nic.port_id for nic in made]
        assert world.clients.neutron.nics(new()) == []

    def test_a_project_sees_its_networks(self, world: World) -> None:
        neutron = world.clients.neutron
        assert world.network in {network.id for network in neutron.networks(world.project)}
        assert world.other_network not in {network.id for network in neutron.networks(world.project)}
        named = neutron.networks(world.project, ids=[world.network, world.other_network, new()])
        assert [network.id for network in named] == [world.network]

    def test_groups_and_quota(self, world: World, server: str) -> None:
        neutron = world.clients.neutron
        assert "default" in {group["name"] for group in neutron.security_groups(world.project)}
        before = neutron.quota_used(world.project)["port"]["used"]
        self.ports(world, server, [NetworkRequest(network_id=world.network)])
        assert neutron.quota_used(world.project)["port"]["used"] == before + 1


def disk(**more: Any) -> BlockDevice:
    return BlockDevice(**{"uuid": new(), "source_type": "volume", "destination_type": "volume", **more})


class TestCinder:
    CONNECTOR: ClassVar = {"host": "cmp-1", "ip": "127.0.0.1", "platform": "x86_64", "multipath": False}

    def made(self, world: World, **more: Any) -> str:
        volume = world.clients.cinder.create_volume(project_id=world.project, size=1, name="suite", **more)
        assert world.clients.cinder.wait_available(volume.id, seconds=60).status == "available"
        return volume.id

    def gone(self, world: World, volume: str) -> None:
        world.clients.cinder.delete_volume(volume)

    def test_the_way_of_an_attachment(self, world: World, server: str) -> None:
        cinder, volume = world.clients.cinder, self.made(world)
        attachment = cinder.reserve(volume, server)
        assert cinder.volume(volume).status == "reserved"
        assert [(a["id"], a["volume_id"]) for a in cinder.attachments(server=server)] == [(attachment, volume)]
        connection = cinder.connect(attachment, self.CONNECTOR, device="/dev/vdb")
        assert connection["driver_volume_type"] == "local" or "data" in connection
        cinder.complete(attachment)
        assert cinder.volume(volume).status == "in-use"
        with pytest.raises(BadRequest):
            cinder.reserve(volume, new())
        cinder.release(attachment)
        cinder.release(attachment)
        assert cinder.volume(volume).status == "available"
        assert cinder.attachments(server=server) == []
        self.gone(world, volume)

    def test_it_belongs_to_the_project(self, world: World) -> None:
        volume = self.made(world)
        assert world.clients.cinder.volume(volume).project_id == world.project
        self.gone(world, volume)

    def test_it_is_found_by_its_metadata(self, world: World) -> None:
        mark = {"kilonova": new()}
        volume = self.made(world, metadata=mark)
        found = world.clients.cinder.find_volume(metadata=mark, project_id=world.project)
        assert found is not None
        assert found.id == volume
        assert world.clients.cinder.find_volume(metadata={"kilonova": new()}) is None
        self.gone(world, volume)

    def test_what_is_not_there(self, world: World) -> None:
        cinder = world.clients.cinder
        with pytest.raises(VolumeNotFound):
            cinder.volume(new())
        with pytest.raises(NotFound):
            cinder.snapshot(new())
        with pytest.raises(NotFound):
            cinder.connect(new(), self.CONNECTOR, device=None)
        cinder.delete_volume(new())
        cinder.release(new())

    def test_volumes_of_a_server_from_making_to_deletion(self, world: World, server: str) -> None:
        cinder = world.clients.cinder
        devices = [disk(source_type="blank", size=1, delete_on_termination=True), disk(destination_type="local")]
        made = volumes.ensure_volumes(cinder, devices, server=server, project_id=world.project)
        again = volumes.ensure_volumes(cinder, devices, server=server, project_id=world.project)
        assert made[0].volume_id == again[0].volume_id
        assert made[0].volume_created
        attached = volumes.ensure_attached(cinder, made, server=server, connector=self.CONNECTOR)
        repeated = volumes.ensure_attached(cinder, made, server=server, connector=self.CONNECTOR)
        assert attached[0].attachment_id == repeated[0].attachment_id
        assert attached[0].connection
        assert attached[1] == devices[1]
        volumes.disconnect(cinder, attached, server=server, host="cmp-1")
        assert cinder.volume(str(made[0].volume_id)).status == "reserved"
        moved = volumes.ensure_attached(cinder, attached, server=server, connector={**self.CONNECTOR, "host": "cmp-2"})
        assert len(cinder.attachments(server=server)) == 1
        volumes.ensure_released(cinder, server, moved)
        assert cinder.attachments(server=server) == []

    def test_a_volume_nobody_wrote_down_is_deleted_too(self, world: World, server: str) -> None:
        cinder = world.clients.cinder
        devices = [disk(source_type="blank", size=1)]
        volumes.ensure_volumes(cinder, devices, server=server, project_id=world.project)
        volumes.ensure_released(cinder, server, devices)
        assert cinder.find_volume(metadata={"kilonova": f"{server}:{devices[0].uuid}"}) is None

    def test_a_users_volume_stays(self, world: World, server: str) -> None:
        cinder, volume = world.clients.cinder, self.made(world)
        devices = [disk(volume_id=volume)]
        attached = volumes.ensure_attached(cinder, devices, server=server, connector=self.CONNECTOR)
        volumes.ensure_released(cinder, server, attached)
        assert cinder.volume(volume).status == "available"
        self.gone(world, volume)

    def test_a_volume_without_a_size_is_refused(self, world: World, server: str) -> None:
        with pytest.raises(BadRequest, match="size"):
            volumes.ensure_volumes(
                world.clients.cinder, [disk(source_type="blank")], server=server, project_id=world.project
            )

    def test_types_and_zones(self, world: World) -> None:
        assert "nova" in world.clients.cinder.zones()
        assert "local" in {kind["name"] for kind in world.clients.cinder.volume_types()}


class TestGlance:
    def test_an_image_and_its_content(self, world: World) -> None:
        glance = world.clients.glance
        image = glance.image(world.image)
        assert (image.status, image.size) == ("active", len(world.content))
        assert b"".join(glance.download(world.image)) == world.content
        assert world.image in {found.id for found in glance.images()}

    def test_unknown_images(self, world: World) -> None:
        for image in (new(), "no-uuid"):
            with pytest.raises(ImageNotFound):
                world.clients.glance.image(image)
        with pytest.raises(ImageNotFound):
            list(world.clients.glance.download(new()))


class TestKeystone:
    def test_a_project(self, world: World) -> None:
        assert world.clients.keystone.project_exists(world.project)
