"""The least site: PostgreSQL for all, one virtual host, one nova-conductor, set up by ``simple_cell_setup``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kilonova.embedded.neighbours import Neighbours
from tests.services import PostgreSQL, RabbitMQ
from tests.site.people import User
from tests.site.site import Site


@pytest.fixture(scope="module")
def single(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitMQ,
    postgresql_server: PostgreSQL,
    neighbours: Neighbours,
) -> Iterator[Site]:
    databases = dict.fromkeys(("nova_api", "nova", "nova_cell0"), postgresql_server)
    made = Site(tmp_path_factory.mktemp("single"), neighbours, rabbitmq_server, databases, name="single")
    rabbitmq_server.create_vhosts("single-nova")
    made.rewrite("controller.conf", lambda text: re.sub(r"single_nova_cell0\b", "single_nova", text))
    made.rewrite("compute.conf", lambda text: re.sub(r"rabbit://\S*", rabbitmq_server.vhost_url("single-nova"), text))
    made.manage("api_db", "sync")
    made.manage("cell_v2", "map_cell0", "--database_connection", made.urls["nova_cell0"])
    made.manage("db", "sync")
    made.port = neighbours.ports.nova + 10
    made.add("single-api", "nova-api", "controller.conf", osapi_compute_listen_port=made.port)
    made.add("single-scheduler", "nova-scheduler", "scheduler.conf")
    made.add("single-conductor", "nova-conductor", "controller.conf")
    made.add("single-host", "nova-compute", "compute.conf")
    made.manage("cell_v2", "simple_cell_setup")
    try:
        for program in made.programs.values():
            program.start()
        made.await_up(90)
        yield made
    finally:
        made.stop()


def test_the_host_is_in_the_cell_and_takes_servers(single: Site) -> None:
    assert "single-host" in single.manage("cell_v2", "list_hosts")
    assert single.manage("cell_v2", "discover_hosts", "--verbose")
    admin = single.connect("kilonova")
    admin.compute.create_flavor(name="m1.nano", ram=128, vcpus=1, disk=1)
    root = User(admin, admin)
    server = root.create("alone", networks="none")
    assert root.active(server).compute_host == "single-host"
    admin.compute.stop_server(server)
    assert root.settled(server).status == "SHUTOFF"
    root.delete(server)


def test_its_cell_may_not_be_entered_twice(single: Site) -> None:
    before = single.manage("cell_v2", "list_cells")
    single.manage("cell_v2", "simple_cell_setup")
    assert single.manage("cell_v2", "list_cells") == before
