"""``nova-manage flow``: operations that are stuck or take long are listed with their reason, and mended."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from kilonova.base.engine import utcnow
from kilonova.base.errors import Conflict, NotFound
from kilonova.base.flow import Event, Flow, Run, Status
from kilonova.cmd.manage.operator import Operator, pass_operator, table
from kilonova.flows import mending
from kilonova.flows.registry import FLOWS
from kilonova.store import mending as rows
from kilonova.store.runs import Log
from kilonova.store.session import Database, Tx

PATIENCE = 60.0


class _Held(NamedTuple):
    """A run and where it is kept."""

    where: str
    run: Run
    log: Sequence[Event]


@click.group("flow", no_args_is_help=True)
def flow() -> None:
    """Operations under way (workflows)."""


@flow.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that have been under way for a short time only.")
@click.option("--older-than", type=float, default=PATIENCE, show_default=True, help="Seconds that count as short.")
@click.option("--server", help="Only those of this server (uuid).")
@pass_operator
def list_runs(operator: Operator, everything: bool, older_than: float, server: str | None) -> int:
    """List what is stuck, and what has been under way for long, with the reason."""
    found, silent = _everywhere(operator, lambda tx: rows.unfinished(tx, subject=server))
    now = utcnow()
    least = 0.0 if everything else older_than
    shown = [_line(held, now) for held in found if held.run.status is Status.STUCK or _age(held.run, now) >= least]
    for where in silent:
        click.echo(f"WARNING: {where} gave no answer; its runs are not listed.", err=True)
    click.echo(table(("Run", "Flow", "Server", "Where", "Status", "Seconds", "Step", "Reason"), shown))
    return 0


def _line(held: _Held, now: datetime.datetime) -> tuple[object, ...]:
    run = held.run
    known = FLOWS.get(run.flow)
    where = mending.standing(known, held.log) if known is not None else None
    step = where.step.name if where is not None and where.step is not None else "-"
    reason = where.reason if where is not None else "a flow of another release"
    return (run.id, run.flow, run.subject, held.where, run.status.value, f"{_age(run, now):.0f}", step, reason)


def _age(run: Run, now: datetime.datetime) -> float:
    return (now - run.created_at).total_seconds()


@flow.command("show")
@click.argument("run")
@pass_operator
def show(operator: Operator, run: str) -> int:
    """Show a run with its journal."""
    held = _find(operator, run)
    found = held.run
    facts = [
        ("Run", found.id),
        ("Flow", found.flow),
        ("Server", found.subject),
        ("Where", held.where),
        ("Status", found.status.value),
        ("Request", found.context.request_id),
        ("Started", f"{found.created_at:%Y-%m-%d %H:%M:%S}"),
        ("Driver", found.owner or "-"),
        ("Error", found.error.message if found.error else "-"),
    ]
    if found.flow in FLOWS and found.status in (Status.RUNNING, Status.STUCK):
        facts.append(("Reason", mending.standing(FLOWS[found.flow], held.log).reason))
    click.echo(table(("Property", "Value"), facts))
    events = [
        (e.seq, f"{e.at:%H:%M:%S.%f}"[:-3], e.step or "-", e.what.value, e.host or "-", _note(e)) for e in held.log
    ]
    click.echo(table(("#", "At", "Step", "What", "Host", "Note"), events))
    return 0


def _note(event: Event) -> str:
    error = f"{event.error.kind}: {event.error.message}" if event.error else ""
    return "; ".join(part for part in (event.note, error) if part) or "-"


@flow.command("retry")
@click.argument("run")
@pass_operator
def retry(operator: Operator, run: str) -> int:
    """Forget a run's failures: the step that it is stuck or waits at is tried afresh."""
    return _mend(operator, run, lambda known, log: mending.retry(log, at=utcnow()), "is tried afresh")


@flow.command("skip")
@click.argument("run")
@pass_operator
def skip(operator: Operator, run: str) -> int:
    """Take the step (or undo) that a run is stuck or waits at for done. You say that it is."""
    return _mend(operator, run, lambda known, log: mending.skip(known, log, at=utcnow()), "goes on behind the step")


@flow.command("unwind")
@click.argument("run")
@pass_operator
def unwind(operator: Operator, run: str) -> int:
    """Give a run up and undo what it did; only before the point from which on it goes forward alone."""
    return _mend(operator, run, lambda known, log: mending.unwind(known, log, at=utcnow()), "is being undone")


def _mend(operator: Operator, run_id: str, decide: Callable[[Flow, Sequence[Event]], list[Event]], outcome: str) -> int:
    held = _find(operator, run_id)

    def checked(run: Run, log: Sequence[Event]) -> list[Event]:
        known = FLOWS.get(run.flow)
        if known is None:
            raise Conflict(f"The flow {run.flow} is of another release: mend it with that one's nova-manage.")
        return decide(known, log)

    _databases(operator)[held.where].write(lambda tx: rows.mend(tx, run_id, checked))
    click.echo(f"Run {run_id} of {held.run.flow} on {held.run.subject} {outcome}.")
    return 0


def _databases(operator: Operator) -> dict[str, Database]:
    """Every database with runs, by the name it is shown under."""
    cells = {mapping.name or mapping.uuid: mapping.uuid for mapping in operator.cells.all(disabled=True)}
    return {"api": operator.api, **{name: operator.cells.database(uuid) for name, uuid in cells.items()}}


def _everywhere(operator: Operator, ask: Callable[[Tx], list[Log]]) -> tuple[list[_Held], list[str]]:
    """What each database holds, oldest first, and the names of the cells that gave no answer."""
    names = {mapping.uuid: mapping.name or mapping.uuid for mapping in operator.cells.all(disabled=True)}
    gathered = operator.cells.gather(ask)
    parts = {"api": operator.api.query(ask), **{names[cell]: part for cell, part in gathered.found.items()}}
    found = [_Held(where, run, log) for where, part in parts.items() for run, log in part]
    return sorted(found, key=lambda held: held.run.created_at), [names[cell] for cell in gathered.down]


def _find(operator: Operator, run_id: str) -> _Held:
    def ask(tx: Tx) -> list[Log]:
        log = rows.find(tx, run_id)
        return [] if log is None else [log]

    found, silent = _everywhere(operator, ask)
    if not found:
        more = f" (no answer from {', '.join(silent)})" if silent else ""
        raise NotFound(f"Run {run_id} could not be found{more}.")
    return found[0]
