"""The clients against the real services."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.base.errors import NeighbourUnavailable
from kilonova.clients.neighbours import Options, connect
from kilonova.clients.options import (
    CinderOptions,
    GlanceOptions,
    KeystoneOptions,
    NeutronOptions,
    PlacementOptions,
    ServiceUserOptions,
)
from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.ports import Ports
from kilonova.embedded.wire import Wire, log_in
from tests.contracts.neighbours_suite import *  # noqa: F403
from tests.contracts.neighbours_suite import World

OFFSET = 4700


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    neighbours = Neighbours(tmp_path_factory.mktemp("clients"), ports=Ports.moved(OFFSET))
    neighbours.start()
    try:
        neighbours.bootstrap()
        yield neighbours
    finally:
        neighbours.stop()


def options_for(auth_url: str, password: str) -> Options:
    who = ServiceUserOptions(
        auth_url=auth_url,
        username="nova",
        password=password,
        project_name="service",
        user_domain_name="Default",
        project_domain_name="Default",
    )
    return Options(
        who, PlacementOptions(), NeutronOptions(facts_seconds=0), CinderOptions(), GlanceOptions(), KeystoneOptions()
    )


@pytest.fixture(scope="module")
def world(cloud: Neighbours, tmp_path_factory: pytest.TempPathFactory) -> World:
    site = cloud.site
    token = log_in(site.auth_url, "demo", site.secrets["demo"], "demo")
    admin = log_in(site.auth_url, "admin", site.secrets["admin"], "admin")
    url = site.ports.url("neutron", "/v2.0")
    with Wire("neutron", url, token) as wire:
        private = wire.get("/networks?name=private")["networks"][0]
    with Wire("neutron", url, admin) as wire:
        other = wire.post("/networks", {"network": {"name": "foreign"}})["network"]

    def make_port() -> str:
        with Wire("neutron", url, token) as wire:
            return str(wire.post("/ports", {"port": {"network_id": private["id"]}})["port"]["id"])

    content = b"kernel" * 1000
    path = tmp_path_factory.mktemp("image") / "suite.raw"
    path.write_bytes(content)
    from kilonova.embedded.bootstrap import ensure_image

    return World(
        clients=connect(options_for(site.auth_url, site.secrets["nova"])),
        project=private["project_id"],
        network=private["id"],
        other_network=other["id"],
        make_port=make_port,
        image=ensure_image(site, "suite", Path(path), "raw", {}),
        content=content,
    )


def test_a_wrong_password_is_named(cloud: Neighbours) -> None:
    clients = connect(options_for(cloud.site.auth_url, "wrong"))
    with pytest.raises(NeighbourUnavailable, match=r"keystone service.*refuses the login"):
        clients.placement.allocations(str(uuid.uuid4()))


def test_many_threads_share_a_client(world: World) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: world.clients.placement.allocations(str(uuid.uuid4())), range(40)))
    assert all(held["allocations"] == {} for held in found)
