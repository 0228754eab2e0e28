"""Two cells with brokers and databases of their own: lists merge, and one may be away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from tests.services import PostgreSQL
from tests.site.people import User
from tests.site.site import Site, wait_for


@pytest.fixture(scope="module")
def servers(root: User) -> Iterator[dict[str, str]]:
    """Servers by the host that they are on: one in each cell at least."""
    made = {host: root.boot_on(host) for host in ("compute-1", "compute-3")}
    yield made
    root.delete(*made.values())


def test_servers_are_in_both_cells_and_lists_merge(site: Site, admin: Connection, servers: dict[str, str]) -> None:
    listed = {server.id: server.compute_host for server in admin.compute.servers()}
    assert {servers[host]: host for host in servers}.items() <= listed.items()
    paged = [server.id for server in admin.compute.servers(limit=1, sort_key="display_name", sort_dir="asc")]
    assert [one for one in paged if one in servers.values()] == [servers["compute-1"], servers["compute-3"]]
    assert {node.name for node in admin.compute.hypervisors()} >= {"compute-1", "compute-3"}
    hosts = site.manage("cell_v2", "list_hosts")
    for host in ("compute-1", "compute-2", "compute-3"):
        assert host in hosts


def listing(admin: Connection, path: str, version: str) -> list[dict[str, Any]]:
    answer = admin.compute.get(path, microversion=version)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["servers"]
    return found


def test_a_cell_whose_database_is_away_hides_no_other(
    whole: Site, admin: Connection, root: User, servers: dict[str, str], postgresql_server: PostgreSQL
) -> None:
    near, far = servers["compute-1"], servers["compute-3"]
    postgresql_server.stop()
    try:
        found = {server["id"]: server for server in listing(admin, "/servers/detail", "2.69")}
        assert found[near]["status"] == "ACTIVE"
        assert found[far]["status"] == "UNKNOWN"
        assert set(found[far]) == {"id", "status", "tenant_id", "created", "links"}
        brief = {server["id"]: server for server in listing(admin, "/servers", "2.69")}
        assert set(brief[far]) == {"id", "status", "links"}
        assert far not in {server["id"] for server in listing(admin, "/servers/detail", "2.68")}
        shown = admin.compute.get(f"/servers/{far}", microversion="2.69").json()["server"]
        assert (shown["status"], shown["id"]) == ("UNKNOWN", far)
        states = {key: service.status for key, service in whole.services().items()}
        assert states["nova-compute", "compute-3"] == "UNKNOWN"
        root.delete(root.boot_on("compute-1"))
    finally:
        postgresql_server.start()
    wait_for(lambda: not whole.down(), what="the cell is back", seconds=60)
    assert root.settled(far).status == "ACTIVE"
