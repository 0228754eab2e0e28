"""``nova-manage cell_v2``: cells, and which hosts and servers are in them. Exit codes as scripts know them."""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Callable

import click
import msgspec

from kilonova.base import log
from kilonova.base.errors import NotFound, ServerNotFound
from kilonova.cmd.manage.discovery import discover
from kilonova.cmd.manage.operator import Operator, pass_operator, table
from kilonova.store import cell_setup, nodes, servers
from kilonova.store.cells import CELL0_UUID, CellMapping
from kilonova.store.session import Tx

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")

Option = Callable[[Callable[..., int]], Callable[..., int]]
transport_url_option: Option = click.option("--transport-url", metavar="<transport_url>", help="The cell's broker.")
database_option: Option = click.option("--database_connection", metavar="<url>", help="The cell's database.")
cell_option: Option = click.option("--cell_uuid", required=True, metavar="<cell_uuid>")
verbose_option: Option = click.option("--verbose", is_flag=True, help="Tell more.")


@click.group("cell_v2", no_args_is_help=True)
def cell_v2() -> None:
    """Cells, their hosts and their servers."""


@cell_v2.command("simple_cell_setup")
@transport_url_option
@pass_operator
def simple_cell_setup(operator: Operator, transport_url: str | None) -> int:
    """Map cell0 and one cell of what nova.conf says, and the hosts that are there."""
    transport = _transport_url(operator, transport_url)
    database = _database_url(operator, None)
    if transport is None or database is None:
        return 1
    _map_cell0(operator, None)
    if not _twin(operator, transport, database):
        _insert(operator, CellMapping(uuid=str(uuids.uuid4()), name="", transport_url=transport, database_url=database))
    discover(operator, cell_uuid=None, by_service=False, say=lambda text: None)
    click.echo("Cell setup complete: hosts that join from now on are mapped when they do.")
    return 0


@cell_v2.command("map_cell0")
@database_option
@pass_operator
def map_cell0(operator: Operator, database_connection: str | None) -> int:
    """Enter cell0, where servers are shown that found no host."""
    if not _map_cell0(operator, database_connection):
        click.echo("Cell0 is already setup.")
    return 0


def _map_cell0(operator: Operator, url: str | None) -> bool:
    if any(mapping.uuid == CELL0_UUID for mapping in operator.cells.all(disabled=True)):
        return False
    database = url or cell_setup.cell0_url(operator.cell_url or "")
    _insert(operator, CellMapping(uuid=CELL0_UUID, name="cell0", transport_url="none:///", database_url=database))
    return True


def _insert(operator: Operator, cell: CellMapping) -> None:
    operator.cells.add(cell)


@cell_v2.command("create_cell")
@click.option("--name", default="", metavar="<name>")
@database_option
@transport_url_option
@verbose_option
@click.option("--disabled", is_flag=True, help="It gets no new servers.")
@pass_operator
def create_cell(
    operator: Operator,
    name: str,
    database_connection: str | None,
    transport_url: str | None,
    *,
    verbose: bool,
    disabled: bool,
) -> int:
    """Enter a cell; what is not given is taken from nova.conf."""
    transport = _transport_url(operator, transport_url)
    database = _database_url(operator, database_connection)
    if transport is None or database is None:
        return 1
    if _twin(operator, transport, database):
        click.echo("Cell with the specified transport_url and/or database_connection combination already exists")
        return 2
    made = CellMapping(
        uuid=str(uuids.uuid4()), name=name, transport_url=transport, database_url=database, disabled=disabled
    )
    _insert(operator, made)
    if verbose:
        click.echo(made.uuid)
    return 0


def _transport_url(operator: Operator, given: str | None) -> str | None:
    url = given or operator.transport_url
    if url is None:
        click.echo("Must specify --transport-url if [DEFAULT]/transport_url is not set in the configuration file.")
    elif not _URL.fullmatch(url):
        click.echo("Invalid transport URL: it must be of the form rabbit://user:password@host:port/.")
        url = None
    return url


def _database_url(operator: Operator, given: str | None) -> str | None:
    url = given or operator.cell_url
    if url is None:
        click.echo("Must specify --database_connection if [database]/connection is not set in the configuration file.")
    elif not _URL.fullmatch(url):
        click.echo("Invalid database URL: it must be of the form mysql+pymysql://user:password@host/name.")
        url = None
    return url


def _twin(operator: Operator, transport: str, database: str, *, besides: str = "") -> CellMapping | None:
    """Another cell that has one of these URLs: two cells never share a broker or a database."""
    for mapping in operator.cells.all(disabled=True):
        shares = mapping.database_url == database or (mapping.transport_url == transport and transport != "none:///")
        if mapping.uuid != besides and shares:
            return mapping
    return None


@cell_v2.command("update_cell")
@cell_option
@click.option("--name", metavar="<name>")
@transport_url_option
@database_option
@click.option("--disable", is_flag=True, help="It gets no new servers.")
@click.option("--enable", is_flag=True, help="It gets new servers again.")
@pass_operator
def update_cell(
    operator: Operator,
    cell_uuid: str,
    name: str | None,
    transport_url: str | None,
    database_connection: str | None,
    *,
    disable: bool,
    enable: bool,
) -> int:
    """Change a cell's record. Where nothing is given, its URLs become those of nova.conf."""
    found = _cell(operator, cell_uuid)
    if found is None:
        return 1
    nothing = not (name or transport_url or database_connection or disable or enable)
    transport = transport_url or (operator.transport_url if nothing else None) or found.transport_url
    database = database_connection or (operator.cell_url if nothing else None) or found.database_url
    if not (_URL.fullmatch(transport) and _URL.fullmatch(database)):
        click.echo("Unable to update CellMapping: a URL must be of the form scheme://user:password@host/path.")
        return 2
    twin = _twin(operator, transport, database, besides=cell_uuid)
    if twin is not None and (transport, database) != (found.transport_url, found.database_url):
        click.echo(
            "Cell with the specified transport_url and/or database_connection combination already exists: "
            f"{twin.name or twin.uuid}"
        )
        return 3
    if disable and enable:
        click.echo("Cell cannot be disabled and enabled at the same time.")
        return 4
    if disable and cell_uuid == CELL0_UUID:
        click.echo("Cell0 cannot be disabled.")
        return 5
    changed = msgspec.structs.replace(
        found,
        name=name or found.name,
        transport_url=transport,
        database_url=database,
        disabled=(found.disabled or disable) and not enable,
    )
    operator.cells.update(changed)
    return 0


def _cell(operator: Operator, uuid: str) -> CellMapping | None:
    try:
        return operator.cells.get(uuid)
    except NotFound:
        click.echo(f"Cell with uuid {uuid} was not found.")
        return None


@cell_v2.command("list_cells")
@click.option("--verbose", is_flag=True, help="Show passwords in URLs.")
@pass_operator
def list_cells(operator: Operator, verbose: bool) -> int:
    """List all cells."""
    show: Callable[[str], str] = str if verbose else log.masked
    rows = [
        (mapping.name, mapping.uuid, show(mapping.transport_url), show(mapping.database_url), mapping.disabled)
        for mapping in sorted(operator.cells.all(disabled=True), key=lambda mapping: mapping.name)
    ]
    click.echo(table(("Name", "UUID", "Transport URL", "Database Connection", "Disabled"), rows))
    return 0


@cell_v2.command("delete_cell")
@cell_option
@click.option("--force", is_flag=True, help="Also when hosts are mapped to it.")
@pass_operator
def delete_cell(operator: Operator, cell_uuid: str, force: bool) -> int:
    """Remove an empty cell's record."""
    if _cell(operator, cell_uuid) is None:
        return 1
    hosts = operator.cells.host_mappings(cell_uuid)
    if hosts and not force:
        click.echo(f"There are existing hosts mapped to cell with uuid {cell_uuid}.")
        return 2
    if operator.api.query(lambda tx: cell_setup.has_mappings(tx, cell_uuid)):
        if operator.cells.ask(cell_uuid, cell_setup.has_servers):
            click.echo(f"There are existing instances mapped to cell with uuid {cell_uuid}.")
            return 3
        click.echo(
            f"There are instance mappings to cell with uuid {cell_uuid}, but all instances have been deleted in the "
            "cell. They go when the service purges what is deleted."
        )
        return 4
    for host in hosts:
        _unmap(operator, host, cell_uuid)
    operator.cells.remove(cell_uuid)
    return 0


@cell_v2.command("discover_hosts")
@click.option("--cell_uuid", metavar="<cell_uuid>", help="Only in this cell.")
@verbose_option
@click.option("--strict", is_flag=True, help="Exit with 1 when none is found.")
@click.option("--by-service", is_flag=True, help="Look for services instead of nodes.")
@pass_operator
def discover_hosts(operator: Operator, cell_uuid: str | None, *, verbose: bool, strict: bool, by_service: bool) -> int:
    """Map hosts that are in a cell's database and not mapped yet."""
    if cell_uuid is not None and _cell(operator, cell_uuid) is None:
        return 1
    say: Callable[[str], None] = click.echo if verbose else lambda text: None
    found = discover(operator, cell_uuid=cell_uuid, by_service=by_service, say=say)
    if found.duplicate:
        click.echo(
            f"ERROR: Duplicate host mapping was encountered: {found.duplicate}. This command should be run once after "
            "all compute hosts have been deployed and should not be run in parallel. When run in parallel, the "
            "commands will collide with each other trying to map the same hosts in the database at the same time."
        )
        return 2
    if found.silent:
        click.echo(f"ERROR: no answer came from {', '.join(found.silent)}.")
        return 1
    return 1 if strict and not found.hosts else 0


@cell_v2.command("list_hosts")
@click.option("--cell_uuid", metavar="<cell_uuid>", help="Only of this cell.")
@pass_operator
def list_hosts(operator: Operator, cell_uuid: str | None) -> int:
    """List the hosts that are mapped."""
    if cell_uuid is not None and _cell(operator, cell_uuid) is None:
        return 1
    names = {mapping.uuid: mapping.name for mapping in operator.cells.all(disabled=True)}
    rows = [(names.get(cell, ""), cell, host) for host, cell in operator.cells.host_mappings(cell_uuid).items()]
    click.echo(table(("Cell Name", "Cell UUID", "Hostname"), sorted(rows)))
    return 0


@cell_v2.command("delete_host")
@cell_option
@click.option("--host", required=True, metavar="<host>")
@pass_operator
def delete_host(operator: Operator, cell_uuid: str, host: str) -> int:
    """Forget in which cell a host is, that has no servers."""
    if _cell(operator, cell_uuid) is None:
        return 1
    cell = operator.cells.host_mapping(host)
    if cell is None:
        click.echo(f"The host {host} was not found.")
        return 2
    if cell != cell_uuid:
        click.echo(f"The host {host} was not found in the cell {cell_uuid}.")
        return 3
    if operator.cells.ask(cell, lambda tx: servers.on_host(tx, host)):
        click.echo(f"There are instances on the host {host}.")
        return 4
    _unmap(operator, host, cell)
    return 0


def _unmap(operator: Operator, host: str, cell: str) -> None:
    operator.cells.unmap_host(host)

    def unmap(tx: Tx) -> None:
        nodes.set_mapped(tx, [node.uuid for node in nodes.by_host(tx, host)], mapped=False)

    operator.cells.database(cell).write(unmap)


@cell_v2.command("verify_instance")
@click.option("--uuid", required=True, metavar="<instance_uuid>")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@pass_operator
def verify_instance(operator: Operator, uuid: str, quiet: bool) -> int:
    """Tell whether, and to which cell, a server is mapped."""
    code, text = _verified(operator, uuid)
    if not quiet:
        click.echo(text)
    return code


def _verified(operator: Operator, uuid: str) -> tuple[int, str]:
    mapping = operator.cells.mapping(uuid)
    if mapping is None:
        return 1, f"Instance {uuid} is not mapped to a cell (upgrade is incomplete)"
    if mapping.cell is None:
        return 2, f"Instance {uuid} is not mapped to a cell: it has no host yet"
    cell = operator.cells.get(mapping.cell)
    where = f"in cell: {cell.name} ({cell.uuid})"

    def look(tx: Tx) -> bool | None:
        """True: living; False: deleted; None: not here."""
        try:
            return servers.get(tx, uuid, deleted=True).deleted_at is None
        except ServerNotFound:
            return None

    living = operator.cells.ask(cell.uuid, look)
    if living is None:
        return 4, f"The instance with uuid {uuid} has been archived. However its mapping remains."
    if not living:
        return 3, f"The instance with uuid {uuid} has been deleted. However its mapping remains, {where}"
    return 0, f"Instance {uuid} is {where}"
