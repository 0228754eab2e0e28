"""``nova-manage db`` and ``nova-manage api_db``: the schemas of the databases."""

from __future__ import annotations

import click

from kilonova.base.errors import Fault
from kilonova.cmd.manage.operator import Operator, pass_operator
from kilonova.store import migration
from kilonova.store.cells import CELL0_UUID
from kilonova.store.session import Database, Schema

_NO_CELL0 = """ERROR: Could not access cell0.
Has the API database been created, and has "nova-manage api_db sync" been run?
Has the database of cell0 been created, and has "nova-manage cell_v2 map_cell0" been run?
Is [api_database] connection set in nova.conf, and is the URL of cell0 correct?
Error: {error}"""


@click.group("db", no_args_is_help=True)
def db() -> None:
    """The databases of cells."""


@db.command("sync")
@click.argument("version", required=False)
@click.option("--local_cell", is_flag=True, help="Only the database of [database] connection, not cell0's.")
@pass_operator
def sync(operator: Operator, version: str | None, local_cell: bool) -> int:
    """Bring the database of [database] connection, and that of cell0, to the newest schema."""
    if _unknown("cell", version):
        return 1
    if not local_cell:
        try:
            mappings = {mapping.uuid: mapping for mapping in operator.cells.all(disabled=True)}
            if CELL0_UUID in mappings:
                operator.cells.database(CELL0_UUID).sync()
            else:
                click.echo("WARNING: cell0 mapping not found - not syncing cell0.")
        except Exception as error:
            click.echo(_NO_CELL0.format(error=_said(error)))
            return 1
    operator.cell_database().sync()
    return 0


@db.command("version")
@pass_operator
def version(operator: Operator) -> int:
    """Print the version of the schema of [database] connection."""
    return _print_version(operator.cell_database())


@click.group("api_db", no_args_is_help=True)
def api_db() -> None:
    """The API database."""


@api_db.command("sync")
@click.argument("version", required=False)
@pass_operator
def sync_api(operator: Operator, version: str | None) -> int:
    """Bring the API database to the newest schema."""
    if _unknown("api", version):
        return 1
    operator.api.sync()
    return 0


@api_db.command("version")
@pass_operator
def version_api(operator: Operator) -> int:
    """Print the version of the schema of the API database."""
    return _print_version(operator.api)


def _print_version(database: Database) -> int:
    click.echo(database.version() or "none: the schema has not been made")
    return 0


def _unknown(schema: Schema, version: str | None) -> bool:
    """Only the newest version can be asked for: schemas go forward alone, and all the way."""
    newest = migration.declared(schema)[1]
    if version in (None, newest, "head"):
        return False
    click.echo(f"ERROR: version {version} cannot be synced to; the newest, and only one, is {newest}.")
    return True


def _said(error: Exception) -> str:
    """Foreign errors may quote URLs with passwords."""
    return error.message if isinstance(error, Fault) else type(error).__name__
