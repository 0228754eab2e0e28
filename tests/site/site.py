"""A site of separate programs for tests: each a process with its own nova.conf, as the operators' guide says.

The configuration files are those of ``docs/operators-guide.md``, with our addresses put in, and a file laid over them
that makes heartbeats quick and hypervisors simulated.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import openstack
import yaml
from keystoneauth1.exceptions import ClientException

from kilonova.embedded.neighbours import Neighbours
from tests.services import Database, RabbitMQ

T = TypeVar("T")
BIN = Path(sys.executable).parent
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operators-guide.md"
DOWN_SECONDS = 4
CELLLESS = ("nova_api", "nova_cell0")


def wait_for(look: Callable[[], T], *, what: str, seconds: float = 60.0, every: float = 0.1) -> T:
    """The first answer of ``look`` that is true; AssertionError with the last one after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what} (last seen: {found!r})"
        time.sleep(every)
    return found


def guide_files() -> dict[str, str]:
    """The configuration files of the operators' guide by their names."""
    blocks = re.findall(r"^ *```ini\n(.*?)^ *```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    named = {}
    for block in blocks:
        first, _, rest = re.sub(r"^ +", "", block, flags=re.MULTILINE).partition("\n")
        if first.startswith("# "):
            named[first.removeprefix("# ")] = rest
    return named


class Program:
    """One program of the site; its output goes to a log of its own."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.name, self.command, self.log = name, list(command), log
        self.binary = Path(command[0]).name
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0

    def start(self) -> None:
        """Start it; does not wait."""
        assert not self.runs
        with self.log.open("ab") as log:
            self._begun = log.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def serves(self) -> bool:
        """Whether it has come up since it was started; a row of its may be that of the one before."""
        with self.log.open("rb") as log:
            log.seek(self._begun)
            return f"{self.binary} runs".encode() in log.read()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds: float = 40.0) -> int:
        """Its exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(seconds)

    def end(self, seconds: float = 40.0) -> int:
        """SIGTERM, and the exit status."""
        self.tell(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """SIGKILL."""
        if self.runs:
            self.tell(signal.SIGKILL)
            self.wait()

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")


class Site:
    """The programs of a site, and clients of it. ``databases``: where each of nova_api, nova_cell0... is."""

    def __init__(
        self, folder: Path, neighbours: Neighbours, broker: RabbitMQ, databases: Mapping[str, Database], *, name: str
    ) -> None:
        self.folder, self.neighbours, self.broker, self.name = folder, neighbours, broker, name
        self.urls = {key: server.create_database(f"{name}_{key}") for key, server in databases.items()}
        self.cells = sorted(key.removeprefix("nova_") for key in databases if key not in ("nova", *CELLLESS))
        self.port = neighbours.ports.nova
        self.programs: dict[str, Program] = {}
        self._etc = folder / "etc"
        self._etc.mkdir(parents=True)
        self._write_files()

    # --- configuration

    def _write_files(self) -> None:
        files = guide_files()
        for cell in self.cells:
            files[f"{cell}.conf"] = files["cell1.conf"].replace("cell1", cell)
            files[f"compute-{cell}.conf"] = files["compute.conf"].replace("5672/cell1", f"5672/{cell}")
        for name, text in files.items():
            (self._etc / name).write_text(self.filled(text))
        ports = self.neighbours.ports
        (self._etc / "patient.conf").write_text("[DEFAULT]\nservice_down_time = 90\n")
        (self._etc / "quick.conf").write_text(
            "[DEFAULT]\nreport_interval = 0.5\n"
            f"service_down_time = {DOWN_SECONDS}\ncompute_driver = fake\nupdate_resources_interval = 5\n"
            f"osapi_compute_listen = 127.0.0.1\nosapi_compute_listen_port = {ports.nova}\n"
            f"metadata_listen = 127.0.0.1\nmetadata_listen_port = {ports.metadata}\n"
        )

    def filled(self, text: str) -> str:
        """A text of the guide with this site's addresses and passwords."""
        credentials = self.neighbours.credentials
        for vhost in ("nova", *self.cells):
            url = self.broker.vhost_url(f"{self.name}-{vhost}")
            text = re.sub(rf"rabbit://nova:RABBIT_PASS@controller:5672/{vhost}\b", url, text)
        for name, url in self.urls.items():
            text = re.sub(rf"mysql\+pymysql://nova:NOVA_DBPASS@controller/{name}\b", url, text)
        text = text.replace("http://controller:5000/v3", credentials.auth_url)
        text = text.replace("NOVA_PASS", credentials.password)
        text = text.replace("METADATA_SECRET", credentials.metadata_proxy_shared_secret)
        return text.replace("my_ip = 10.0.0.31", "my_ip = 127.0.0.1")

    def conf(self, *names: str) -> list[str]:
        """The options that name files."""
        return [part for name in names for part in ("--config-file", str(self._etc / name))]

    def rewrite(self, name: str, change: Callable[[str], str]) -> None:
        """Change a configuration file."""
        path = self._etc / name
        path.write_text(change(path.read_text()))

    def manage(self, *arguments: str, files: Sequence[str] = ("controller.conf",)) -> str:
        """Run nova-manage; its output. It must succeed."""
        command = [str(BIN / "nova-manage"), *self.conf(*files), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def set_up(self) -> None:
        """The virtual hosts, the databases and the cells, in the order of the guide."""
        self.broker.create_vhosts(*(f"{self.name}-{vhost}" for vhost in ("nova", *self.cells)))
        self.manage("api_db", "sync")
        self.manage("cell_v2", "map_cell0", "--database_connection", self.urls["nova_cell0"])
        for cell in self.cells:
            where = ("--transport-url", self.broker.vhost_url(f"{self.name}-{cell}"))
            database = ("--database_connection", self.urls[f"nova_{cell}"])
            self.manage("cell_v2", "create_cell", "--name", cell, *where, *database)
            self.manage("db", "sync", "--local_cell", files=("controller.conf", f"{cell}.conf"))
        self.manage("db", "sync")

    # --- programs

    def add(self, name: str, program: str, *files: str, **options: object) -> Program:
        """A program by the name ``name``, which is its host's name too; ``options`` of [DEFAULT] only it has."""
        own = self._etc / f"{name}.own.conf"
        lines = {"host": name, "state_path": self.folder / name, **options}
        own.write_text("[DEFAULT]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()))
        command = [str(BIN / program), *self.conf(*files, "quick.conf", own.name)]
        made = self.programs[name] = Program(name, command, self.folder / f"{name}.log")
        return made

    @functools.cached_property
    def _admin(self) -> openstack.connection.Connection:
        return self.connect("kilonova")

    def services(self) -> dict[tuple[str, str], Any]:
        """The services that the API shows, by binary and host."""
        return {(found.binary, found.host): found for found in self._admin.compute.services()}

    def down(self) -> list[str]:
        """Programs of this site that run and are not shown as up."""
        try:
            shown = self.services()
        except (openstack.exceptions.SDKException, ClientException) as error:
            return [str(error)]
        wanted = [
            (program.binary, program.name)
            for program in self.programs.values()
            if program.runs and not program.binary.endswith("-api")
        ]
        starting = [program.name for program in self.programs.values() if program.runs and not program.serves]
        up = {key for key, service in shown.items() if service.state == "up"}
        return starting + [" ".join(key) for key in wanted if key not in up]

    def await_up(self, seconds: float) -> None:
        """Until every program runs and is up, and its hosts are to be had."""
        wait_for(lambda: not self.down(), what=f"all programs of {self.folder} are up", seconds=seconds)

    def restart(self, programs: Sequence[Program]) -> None:
        """Kill them all, and start them again with their commands of now."""
        for program in programs:
            program.kill()
        for program in programs:
            program.start()
        self.await_up(60)

    def stop(self) -> None:
        """End all at once: how they end in good order is tested, and takes its time."""
        for program in self.programs.values():
            program.kill()

    # --- clients

    def connect(self, cloud: str = "kilonova-demo") -> openstack.connection.Connection:
        """A client with the demo user or (``kilonova``) the administrator."""
        path = self.folder / "clouds.yaml"
        if not path.exists():
            self.neighbours.write_clouds_yaml(path)
        how = yaml.safe_load(path.read_text())["clouds"][cloud]
        return openstack.connect(
            auth=how["auth"],
            region_name=how["region_name"],
            compute_default_microversion="2.96",
            load_yaml_config=False,
            compute_endpoint_override=f"http://127.0.0.1:{self.port}/v2.1",
        )
