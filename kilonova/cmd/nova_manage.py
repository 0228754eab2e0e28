"""nova-manage: what operators do to a cloud from its command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kilonova.base.config import BadConfig
from kilonova.base.errors import Fault
from kilonova.cmd.config_file import config_file
from kilonova.cmd.manage import api, cell_v2, db, flow
from kilonova.cmd.manage.operator import Operator
from kilonova.store import cell_setup

UNEXPECTED = 255


@click.group("nova-manage", no_args_is_help=True)
@config_file
@click.option("--debug", is_flag=True, help="Log debugging messages, and show where an unexpected error came from.")
@click.version_option(package_name="kilonova")
@click.pass_context
def cli(context: click.Context, files: tuple[Path, ...], debug: bool) -> None:
    """Set up and mend a cloud."""
    context.obj = Operator(files, debug=debug)


for verbs in (db.db, db.api_db, cell_v2.cell_v2, api.api, flow.flow):
    cli.add_command(verbs)


def run(cli: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command whose functions answer exit codes; errors are told in one line, without a traceback."""
    try:
        code = cli.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 1
    except (BadConfig, Fault) as error:
        click.echo(f"ERROR: {error}", err=True)
        return 1
    except Exception as error:
        if cell_setup.lacks_schema(error):
            click.echo("ERROR: a database has no tables yet: run api_db sync, and db sync for each cell.", err=True)
            return 1
        if "--debug" in (arguments if arguments is not None else sys.argv):
            raise
        click.echo(f"An unexpected error has occurred ({type(error).__name__}); --debug shows where.", err=True)
        return UNEXPECTED
    return code if isinstance(code, int) else 0


def main() -> None:
    """The program."""
    sys.exit(run(cli))


if __name__ == "__main__":
    main()
