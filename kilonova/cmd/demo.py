"""``kilonova demo``: a cloud, and a server booted in it by the ordinary client, with its console log to show for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from kilonova.cmd.settings import default_state
from kilonova.virt.libvirt.disks import SSH_PORT

READY = "guest: READY"
CONSOLE_SECONDS = 240.0
LINES = 14
PROGRAM = (sys.executable, "-P", "-m", "kilonova.cmd.kilonova")
"""This command for a child process; -P: a folder called kilonova where the user stands is not the package."""


def built_image() -> Path | None:
    """The guest image that this checkout built, where there is one."""
    path = Path(__file__).resolve().parents[2] / "build" / "guest.qcow2"
    return path if path.is_file() else None


class Client:
    """The ``openstack`` command, as the plain project's user."""

    def __init__(self, state: Path, cloud: str = "kilonova-demo") -> None:
        self._program = Path(sys.executable).parent / "openstack"
        self._env = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(state / "clouds.yaml"), "OS_CLOUD": cloud}

    def __call__(self, *words: str) -> str:
        """Run it; ClickException with what it said when it fails."""
        done = subprocess.run([str(self._program), *words], env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"openstack {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout.rstrip("\n")


driver_option = click.option(
    "--driver",
    type=click.Choice(["auto", "fake", "libvirt"]),
    default="auto",
    show_default=True,
    help="libvirt: real guests; fake: simulated ones; auto: real ones where that works.",
)
offset_option = click.option(
    "--port-offset", type=int, default=0, show_default=True, help="Added to every port, to stand beside other clouds."
)


@click.command()
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=default_state,
    envvar="KILONOVA_STATE",
    show_default=str(default_state()),
    help="Where the cloud keeps everything.",
)
@driver_option
@offset_option
@click.option("--name", default="demo", show_default=True, help="The server's name.")
def demo(state_dir: Path, driver: str, port_offset: int, name: str) -> None:
    """Bring a cloud up, boot a server in it, show its console log."""
    state = state_dir.absolute()
    if not _answers(state):
        words = ["--state-dir", str(state), "--driver", driver, "--port-offset", str(port_offset)]
        if subprocess.run([*PROGRAM, "up", "--detach", *words], check=False).returncode:
            raise click.ClickException("the cloud did not come up")
    client = Client(state)
    before = _boot(client, state, name)
    click.echo("waiting for its console")
    text = _console(client, name, before)
    click.echo(client("server", "show", name))
    click.echo("\n".join(["", "the end of its console log:", *text.splitlines()[-LINES:], ""]))
    click.echo(_next_commands(client, state, name, text))


def _answers(state: Path) -> bool:
    if not (state / "clouds.yaml").exists():
        return False
    try:
        Client(state)("token", "issue", "-f", "value", "-c", "id")
    except click.ClickException:
        return False
    return True


def _boot(client: Client, state: Path, name: str) -> int:
    """Have the server run; how often its console log told of an earlier start of the guest."""
    key = state / "demo_key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    if name not in client("keypair", "list", "-f", "value", "-c", "Name").splitlines():
        client("keypair", "create", "--public-key", f"{key}.pub", name)
    if name in client("server", "list", "-f", "value", "-c", "Name").splitlines():
        return _start(client, name)
    image = client("image", "list", "-f", "value", "-c", "Name").splitlines()[0]
    words = ["--flavor", "m1.nano", "--image", image, "--network", "private", "--key-name", name, "--wait", name]
    click.echo(f"openstack server create {' '.join(words)}")
    begun = time.monotonic()
    client("server", "create", *words)
    click.echo(f"server {name} is ACTIVE after {time.monotonic() - begun:.1f} s")
    return 0


def _start(client: Client, name: str) -> int:
    status = client("server", "show", name, "-f", "value", "-c", "status")
    click.echo(f"server {name} is there already: {status}")
    if status == "SHUTOFF":
        before = client("console", "log", "show", name).count(READY)
        client("server", "start", name)
        return before
    if status != "ACTIVE":
        raise click.ClickException(f"openstack server show {name} tells more; kilonova demo --name boots another one")
    return 0


def _console(client: Client, name: str, before: int) -> str:
    """The console log, once the guest says anew that it is ready (a simulated one never does more than log in)."""
    deadline = time.monotonic() + CONSOLE_SECONDS
    text = ""
    while time.monotonic() < deadline:
        text = client("console", "log", "show", name)
        if text.count(READY) > before or ("login:" in text and "guest:" not in text):
            break
        time.sleep(1)
    return text


def _forwarded_port(client: Client, state: Path, name: str) -> str:
    """The port of this machine that leads to the guest's ssh, where it has QEMU's own network."""
    uuid = client("server", "show", name, "-f", "value", "-c", "id").strip()
    note = state / "compute" / "instances" / uuid / SSH_PORT
    return note.read_text().strip() if note.exists() else ""


def _next_commands(client: Client, state: Path, name: str, console: str) -> str:
    address = client("server", "show", name, "-f", "value", "-c", "addresses")
    fixed = address.partition("'")[2].partition("[")[2].split("'")[1:2] or [address]
    # Simulated guests, and those on QEMU's own network, do not have the address that the cloud gave them.
    reachable = f"address={fixed[0]} " in console
    forwarded = _forwarded_port(client, state, name)
    return "\n".join(
        [
            "go on with:",
            f"  export PATH={Path(sys.executable).parent}:$PATH",
            f"  export OS_CLIENT_CONFIG_FILE={state / 'clouds.yaml'} OS_CLOUD=kilonova-demo",
            *([f"  ssh -i {state / 'demo_key'} guest@{fixed[0]}"] if reachable else []),
            *([f"  ssh -i {state / 'demo_key'} -p {forwarded} guest@127.0.0.1"] if forwarded else []),
            f"  openstack server delete --wait {name}",
            f"  kilonova status --state-dir {state}",
            f"  kilonova down --state-dir {state} --wipe",
        ]
    )
