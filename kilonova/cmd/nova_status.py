"""nova-status: looks whether a cloud is ready to run or to be upgraded; a check says what is wrong and what to do."""

from __future__ import annotations

import enum
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import click
from oslo_config import cfg

from kilonova.base import config
from kilonova.base.config import BadConfig
from kilonova.base.engine import utcnow
from kilonova.base.errors import Fault
from kilonova.clients.neighbours import connect, read_options
from kilonova.clients.options import ServiceUserOptions
from kilonova.cmd.config_file import config_file
from kilonova.cmd.manage.operator import Operator, pass_operator
from kilonova.cmd.nova_manage import run
from kilonova.contracts import GENERATION
from kilonova.core.host import Service
from kilonova.core.options import HeartbeatOptions
from kilonova.store import cell_setup, migration, nodes, services
from kilonova.store.cells import CELL0_UUID
from kilonova.store.session import Database

WIDTH = 64


class Result(enum.IntEnum):
    """How a check came out; the worst is the exit code."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


class Finding(NamedTuple):
    """A result with its reason."""

    result: Result
    details: str = ""


FINE = Finding(Result.SUCCESS)


def check_cells(operator: Operator) -> Finding:
    """cell0 and a cell are mapped, and every host is."""
    mappings = operator.cells.all(disabled=True)
    if not any(mapping.uuid == CELL0_UUID for mapping in mappings):
        return _fail("There is no cell0 mapping. Run 'nova-manage cell_v2 map_cell0' and then retry.")
    if len(mappings) < 2:
        return _fail("There is no cell but cell0. Run 'nova-manage cell_v2 simple_cell_setup' and then retry.")
    return _check_hosts(operator)


def _check_hosts(operator: Operator) -> Finding:
    known = operator.cells.host_mappings()
    gathered = operator.cells.gather(lambda tx: [node.host for node in nodes.listing(tx)])
    if gathered.down:
        return _fail("These cells give no answer: " + "; ".join(gathered.down.values()))
    hosts = {host for found in gathered.found.values() for host in found}
    lost = sorted(hosts - known.keys())
    if hosts and not known:
        return _fail("No host mappings found but there are compute nodes. Run 'nova-manage cell_v2 discover_hosts'.")
    if lost:
        return _warn(f"Not mapped to a cell: {_some(lost)}. Run 'nova-manage cell_v2 discover_hosts'.")
    if not hosts:
        return Finding(Result.SUCCESS, "No hosts were found. They are mapped when they join.")
    return FINE


def check_schemas(operator: Operator) -> Finding:
    """Every database is at the newest version of its schema."""
    behind = _behind("the API database", operator.api)
    if behind is not None:
        return _fail(f"{behind}: run 'nova-manage api_db sync'.")
    databases = {m.name or m.uuid: operator.cells.database(m.uuid) for m in operator.cells.all(disabled=True)}
    found = [text for name, each in databases.items() if (text := _behind(f"the database of cell {name}", each))]
    return _fail(f"{'; '.join(found)}: run 'nova-manage db sync'.") if found else FINE


def _behind(what: str, database: Database) -> str | None:
    version, newest = database.version(), migration.declared(database.schema)[1]
    if version == newest:
        return None
    return f"{what} {f'is at {version}, not at {newest}' if version else 'has no tables yet'}"


def check_placement(operator: Operator) -> Finding:
    """Placement answers a question of ours, at the version we ask it at."""
    try:
        connect(read_options(operator.conf)).placement.candidates([("resources", "VCPU:1"), ("limit", "1")])
    except (Fault, ValueError) as error:
        return _fail(f"Placement could not be asked at version 1.36: {error}")
    return FINE


def check_policy_file(operator: Operator) -> Finding:
    """Policy files are YAML."""
    try:
        operator.conf.register_opts([cfg.StrOpt("policy_file", default="policy.yaml")], group="oslo_policy")
    except cfg.DuplicateOptError:
        pass
    name = str(operator.conf.oslo_policy.policy_file)
    if name.endswith(".json"):
        return _fail(f"[oslo_policy] policy_file is {name}: convert it with oslopolicy-convert-json-to-yaml.")
    return FINE


def check_generations(operator: Operator) -> Finding:
    """No program runs that is older than this one."""
    older = [f"{s.binary} on {s.host}" for s in _living(operator) if s.version < GENERATION]
    if older:
        return _warn(
            f"Older than this release: {_some(older)}. What they do not know yet is not asked of them; upgrade them."
        )
    return FINE


def check_places(operator: Operator) -> Finding:
    """No conductor shares a host with a hypervisor's agent."""
    living = _living(operator)
    hosts = {binary: {s.host for s in living if s.binary == binary} for binary in ("nova-conductor", "nova-compute")}
    both = sorted(hosts["nova-conductor"] & hosts["nova-compute"])
    if both:
        return _warn(
            f"nova-conductor and nova-compute run together on {_some(both)}. A conductor holds the databases' "
            "passwords, which hypervisors must not have: a guest that breaks out would read every server's data. Run "
            "nova-conductor elsewhere (a cloud on one machine may leave it so)."
        )
    return FINE


def check_service_token(operator: Operator) -> Finding:
    """Long operations outlive their user's token."""
    if not config.read(ServiceUserOptions, operator.conf).send_service_user_token:
        return _fail("[service_user] send_service_user_token is not set: set it, with the login of the service user.")
    return FINE


CHECKS: tuple[tuple[str, Callable[[Operator], Finding]], ...] = (
    ("Database Schemas", check_schemas),
    ("Cells v2", check_cells),
    ("Placement API", check_placement),
    ("Policy File JSON to YAML Migration", check_policy_file),
    ("Older Services", check_generations),
    ("Conductors Away From Hypervisors", check_places),
    ("Service User Token Configuration", check_service_token),
)


def _living(operator: Operator) -> list[Service]:
    options, now = config.read(HeartbeatOptions, operator.conf), utcnow()
    gathered = operator.cells.gather(services.listing)
    return [
        service
        for found in gathered.found.values()
        for service in found
        if service.is_up(now=now, down_time=options.service_down_time)
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _fail(details: str) -> Finding:
    return Finding(Result.FAILURE, details)


def _warn(details: str) -> Finding:
    return Finding(Result.WARNING, details)


def judge(operator: Operator) -> list[tuple[str, Finding]]:
    """Every check; one that cannot be made has failed."""
    found = []
    for name, check in CHECKS:
        try:
            finding = check(operator)
        except (BadConfig, Fault) as error:
            finding = _fail(str(error))
        except Exception as error:
            if not cell_setup.lacks_schema(error):
                raise
            finding = _fail("A database has no tables yet: run 'nova-manage api_db sync' and 'nova-manage db sync'.")
        found.append((name, finding))
    return found


def report(found: Iterable[tuple[str, Finding]]) -> str:
    """For people."""
    rule = "+" + "-" * (WIDTH + 2) + "+"
    lines = [rule, _line("Upgrade Check Results"), rule]
    for name, finding in found:
        texts = [f"Check: {name}", f"Result: {finding.result.name.capitalize()}"]
        texts += textwrap.wrap(f"Details: {finding.details or 'None'}", WIDTH, subsequent_indent="  ")
        lines += [*map(_line, texts), rule]
    return "\n".join(lines)


def _line(text: str) -> str:
    return f"| {text:<{WIDTH}} |"


@click.group("nova-status", no_args_is_help=True)
@config_file
@click.option("--debug", is_flag=True, help="Show where an unexpected error came from.")
@click.version_option(package_name="kilonova")
@click.pass_context
def cli(context: click.Context, files: tuple[Path, ...], debug: bool) -> None:
    """Look whether a cloud is in order."""
    context.obj = Operator(files, debug=debug)


@cli.group("upgrade", no_args_is_help=True)
def upgrade() -> None:
    """Before and after an upgrade."""


@upgrade.command("check")
@pass_operator
def check(operator: Operator) -> int:
    """Make every check; exits with 0 when all is well, 1 on warnings, 2 on failures."""
    found = judge(operator)
    click.echo(report(found))
    return int(max(finding.result for _, finding in found))


def main() -> None:
    """The program."""
    sys.exit(run(cli))


if __name__ == "__main__":
    main()
