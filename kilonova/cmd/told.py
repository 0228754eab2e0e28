"""What the ``kilonova`` command tells: who runs the cloud, how its parts are, why and when."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import click
import msgspec

from kilonova.base.errors import Fault
from kilonova.cmd.settings import Layout
from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.ports import Ports
from kilonova.embedded.processes import resident_mib, start_time
from kilonova.embedded.wire import is_healthy

GRACE = 60.0

_HELD: dict[Path, IO[str]] = {}


class Claim(msgspec.Struct):
    """Whose process runs the cloud of a state directory, told apart from a later process of the same pid."""

    pid: int
    started: int
    port_offset: int
    hypervisor: str = ""

    def alive(self) -> bool:
        """Whether that very process lives."""
        return start_time(self.pid) == self.started


def _read(layout: Layout) -> Claim | None:
    try:
        found = msgspec.json.decode(layout.pid_file.read_bytes(), type=Claim)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.alive() else None


def check_unclaimed(layout: Layout) -> None:
    """RuntimeError when another process runs the cloud."""
    other = _read(layout)
    if other is not None and other.pid != os.getpid():
        raise RuntimeError(f"the cloud of {layout.state} runs already, as process {other.pid}")


def claim(layout: Layout, *, hypervisor: str = "") -> None:
    """Write down that this process runs the cloud, on which hypervisor; RuntimeError when another one does."""
    check_unclaimed(layout)
    layout.pid_file.parent.mkdir(parents=True, exist_ok=True)
    if not _hold(layout.pid_file.with_suffix(".lock")):
        raise RuntimeError(f"the cloud of {layout.state} is run by another process already")
    offset = layout.ports.nova - Ports().nova
    mine = Claim(os.getpid(), start_time(os.getpid()) or 0, offset, hypervisor)
    layout.pid_file.write_bytes(msgspec.json.encode(mine))


def _hold(path: Path) -> bool:
    """Lock the file until this process ends; False when another process has it. Of two that start at the same moment,
    each finds that nobody has claimed the cloud."""
    if path in _HELD:
        return True
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _HELD[path] = file
    return True


def release(layout: Layout) -> None:
    """Nobody runs it any more."""
    layout.pid_file.unlink(missing_ok=True)


def end(layout: Layout) -> bool:
    """Tell the cloud's process to stop and wait until it has; False when none ran, RuntimeError when it is not ours."""
    found = _read(layout)
    if found is None:
        return False
    try:
        os.kill(found.pid, signal.SIGTERM)
    except PermissionError:
        raise RuntimeError(f"the cloud of {layout.state} runs as process {found.pid} of another user") from None
    deadline = time.monotonic() + GRACE
    while found.alive():
        if time.monotonic() > deadline:
            os.kill(found.pid, signal.SIGKILL)
            break
        time.sleep(0.05)
    release(layout)
    return True


class Status(NamedTuple):
    """For people, and for the exit code."""

    text: str
    healthy: bool


def status(layout: Layout) -> Status:
    """A table of all parts."""
    found = _read(layout)
    if found is None:
        return Status(_not_running(layout.state), False)
    layout = Layout(layout.state, Ports.moved(found.port_offset))
    healthy = is_healthy(layout.ports.nova, "/", 5.0)
    rows = [
        (
            "kilonova",
            str(layout.ports.nova),
            "up" if healthy else "down",
            f"{resident_mib(found.pid):.0f} MiB",
            str(found.pid),
            "",
        )
    ]
    total = resident_mib(found.pid)
    for part in Neighbours(layout.state, ports=layout.ports).status():
        healthy = healthy and part.healthy
        total += part.rss_mib
        note = f"restarted {part.restarts} times" if part.restarts else ""
        state = "up" if part.healthy else "down"
        rows.append((part.name, str(part.port), state, f"{part.rss_mib:.0f} MiB", str(part.pid or "-"), note))
    rows.append(("together", "", "", f"{total:.0f} MiB", "", ""))
    rows.append(("hypervisor", "", "", "", "", found.hypervisor))
    return Status(table(("part", "port", "health", "memory", "pid", "note"), rows), healthy)


def _not_running(state: Path) -> str:
    return f"no cloud runs in {state}: `kilonova up` starts one, --state-dir names another"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def connection(state_dir: Path, cloud: str) -> Any:
    """An openstacksdk connection to the cloud of the state directory (or of the user's own clouds.yaml)."""
    import openstack

    own = state_dir.absolute() / "clouds.yaml"
    if own.exists():
        own.read_bytes()
        if _read(Layout(own.parent, Ports())) is None:
            raise click.ClickException(_not_running(own.parent))
    config = openstack.config.OpenStackConfig(config_files=[str(own)] if own.exists() else None)
    if cloud not in config.get_cloud_names():
        where = f"{own} has no cloud {cloud}" if own.exists() else _not_running(own.parent)
        raise click.ClickException(where)
    return openstack.connection.Connection(config=config.get_one(cloud), compute_api_version="2.96")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """What hinders goes to the user in one sentence."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    except (EmbeddedError, ValueError, RuntimeError, Fault) as error:
        raise click.ClickException(str(error)) from None


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """The same with what the client says."""
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    try:
        with plain_errors():
            yield
    except (SDKException, ClientException) as error:
        raise click.ClickException(str(error)) from None


def _get(cloud: Any, path: str) -> dict[str, Any]:
    answer = cloud.compute.get(path, headers={"OpenStack-API-Version": "compute 2.96"})
    if answer.status_code != 200:
        raise click.ClickException(_reason(answer))
    found: dict[str, Any] = answer.json()
    return found


def _reason(answer: Any) -> str:
    try:
        fault: dict[str, Any] = next(iter(answer.json().values()))
        return str(fault["message"])
    except (ValueError, StopIteration, KeyError, TypeError):
        return f"{answer.status_code} {answer.text[:500]}"


def _server_id(cloud: Any, name: str) -> str:
    from openstack.exceptions import ForbiddenException

    try:
        found = cloud.compute.find_server(name, ignore_missing=True, all_projects=True)
    except ForbiddenException:
        found = cloud.compute.find_server(name, ignore_missing=True)
    if found is None:
        raise click.ClickException(f"no server is called {name}")
    return str(found.id)


def why(cloud: Any, server: str) -> str:
    """The scheduler's record, for people."""
    uuid = _server_id(cloud, server)
    record = _get(cloud, f"/servers/{uuid}/kilonova-why")["why"]
    lines = [f"asked of Placement: {record.get('query') or '-'}"]
    if record.get("lacking"):
        lines.append("Placement had nobody: what is lacking is " + "; ".join(record["lacking"]))
    else:
        lines.append(f"hosts with room: {record.get('candidates', 0)}")
    for entry in record.get("filters", []):
        lines.append(f"  {entry['filter']}: refused {entry['refused']}, left {entry['left']}")
        lines += [f"      {host}: {reason}" for host, reason in entry.get("reasons", [])]
    for host, weight, parts in record.get("weights", []):
        inside = ", ".join(f"{name} {value:+.2f}" for name, value in parts.items())
        lines.append(f"  weight {weight:+.3f}  {host}" + (f"  ({inside})" if inside else ""))
    lines += [f"  claim on {host}: {result}" for host, result in record.get("claims", [])]
    chosen = record.get("chosen")
    lines.append(f"chosen: {', '.join(chosen)}" if chosen else f"no host: {record.get('brief', '')}")
    lines.append(f"took {record.get('seconds', 0):.3f} s")
    return "\n".join(lines)


def trace(cloud: Any, subject: str) -> str:
    """The time line, for people."""
    if subject.startswith("req-"):
        found = _get(cloud, f"/kilonova-trace/{subject}")["trace"]
    else:
        found = _get(cloud, f"/servers/{_server_id(cloud, subject)}/kilonova-trace")["trace"]
    lines = [f"{_clock(found['runs'][0]['started_at'], 'date')}" if found["runs"] else "nothing is recorded"]
    for run in found["runs"]:
        mark = {"running": ">", "stuck": "!"}.get(run["status"], " ")
        head = f"{run['flow']} of {run['server']}: {run['status']} after {run['seconds']:.3f} s"
        lines.append(f"{mark} {_clock(run['started_at'])} {head} ({run['request_id']}, in {run['where']})")
        if run["error"]:
            lines.append(f"    because {run['error']}")
        lines += [_step_line(step) for step in run["steps"]]
    lines += [f"cell {cell} does not answer: what it knows is missing here" for cell in found["silent_cells"]]
    return "\n".join(lines)


def _step_line(step: dict[str, Any]) -> str:
    took = f"{step['seconds']:8.3f} s" if step["seconds"] is not None else "       …  "
    result = str(step["result"])
    mark = {"done": " ", "undone": "<", "running": ">"}.get(result, "x")
    name = f"undo {step['step']}" if step["undo"] else str(step["step"])
    more = "; ".join(str(step[key]) for key in ("error", "note") if step[key])
    text = f"    {mark} {_clock(step['started_at'])} {took}  {name:<22} {result:<10} at {step['where']}"
    return text + (f": {more}" if more else "")


def _clock(text: str, form: str = "time") -> str:
    moment = datetime.datetime.fromisoformat(text)
    return f"{moment:%Y-%m-%d}, times are UTC" if form == "date" else f"{moment:%H:%M:%S.%f}"[:-3]
