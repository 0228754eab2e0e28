"""``nova-manage api``: the Compute API described from its own declarations."""

from __future__ import annotations

import json

import click

from kilonova.base.versions import MAX, MIN, Version
from kilonova.cmd.manage.operator import table


@click.group("api", no_args_is_help=True)
def api() -> None:
    """The Compute API as it is declared."""


@api.command("list")
def list_operations() -> int:
    """List every operation with its microversions, policy rule and handler."""
    from kilonova.api.application import load_operations
    from kilonova.api.openapi import listing

    rows = [
        (row.method, row.path, row.action, f"{row.since} - {row.until}", row.rule, row.success, row.handler)
        for row in listing(load_operations())
    ]
    click.echo(table(("Method", "Path", "Action", "Microversions", "Policy", "Success", "Handler"), rows))
    return 0


@api.command("openapi")
@click.option("--microversion", default=str(MAX), show_default=True, help="Of which microversion.")
def openapi(microversion: str) -> int:
    """Print the OpenAPI document of a microversion."""
    from kilonova.api.application import load_operations
    from kilonova.api.openapi import document

    try:
        version = MAX if microversion == "latest" else Version.parse(microversion)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--microversion") from None
    if not MIN <= version <= MAX:
        raise click.BadParameter(f"the API has {MIN} to {MAX}", param_hint="--microversion")
    click.echo(json.dumps(document(version, table=load_operations()), indent=2))
    return 0
