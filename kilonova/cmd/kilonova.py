"""``kilonova``: a cloud in one command, and why and when things happened in it."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from kilonova.base import log
from kilonova.cmd import demo, guests, told
from kilonova.cmd.settings import Layout, default_state
from kilonova.embedded.ports import Ports

state_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=default_state,
    show_default=str(default_state()),
    envvar="KILONOVA_STATE",
    help="Where the cloud keeps everything.",
)


@click.group()
@click.version_option(package_name="kilonova")
def main() -> None:
    """A compute cloud in one command."""


@main.command()
@state_option
@demo.driver_option
@click.option("--hosts", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Simulated hosts.")
@click.option("--cells", type=click.IntRange(1, 20), default=1, show_default=True, help="Cells of simulated hosts.")
@demo.offset_option
@click.option("--image", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A guest image (qcow2).")
@click.option("--detach", is_flag=True, help="Go to the background once the cloud is ready.")
def up(
    state_dir: Path, driver: str, hosts: int, cells: int, port_offset: int, image: Path | None, detach: bool
) -> None:
    """Bring the cloud up; the data of an earlier time is taken up again."""
    with told.plain_errors():
        if detach:
            code = _detached(state_dir)
        else:
            code = _run(state_dir, driver, hosts=hosts, cells=cells, port_offset=port_offset, image=image)
    sys.exit(code)


def _run(state_dir: Path, driver: str, *, hosts: int, cells: int, port_offset: int, image: Path | None) -> int:
    from kilonova.cmd.cloud import Cloud, Wishes

    begun = time.monotonic()
    (state_dir / "logs").mkdir(parents=True, exist_ok=True)
    log.configure(service="kilonova", file=state_dir / "logs" / "kilonova.log")
    told_to_stop: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: told_to_stop.put(n))
    wishes = Wishes(state_dir, driver, hosts, cells, port_offset, image or demo.built_image())
    cloud = Cloud(wishes, say=click.echo)
    told.claim(cloud.layout)
    cloud.start()
    told.claim(cloud.layout, hypervisor=cloud.hypervisor)
    click.echo(f"clouds.yaml: {cloud.layout.clouds} (clouds kilonova, kilonova-demo)")
    click.echo(f"ready after {time.monotonic() - begun:.1f} s")
    sys.stdout.flush()
    told_to_stop.get()
    cloud.stop()
    told.release(cloud.layout)
    return 0


def _detached(state_dir: Path) -> int:
    """Run the same command without --detach in a session of its own; return once it says it is ready."""
    told.check_unclaimed(Layout(state_dir.absolute(), Ports()))
    (state_dir / "logs").mkdir(parents=True, exist_ok=True)
    # A file of its own: another one may be starting at the same moment, and why this one ends is to be seen.
    output = state_dir / "logs" / f"up-{os.getpid()}.out"
    command = [*demo.PROGRAM, *(a for a in sys.argv[1:] if a != "--detach")]
    with output.open("w") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    shown = 0
    while True:
        text = output.read_text()
        click.echo(text[shown:], nl=False)
        shown = len(text)
        if "\nready after" in text or text.startswith("ready after"):
            output.replace(output.with_name("up.out"))
            return 0
        code = child.poll()
        if code is not None:
            click.echo(output.read_text()[shown:], nl=False)
            output.unlink()
            return code or 1
        time.sleep(0.05)


@main.command()
@state_option
@click.option("--wipe", is_flag=True, help="Remove the data too.")
def down(state_dir: Path, wipe: bool) -> None:
    """End the cloud: everything that ``up`` started."""
    layout = Layout(state_dir.absolute(), Ports())
    with told.plain_errors():
        ended = told.end(layout)
        click.echo("ended" if ended else "nothing was running")
        if wipe or not ended:
            for text in guests.clear(layout, wipe=wipe):
                click.echo(text)
        if wipe and state_dir.exists():
            _remove(state_dir)


def _remove(state_dir: Path) -> None:
    ours = (state_dir / "etc").is_dir() or (state_dir / "logs" / "kilonova.log").exists()
    if not ours and any(state_dir.iterdir()):
        raise click.ClickException(f"{state_dir} does not look like a state directory: nothing was removed")
    shutil.rmtree(state_dir)
    click.echo(f"removed {state_dir}")


@main.command()
@state_option
def status(state_dir: Path) -> None:
    """Each part: its port, its health, its memory."""
    with told.plain_errors():
        found = told.status(Layout(state_dir.absolute(), Ports()))
    click.echo(found.text)
    sys.exit(0 if found.healthy else 1)


@main.command()
@click.argument("server")
@state_option
@click.option("--os-cloud", default="kilonova", show_default=True, help="Whose clouds.yaml entry asks.")
def why(server: str, state_dir: Path, os_cloud: str) -> None:
    """How the host of SERVER (name or id) was chosen, or why there was none."""
    with told.client_errors():
        click.echo(told.why(told.connection(state_dir, os_cloud), server))


@main.command()
@click.argument("subject")
@state_option
@click.option("--os-cloud", default="kilonova", show_default=True, help="Whose clouds.yaml entry asks.")
def trace(subject: str, state_dir: Path, os_cloud: str) -> None:
    """The time line of a server (name or id) or of a request (req-…)."""
    with told.client_errors():
        click.echo(told.trace(told.connection(state_dir, os_cloud), subject))


main.add_command(demo.demo)

if __name__ == "__main__":
    main()
