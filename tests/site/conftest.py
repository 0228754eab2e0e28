"""One site of two cells for all tests of this folder: MariaDB holds all but the second cell, which PostgreSQL holds.

Programs: nova-api, nova-metadata-api, nova-scheduler, two super conductors, two conductors of cell1 and one of cell2,
two hosts in cell1 and one in cell2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.ports import Ports
from tests.services import MariaDB, PostgreSQL, RabbitMQ, need_neighbours
from tests.site.people import User
from tests.site.site import Site, wait_for

OFFSET = int(os.environ.get("KILONOVA_SITE_OFFSET", "2000"))


@pytest.fixture(scope="session")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    need_neighbours()
    folder = tmp_path_factory.mktemp("neighbours")
    made = Neighbours(folder / "state", ports=Ports.moved(OFFSET))
    made.start()
    try:
        made.bootstrap()
        image = folder / "placeholder.raw"
        image.write_bytes(bytes(1 << 20))
        made.ensure_image("placeholder", image, "raw")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitMQ,
    mariadb_server: MariaDB,
    postgresql_server: PostgreSQL,
    neighbours: Neighbours,
) -> Iterator[Site]:
    databases = dict.fromkeys(("nova_api", "nova_cell0", "nova_cell1"), mariadb_server)
    made = Site(
        tmp_path_factory.mktemp("site"),
        neighbours,
        rabbitmq_server,
        {**databases, "nova_cell2": postgresql_server},
        name="main",
    )
    made.set_up()
    made.add("api", "nova-api", "controller.conf")
    made.add("metadata", "nova-metadata-api", "controller.conf")
    made.add("scheduler", "nova-scheduler", "scheduler.conf")
    for name in ("super-a", "super-b"):
        made.add(name, "nova-conductor", "controller.conf", "super.conf")
    for name in ("cell1-a", "cell1-b", "cell2-a"):
        made.add(name, "nova-conductor", "controller.conf", f"{name.partition('-')[0]}.conf")
    for name, cell in (("compute-1", "cell1"), ("compute-2", "cell1"), ("compute-3", "cell2")):
        made.add(name, "nova-compute", f"compute-{cell}.conf")
    try:
        for program in made.programs.values():
            program.start()
        made.await_up(seconds=120)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def admin(site: Site) -> Connection:
    """The administrator, by openstacksdk; the flavor m1.nano is there."""
    connection = site.connect("kilonova")
    if connection.compute.find_flavor("m1.nano") is None:
        connection.compute.create_flavor(name="m1.nano", ram=128, vcpus=1, disk=1)
    identity: Any = connection.identity
    project = identity.find_project("demo")
    connection.compute.update_quota_set(project, instances=-1, cores=-1, ram=-1, force=True)
    return connection


@pytest.fixture(scope="session")
def demo(site: Site, admin: Connection) -> User:
    """A plain user."""
    return User(site.connect(), admin)


@pytest.fixture(scope="session")
def root(site: Site, admin: Connection) -> User:
    """The administrator, as one who boots servers."""
    return User(admin, admin)


@pytest.fixture
def whole(site: Site) -> Iterator[Site]:
    """The site, to be hurt by a test: what the test has ended runs again after it."""
    yield site
    for program in site.programs.values():
        if not program.runs:
            program.start()
    wait_for(lambda: not site.down(), what="all services are up again", seconds=60)
