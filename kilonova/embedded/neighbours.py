"""The real identity, image, placement, network and volume services as supervised children on SQLite.

    neighbours = Neighbours(state, ports=Ports(), compute_url="http://127.0.0.1:18774/v2.1")
    neighbours.ensure_installed(); neighbours.start(); neighbours.bootstrap(); ...; neighbours.stop()

`start` configures and makes the databases first; `bootstrap` waits for what it needs. Every step may be repeated.
"""

import fcntl
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kilonova.embedded import bootstrap
from kilonova.embedded.clouds import write_clouds
from kilonova.embedded.diagnosis import check_databases, check_room, explain
from kilonova.embedded.failures import EmbeddedError, StateInUse
from kilonova.embedded.install import (
    PARTS,
    Report,
    ensure_installed,
    ensure_schemas,
    link_library,
    say,
    stamp_of,
    template_of,
)
from kilonova.embedded.ports import Ports
from kilonova.embedded.prefix import find_prefix, python_of
from kilonova.embedded.processes import read_mark, resident_mib
from kilonova.embedded.secret import ensure_secrets
from kilonova.embedded.settings import REGION, Site, write_settings
from kilonova.embedded.supervisor import PartEvent, Program, Supervisor
from kilonova.embedded.wire import is_healthy

HEALTH_PATHS = {"keystone": "/v3", "glance": "/healthcheck", "placement": "/", "neutron": "/", "cinder": "/"}
# On SQLite, two requests at once inside Neutron or Placement make "database is locked"; see launch/serve.py for the
# others.
THREADS = {"keystone": 4, "glance": 4, "placement": 1, "neutron": 1}
# A part that died so often before it ever answered will not answer.
HOPELESS = 3
ENTRY_POINTS = "[neutron.ml2.mechanism_drivers]\nkilonova = kilonova.embedded.ml2:KilonovaMechanismDriver\n"


@dataclass(frozen=True)
class PartStatus:
    """How one part is: `pid` is None while it does not run, `rss_mib` its resident memory."""

    name: str
    pid: int | None
    port: int
    healthy: bool
    rss_mib: float
    restarts: int
    log: Path


@dataclass(frozen=True)
class ServiceCredentials:
    """How our own services log in, and where their neighbours are: `endpoints` by service type.

    `metadata_proxy_shared_secret` signs what the network plane's metadata proxy forwards.
    """

    auth_url: str
    username: str
    password: str
    project_name: str
    region_name: str
    endpoints: Mapping[str, str]
    metadata_proxy_shared_secret: str
    user_domain_name: str = "Default"
    project_domain_name: str = "Default"


class Neighbours:
    """The five neighbours of one state directory; one process may run them at a time, any may ask for their status."""

    def __init__(
        self,
        state_dir: Path,
        *,
        ports: Ports | None = None,
        compute_url: str | None = None,
        prefix: Path | None = None,
        on_event: Callable[[PartEvent], None] | None = None,
    ) -> None:
        self.state = state_dir.absolute()
        self.ports = ports or Ports()
        self.prefix = find_prefix(prefix)
        self._compute_url = compute_url or self.ports.url("nova", "/v2.1")
        self._on_event = on_event
        self._supervisor: Supervisor | None = None
        self._lock: io.TextIOWrapper | None = None

    def ensure_installed(self, report: Report = say) -> bool:
        """Install the neighbours' packages when they are not; answers whether anything was done."""
        return ensure_installed(self.prefix, report)

    def ensure_configured(self) -> Site:
        """Draw the secrets, write every configuration file, link our drivers; answers the site."""
        for folder in ("etc", "db", "data", "logs", "run", "lib"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        # The neighbours make their files for everybody to read: hashes of passwords, and how volumes are reached.
        (self.state / "db").chmod(0o700)
        site = self.site
        write_settings(site)
        lib = link_library(self.state / "lib")
        metadata = lib / "kilonova_drivers-1.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kilonova-drivers\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
        return site

    def ensure_schema(self) -> None:
        """Databases from the templates; those of another release are brought up to date."""
        check_databases({name: path for name in PARTS if (path := self.site.database(name)).exists()})
        stamp = self.state / "db" / "schema"
        if stamp.exists() and stamp.read_text() != stamp_of():
            ensure_schemas(self.prefix, {name: self.site.database(name) for name in PARTS})
        missing = [name for name in PARTS if not self.site.database(name).exists()]
        for name in missing:
            template, target = template_of(self.prefix, name), self.site.database(name)
            if not template.exists():
                raise EmbeddedError(f"{template} is missing: run the installation of the neighbours again")
            fresh = target.with_suffix(".new")
            shutil.copyfile(template, fresh)
            fresh.replace(target)
        stamp.write_text(stamp_of())

    def start(self) -> None:
        """Start all five, without waiting for answers. StateInUse, PortTaken or EmbeddedError say what hinders."""
        if self._supervisor is not None:
            return
        self.state.mkdir(parents=True, exist_ok=True)
        check_room(self.state)
        self._own_state()
        try:
            site = self.ensure_configured()
            self.ensure_schema()
            supervisor = Supervisor(self.state / "run", self.state / "logs", on_event=self._on_event)
            self._supervisor = supervisor
            supervisor.start([self._program(site, name) for name in PARTS])
        except BaseException:
            self.stop()
            raise

    def wait_ready(self, timeout: float = 120.0, parts: Sequence[str] = PARTS) -> None:
        """Return when the parts answer; EmbeddedError after `timeout` seconds names the others and their logs."""
        deadline = time.monotonic() + timeout
        waiting = list(parts)
        while waiting:
            waiting = [name for name in waiting if not is_healthy(self._port(name), HEALTH_PATHS[name], 5.0)]
            hopeless = [name for name in waiting if self._restarts(name) >= HOPELESS]
            if hopeless:
                raise EmbeddedError(f"cannot be started: {self._explain(hopeless)}")
            if waiting and time.monotonic() > deadline:
                raise EmbeddedError(f"not ready after {timeout:.0f} s: {self._explain(waiting)}")
            if waiting:
                time.sleep(0.05)

    def _explain(self, names: Sequence[str]) -> str:
        logs = {name: self.state / "logs" / f"{name}.log" for name in names}
        return "; ".join(f"{name}: {explain(log)} (see {log})" for name, log in logs.items())

    def _restarts(self, name: str) -> int:
        mark = read_mark(self.state / "run" / f"{name}.json")
        return mark.restarts if mark is not None else 0

    def bootstrap(self, timeout: float = 120.0) -> None:
        """Ensure the default networks and the volume types, each as soon as its service answers."""
        site = self.site

        def networks() -> None:
            self.wait_ready(timeout, ("keystone", "neutron"))
            bootstrap.ensure_networks(site)

        def volumes() -> None:
            self.wait_ready(timeout, ("keystone", "cinder"))
            bootstrap.ensure_volume_types(site)

        with ThreadPoolExecutor(max_workers=2) as pool:
            for done in [pool.submit(networks), pool.submit(volumes)]:
                done.result()

    def ensure_image(
        self, name: str, path: Path, disk_format: str = "qcow2", properties: Mapping[str, str] | None = None
    ) -> str:
        """A public image of that name with the file's content; answers its id."""
        return bootstrap.ensure_image(self.site, name, path, disk_format, properties or {})

    def stop(self) -> None:
        """End all children and give up the state directory; nothing when nothing runs."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def status(self) -> list[PartStatus]:
        """How each part is; works from any process."""
        with ThreadPoolExecutor(max_workers=len(PARTS)) as pool:
            return list(pool.map(self._status_of, PARTS))

    @property
    def site(self) -> Site:
        """The cloud that the configuration describes."""
        (self.state / "etc").mkdir(parents=True, exist_ok=True)
        return Site(
            self.state, self.prefix, self.ports, self._compute_url, ensure_secrets(self.state / "etc" / "secrets.json")
        )

    @property
    def credentials(self) -> ServiceCredentials:
        """For our own services."""
        site = self.site
        return ServiceCredentials(
            auth_url=site.auth_url,
            username="nova",
            password=site.secrets["nova"],
            project_name="service",
            region_name=REGION,
            endpoints={entry["type"]: entry["url"] for entry in site.catalog()},
            metadata_proxy_shared_secret=site.secrets["metadata_proxy_shared_secret"],
        )

    def write_clouds_yaml(self, path: Path) -> None:
        """A clouds.yaml, its owner's alone, with `kilonova` (administrator) and `kilonova-demo` (plain user)."""
        write_clouds(self.site, path)

    def _port(self, name: str) -> int:
        return int(getattr(self.ports, name))

    def _status_of(self, name: str) -> PartStatus:
        mark = read_mark(self.state / "run" / f"{name}.json")
        pid = mark.pid if mark is not None and mark.alive() else None
        port = mark.port if mark is not None and mark.port is not None else self._port(name)
        return PartStatus(
            name,
            pid,
            port,
            pid is not None and is_healthy(port, HEALTH_PATHS[name], 5.0),
            resident_mib(pid) if pid else 0.0,
            mark.restarts if mark else 0,
            self.state / "logs" / f"{name}.log",
        )

    def _own_state(self) -> None:
        (self.state / "run").mkdir(parents=True, exist_ok=True)
        lock = (self.state / "run" / "neighbours.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise StateInUse(f"the state directory {self.state} is in use by process {owner}") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _program(self, site: Site, name: str) -> Program:
        launch = "kilonova.embedded.launch"
        python = [str(python_of(self.prefix)), "-P", "-W", "ignore"]
        port = self._port(name)
        if name == "cinder":
            argv = [*python, "-m", f"{launch}.volumes", str(port), str(site.etc / "cinder.conf")]
        else:
            argv = [*python, "-m", f"{launch}.serve", name, str(port), str(THREADS[name])]
            if name == "keystone":
                argv.append(str(site.etc / "identity.json"))
        return Program(name, argv, self._environment(site), port)

    def _environment(self, site: Site) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "TZ", "HOME", "USER") if key in os.environ}
        return kept | {
            "PATH": f"{self.prefix / 'bin'}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(self.state / "lib"),
            "MALLOC_ARENA_MAX": "2",
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "OS_KEYSTONE_CONFIG_FILES": str(site.etc / "keystone.conf"),
            "OS_GLANCE_CONFIG_DIR": str(site.etc),
            "OS_PLACEMENT_CONFIG_DIR": str(site.etc),
            "OS_NEUTRON_CONFIG_DIR": str(site.etc),
            "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
        }
