"""nova-policy: what the policy rules are, and which of them a given user passes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import click

from kilonova.api.policy import Enforcer
from kilonova.api.rules import RULES
from kilonova.base.context import Context
from kilonova.base.errors import ServerNotFound
from kilonova.cmd.config_file import config_file
from kilonova.cmd.manage.operator import Operator, table
from kilonova.cmd.nova_manage import run

TARGETS = ("project_id", "user_id", "quota_class", "availability_zone", "instance_id")


class _Asked(NamedTuple):
    operator: Operator
    context: Context


@click.group("nova-policy", no_args_is_help=True)
@config_file
@click.option("--os-roles", envvar="OS_ROLES", default="", metavar="<roles>", help="Comma separated. [env: OS_ROLES]")
@click.option("--os-user-id", envvar="OS_USER_ID", default="", metavar="<user>", help="[env: OS_USER_ID]")
@click.option(
    "--os-tenant-id",
    "--os-project-id",
    "project_id",
    envvar=["OS_TENANT_ID", "OS_PROJECT_ID"],
    default="",
    metavar="<project>",
    help="[env: OS_TENANT_ID, OS_PROJECT_ID]",
)
@click.option("--debug", is_flag=True, help="Show where an unexpected error came from.")
@click.version_option(package_name="kilonova")
@click.pass_context
def cli(
    context: click.Context, files: tuple[Path, ...], os_roles: str, os_user_id: str, project_id: str, debug: bool
) -> None:
    """Ask the policy."""
    roles = tuple(role.strip() for role in os_roles.split(",") if role.strip())
    caller = Context(user_id=os_user_id, project_id=project_id, roles=roles)
    context.obj = _Asked(Operator(files, debug=debug), caller)


@cli.group("policy", no_args_is_help=True)
def policy() -> None:
    """Policy rules."""


@policy.command("list")
@click.option("--api-name", default="", metavar="<name>", help="Only rules whose names contain this.")
def list_rules(api_name: str) -> int:
    """List the rules with their defaults."""
    click.echo(table(("Rule", "Default"), [(rule.name, rule.check) for rule in RULES if api_name in rule.name]))
    return 0


@policy.command("check")
@click.option("--api-name", default="", metavar="<name>", help="Only rules whose names contain this.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="<key>=<value>",
    help=f"What is acted on, by one of {', '.join(TARGETS)}. May be given more than once; default: the caller's own.",
)
@click.pass_obj
def check(asked: _Asked, api_name: str, targets: tuple[str, ...]) -> int:
    """List the rules that the caller passes."""
    target = _target(asked, targets)
    enforcer = Enforcer(asked.operator.conf)
    passed = [
        rule.name for rule in RULES if api_name in rule.name and enforcer.allows(rule.name, asked.context, target)
    ]
    click.echo("\n".join(passed) or "No rules matched or all rules failed")
    return 0


def _target(asked: _Asked, targets: tuple[str, ...]) -> dict[str, str]:
    if not targets:
        return {"user_id": asked.context.user_id, "project_id": asked.context.project_id}
    found: dict[str, str] = {}
    for given in targets:
        key, equals, value = given.partition("=")
        if not equals or key not in TARGETS:
            raise click.BadParameter(
                f"{given}: it must be one of {', '.join(TARGETS)}, as key=value", param_hint="--target"
            )
        found[key] = value
    server = found.pop("instance_id", None)
    if server is not None:
        mapping = asked.operator.cells.mapping(server)
        if mapping is None:
            raise ServerNotFound(server=server)
        found |= {"project_id": mapping.project_id, "user_id": mapping.user_id}
    return found


def main() -> None:
    """The program."""
    sys.exit(run(cli))


if __name__ == "__main__":
    main()
