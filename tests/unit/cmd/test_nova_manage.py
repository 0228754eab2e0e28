"""nova-manage's schema, cell and API verbs: exit codes and words of reference/services.md, section 7."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import click

from kilonova.api import openapi
from kilonova.base.versions import Version
from kilonova.cmd.nova_manage import cli
from kilonova.core.flavor import Flavor
from kilonova.core.host import Node
from kilonova.core.server import Server
from kilonova.store import instance_mappings, nodes, servers, services
from kilonova.store.cells import CELL0_UUID, InstanceMapping
from kilonova.store.session import Database
from tests.unit.cmd.conftest import PASSWORD, Site

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def _node(host: str) -> Node:
    return Node(uuid=str(uuid.uuid4()), name=host, host=host, hypervisor_type="fake")


def _add_nodes(site: Site, *hosts: str, cell: str = "") -> None:
    for host in hosts:
        site.cells.database(cell or site.cell).write(lambda tx, host=host: nodes.upsert(tx, _node(host)))


def _add_server(site: Site, *, cell: str | None, host: str | None = None) -> str:
    server = str(uuid.uuid4())
    mapping = InstanceMapping(server=server, project_id="p", user_id="u", created_at=NOW, cell=cell)
    site.cells.api.write(lambda tx: instance_mappings.insert(tx, mapping))
    if cell is not None:
        flavor = Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=1)
        record = Server(uuid=server, project_id="p", user_id="u", name="n", flavor=flavor, created_at=NOW, host=host)
        site.cells.database(cell).write(lambda tx: servers.insert(tx, record))
    return server


def test_without_arguments_help_and_2(site: Site) -> None:
    for words in ([], ["db"], ["api_db"], ["cell_v2"], ["api"], ["flow"]):
        ran = site.manage(*words)
        assert ran.code == 2, words
        assert "Usage:" in ran.out + ran.err


def test_options_are_those_of_the_reference(reference: Path) -> None:
    known: list[dict[str, Any]] = json.loads((reference / "data" / "nova_manage.json").read_text())
    checked = 0
    for command in known:
        group = cli.commands.get(command["category"])
        ours = group.commands.get(command["command"]) if isinstance(group, click.Group) else None
        if ours is None:
            continue
        words = {name for parameter in ours.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {flag for option in command["options"] for flag in option["flags"]} <= words, command["command"]
        checked += 1
    assert checked >= 14


def test_schemas(fresh: Site) -> None:
    assert fresh.manage("api_db", "version").out == "none: the schema has not been made\n"
    assert fresh.manage("api_db", "sync").code == 0
    assert "cell0 mapping not found" in fresh.manage("db", "sync").out
    newest = fresh.manage("db", "version").out.strip()
    assert fresh.manage("db", "sync", newest).code == 0
    unknown = fresh.manage("db", "sync", "457")
    assert unknown.code == 1
    assert newest in unknown.out


def test_cell0_that_cannot_be_reached(fresh: Site) -> None:
    fresh.manage("api_db", "sync")
    fresh.manage("cell_v2", "map_cell0", "--database_connection", "sqlite:////nowhere/at/all.db")
    ran = fresh.manage("db", "sync")
    assert ran.code == 1
    assert "Could not access cell0" in ran.out
    assert fresh.manage("db", "sync", "--local_cell").code == 0


def test_what_is_not_configured_is_said(tmp_path: Path, fresh: Site) -> None:
    fresh.conf.write_text("[DEFAULT]\n")
    for words in ("api_db sync", "db sync --local_cell", "cell_v2 list_cells"):
        ran = fresh.manage(*words.split())
        assert (ran.code, "connection is not set" in ran.err) == (1, True), words
    fresh.conf = tmp_path / "missing.conf"
    assert "missing.conf" in fresh.manage("db", "version").err


def test_a_database_without_tables_is_said_so(fresh: Site) -> None:
    ran = fresh.manage("cell_v2", "list_cells")
    assert ran.code == 1
    assert "api_db sync" in ran.err


def test_simple_setup_and_again(site: Site) -> None:
    rows = site.manage("cell_v2", "list_cells").rows()
    assert [row[1] == CELL0_UUID for row in rows] == [False, True]
    again = site.manage("cell_v2", "map_cell0")
    assert (again.code, again.out) == (0, "Cell0 is already setup.\n")
    assert site.manage("cell_v2", "simple_cell_setup").code == 0
    assert site.manage("cell_v2", "list_cells").rows() == rows
    assert Database(f"sqlite:///{site.folder}/cell1_cell0.db", schema="cell").version() is not None


def test_simple_setup_with_a_bad_broker(fresh: Site) -> None:
    fresh.manage("api_db", "sync")
    ran = fresh.manage("cell_v2", "simple_cell_setup", "--transport-url", "not a url")
    assert ran.code == 1
    assert "Invalid transport URL" in ran.out


def test_passwords_are_masked_unless_asked_for(site: Site) -> None:
    assert PASSWORD not in site.manage("cell_v2", "list_cells").out
    assert PASSWORD in site.manage("cell_v2", "list_cells", "--verbose").out


def test_create_cell(site: Site) -> None:
    assert site.manage("cell_v2", "create_cell", "--name", "twin").code == 2
    assert site.manage("cell_v2", "create_cell", "--transport-url", "nonsense").code == 1
    assert site.manage("cell_v2", "create_cell", "--database_connection", "nonsense").code == 1
    uuid_ = site.add_cell("c2")
    same_database = ["--database_connection", f"sqlite:///{site.folder}/c2.db", "--transport-url", "rabbit://x/"]
    assert site.manage("cell_v2", "create_cell", *same_database).code == 2
    rows = {row[1]: row for row in site.manage("cell_v2", "list_cells").rows()}
    assert rows[uuid_][0] == "c2"
    assert rows[uuid_][4] == "False"


def test_update_cell(site: Site) -> None:
    uuid_ = site.add_cell("c2")

    def update(*arguments: str, cell: str = uuid_) -> int:
        return site.manage("cell_v2", "update_cell", "--cell_uuid", cell, *arguments).code

    assert update(cell="unknown") == 1
    assert update("--transport-url", "nonsense") == 2
    assert update("--database_connection", site.cell_url) == 3
    assert update("--enable", "--disable") == 4
    assert update("--disable", cell=CELL0_UUID) == 5
    assert update("--name", "new", "--disable") == 0
    found = site.cells.get(uuid_)
    assert (found.name, found.disabled, found.database_url) == ("new", True, f"sqlite:///{site.folder}/c2.db")
    assert update("--enable") == 0
    assert not site.cells.get(uuid_).disabled
    site.write_conf(transport="rabbit://moved/")
    assert update(cell=site.cell) == 0
    assert site.cells.get(site.cell).transport_url == "rabbit://moved/"


def test_discover_hosts(site: Site) -> None:
    assert site.manage("cell_v2", "discover_hosts", "--strict").code == 1
    _add_nodes(site, "h1", "h2")
    said = site.manage("cell_v2", "discover_hosts", "--strict", "--verbose")
    assert said.code == 0
    assert "Creating host mapping for compute host 'h1'" in said.out
    assert site.manage("cell_v2", "discover_hosts", "--strict").code == 1
    assert site.manage("cell_v2", "discover_hosts").code == 0
    assert site.manage("cell_v2", "discover_hosts", "--cell_uuid", "unknown").code == 1
    rows = site.manage("cell_v2", "list_hosts").rows()
    assert [row[1:] for row in rows] == [[site.cell, "h1"], [site.cell, "h2"]]
    assert all(node.mapped for node in site.cells.database(site.cell).query(nodes.listing))


def test_discover_hosts_by_service(site: Site) -> None:
    site.cells.database(site.cell).write(lambda tx: services.ensure(tx, "nova-compute", "bare", 80))
    assert site.manage("cell_v2", "discover_hosts", "--strict").code == 1
    assert site.manage("cell_v2", "discover_hosts", "--strict", "--by-service").code == 0
    assert site.cells.host_mapping("bare") == site.cell


def test_a_host_in_two_cells_is_a_duplicate(site: Site) -> None:
    other = site.add_cell("c2")
    _add_nodes(site, "h1")
    site.manage("cell_v2", "discover_hosts")
    _add_nodes(site, "h1", cell=other)
    ran = site.manage("cell_v2", "discover_hosts")
    assert ran.code == 2
    assert "Duplicate host mapping" in ran.out
    assert site.cells.host_mapping("h1") == site.cell


def test_list_hosts_of_one_cell(site: Site) -> None:
    other = site.add_cell("c2")
    _add_nodes(site, "h1")
    _add_nodes(site, "h2", cell=other)
    site.manage("cell_v2", "discover_hosts")
    rows = site.manage("cell_v2", "list_hosts", "--cell_uuid", other).rows()
    assert rows == [["c2", other, "h2"]]
    assert site.manage("cell_v2", "list_hosts", "--cell_uuid", "unknown").code == 1


def test_delete_host(site: Site) -> None:
    other = site.add_cell("c2")
    _add_nodes(site, "h1")
    site.manage("cell_v2", "discover_hosts")
    server = _add_server(site, cell=site.cell, host="h1")

    def delete(host: str, cell: str) -> int:
        return site.manage("cell_v2", "delete_host", "--cell_uuid", cell, "--host", host).code

    assert delete("h1", "unknown") == 1
    assert delete("nobody", site.cell) == 2
    assert delete("h1", other) == 3
    assert delete("h1", site.cell) == 4
    site.cells.database(site.cell).write(lambda tx: servers.mark_deleted(tx, server, NOW))
    assert delete("h1", site.cell) == 0
    assert site.cells.host_mapping("h1") is None
    assert site.manage("cell_v2", "discover_hosts", "--strict").code == 0


def test_delete_cell(site: Site) -> None:
    _add_nodes(site, "h1")
    site.manage("cell_v2", "discover_hosts")
    cell = site.cell
    server = _add_server(site, cell=cell)

    def delete(*arguments: str, uuid_: str = cell) -> int:
        return site.manage("cell_v2", "delete_cell", "--cell_uuid", uuid_, *arguments).code

    assert delete(uuid_="unknown") == 1
    assert delete() == 2
    assert delete("--force") == 3
    site.cells.database(cell).write(lambda tx: servers.mark_deleted(tx, server, NOW))
    assert delete("--force") == 4
    site.cells.api.write(lambda tx: instance_mappings.remove(tx, server))
    assert delete("--force") == 0
    assert [m.uuid for m in site.cells.all(disabled=True)] == [CELL0_UUID]


def test_verify_instance(site: Site) -> None:
    def verify(server: str, *arguments: str) -> tuple[int, str]:
        ran = site.manage("cell_v2", "verify_instance", "--uuid", server, *arguments)
        return ran.code, ran.out

    server = _add_server(site, cell=site.cell)
    assert verify("unknown")[0] == 1
    assert verify(_add_server(site, cell=None))[0] == 2
    code, said = verify(server)
    assert (code, site.cell in said) == (0, True)
    assert verify(server, "--quiet") == (0, "")
    site.cells.database(site.cell).write(lambda tx: servers.mark_deleted(tx, server, NOW))
    assert verify(server)[0] == 3
    site.cells.database(site.cell).write(lambda tx: servers.hard_delete(tx, server))
    assert verify(server)[0] == 4


def test_api_verbs(fresh: Site) -> None:
    listed = fresh.manage("api", "list")
    assert listed.code == 0
    assert len(listed.rows()) == len(openapi.listing()) > 20
    printed = fresh.manage("api", "openapi", "--microversion", "2.96")
    assert json.loads(printed.out) == openapi.document(Version(2, 96))
    for bad in ("2.999", "1.0", "two", ""):
        assert fresh.manage("api", "openapi", "--microversion", bad).code == 2
