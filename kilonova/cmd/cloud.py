"""A whole cloud in one process, on the real neighbours as its children.

``Cloud.start`` brings everything up side by side: the neighbours' processes begin while our own databases are made, and
our services start as soon as what they need answers. It returns when a server can be booted. Starting again on the same
state directory goes on with what is there, also after a kill.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kilonova.base import config, log
from kilonova.base.errors import Conflict, NotFound
from kilonova.base.service import Service
from kilonova.base.timers import Timers
from kilonova.clients.options import NeutronOptions
from kilonova.clients.session import Login
from kilonova.cmd import compose, guests, http, settings
from kilonova.cmd.settings import Layout
from kilonova.core.flavor import Flavor
from kilonova.embedded.hypervisor import Hypervisor
from kilonova.embedded.neighbours import Neighbours
from kilonova.embedded.plane.facts import RestFacts
from kilonova.embedded.plane.plane import Plane, available
from kilonova.embedded.ports import Ports, check_free
from kilonova.embedded.settings import REGION
from kilonova.store import flavors
from kilonova.store.cell_mappings import CELL0_UUID
from kilonova.store.cell_setup import register_cells
from kilonova.store.session import Database, Tx

LOG = log.of(__name__)

FLAVORS = (
    ("42", "m1.nano", 1, 128, 1),
    ("84", "m1.micro", 1, 192, 1),
    ("1", "m1.tiny", 1, 512, 1),
    ("2", "m1.small", 1, 2048, 20),
    ("3", "m1.medium", 2, 4096, 40),
    ("4", "m1.large", 4, 8192, 80),
)
"""id, name, vCPUs, MiB of memory, GiB of disk."""
API_THREADS = 12


@dataclasses.dataclass(frozen=True)
class Wishes:
    """What was asked for on the command line. ``driver``: auto, fake or libvirt; ``image``: the guest image's file."""

    state: Path
    driver: str = "auto"
    hosts: int = 1
    cells: int = 1
    port_offset: int = 0
    image: Path | None = None


class Cloud:
    """The cloud of one state directory. ``say`` is told what goes on, a line each."""

    def __init__(self, wishes: Wishes, *, say: Callable[[str], None]) -> None:
        self.wishes, self._say = wishes, say
        self.layout = Layout(wishes.state.absolute(), Ports.moved(wishes.port_offset))
        self.neighbours = Neighbours(self.layout.state, ports=self.layout.ports, on_event=lambda event: say(event.text))
        self.hypervisor = ""
        self._running: list[Service] = []
        self._stops: list[Callable[[], object]] = []

    def start(self) -> None:
        """Bring it up; raises what hinders, with everything stopped again."""
        begun = time.monotonic()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        LOG.info("ready after %.1f s", time.monotonic() - begun)

    def _start(self) -> None:
        if self.wishes.image is not None:
            _check_image(self.wishes.image)
        for name, port in (("nova-api", self.layout.ports.nova), ("nova-metadata-api", self.layout.ports.metadata)):
            check_free(name, port)
        self.neighbours.ensure_installed()
        driver, why = choose_driver(self.wishes.driver, self.layout.state)
        self.hypervisor = f"{driver} ({why})"
        self._say(f"hypervisor: {self.hypervisor}")
        self.neighbours.start()
        with ThreadPoolExecutor(4, "start") as pool:
            schemas = pool.submit(self._ensure_databases)
            bootstrap = pool.submit(self.neighbours.bootstrap)
            self.neighbours.write_clouds_yaml(self.layout.clouds)
            site = self._site(driver)
            schemas.result()
            image = pool.submit(self._ensure_image, driver)
            self._start_services(site, driver)
            bootstrap.result()
            image.result()
            self._await_hosts(site)

    def _ensure_databases(self) -> None:
        """Our schemas, the cells' records and the flavors; all idempotent."""
        api = Database(self.layout.database("nova_api"), schema="api", name="the API")
        cells = self.layout.cells(self.wishes.cells)
        with ThreadPoolExecutor(4) as pool:
            waits: list[Future[None]] = [pool.submit(api.sync)]
            for cell in cells:
                database = Database(cell.database_url, schema="cell", name=cell.name)
                waits.append(pool.submit(database.sync))
            for wait in waits:
                wait.result()
        api.write(lambda tx: register_cells(tx, cells))
        api.write(_ensure_flavors)
        api.close()

    def _site(self, driver: str) -> compose.Site:
        found = settings.sections(self.layout, self.neighbours.credentials, host=socket.gethostname(), driver=driver)
        settings.write_private(self.layout.conf, settings.as_ini(found))
        files = [path for path in (self.layout.conf, self.layout.local_conf) if path.exists()]
        return compose.Site(config.load(files), timers=Timers(workers=8))

    def _start_services(self, site: compose.Site, driver: str) -> None:
        # What an earlier process left unfinished would fail while the neighbours are not there, and find no host while
        # none has joined: after more than a minute all of them count as down.
        self.neighbours.wait_ready()
        joined = threading.Event()
        for service in (compose.conductor(site, ready=joined.is_set), compose.scheduler(site)):
            service.start()
            self._running.append(service)
        for service in self._hosts(site, driver):
            service.start()
            self._running.append(service)
        _await_joined(site, count=1 if driver == "libvirt" else self.wishes.hosts)
        joined.set()
        self._serve(compose.api_application(site), ("127.0.0.1", self.layout.ports.nova), "nova-api", API_THREADS)
        metadata = compose.metadata_application(site, secret=self.neighbours.credentials.metadata_proxy_shared_secret)
        self._serve(metadata, ("127.0.0.1", self.layout.ports.metadata), "nova-metadata-api", 4)
        self.layout.metadata_socket.unlink(missing_ok=True)
        self._serve(metadata, str(self.layout.metadata_socket), "metadata-socket", 2)

    def _hosts(self, site: compose.Site, driver: str) -> list[Service]:
        cells = [m.uuid for m in site.cells.all() if m.uuid != CELL0_UUID]
        if driver == "libvirt":
            self._start_hypervisor(site)
            return compose.hosts(site, [(site.process.host, cells[0])], driver=driver)
        names = [(f"host-{number + 1}", cells[number % len(cells)]) for number in range(self.wishes.hosts)]
        return compose.hosts(site, names, driver=driver)

    def _start_hypervisor(self, site: compose.Site) -> None:
        """libvirt's daemons, where the machine does not run them, and the networks of guests; as root only."""
        if os.geteuid() != 0:
            self._say("guests have QEMU's own network: they reach out, nothing reaches them (bridges need root)")
            self._stops.append(lambda: guests.end(self.layout))
            return
        daemons = Hypervisor(self.layout.state, on_event=lambda event: self._say(event.text))
        daemons.start()
        self._stops.append(daemons.stop)
        usable, reason = available()
        if not usable:
            raise RuntimeError(f"real guests need networks: {reason}")
        session: Any = Login(config.read(NeutronOptions, site.conf)).session
        facts = RestFacts(session, region=REGION)
        networks = Plane(
            self.layout.state,
            facts,
            metadata=str(self.layout.metadata_socket),
            secret=self.neighbours.credentials.metadata_proxy_shared_secret,
            host=site.process.host,
        )
        networks.start()
        self._stops.append(lambda: _say_each(networks.teardown(), self._say))
        self._stops.append(lambda: guests.end(self.layout))

    def _serve(self, application: object, address: tuple[str, int] | str, name: str, threads: int) -> None:
        self._stops.append(http.serve(application, address, name=name, threads=threads))

    def _ensure_image(self, driver: str) -> None:
        self.neighbours.wait_ready(parts=("keystone", "glance"))
        path = self.wishes.image
        if path is None:
            path = self.layout.state / "data" / "placeholder.raw"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(1 << 20))
            self.neighbours.ensure_image("placeholder", path, "raw")
            return
        self.neighbours.ensure_image("guest", path, "qcow2", {"hw_rng_model": "virtio"})

    def _await_hosts(self, site: compose.Site, seconds: float = 120.0) -> None:
        """Until every host is up and has room in Placement."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = site.neighbours.placement.candidates([("resources", "VCPU:1"), ("limit", "1")])
            if found.requests:
                return
            time.sleep(0.1)
        raise TimeoutError(f"no host came up within {seconds:.0f} s: see {self.layout.log}")

    def stop(self) -> None:
        """End everything, in the reverse order of the start: services, then real guests with their networks, then the
        neighbours. The data stays."""
        for service in reversed(self._running):
            service.stop()
        self._running.clear()
        for stop in reversed(self._stops):
            stop()
        self._stops.clear()
        self.neighbours.stop()


def _await_joined(site: compose.Site, *, count: int, seconds: float = 60.0) -> None:
    """Until so many hosts count as up; with fewer it goes on in the end, for they may join later."""
    conductor, deadline = site.conductor(""), time.monotonic() + seconds
    while len(conductor.host_states(marker="").all) < count:
        if time.monotonic() > deadline:
            LOG.warning("not all of %d hosts have joined within %.0f s", count, seconds)
            return
        time.sleep(0.1)


def _say_each(texts: Iterable[str], say: Callable[[str], None]) -> None:
    for text in texts:
        say(text)


def _check_image(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) != b"QFI\xfb":
            raise ValueError(f"{path} is no qcow2 image (qemu-img convert -O qcow2 makes one from other formats)")


def choose_driver(wanted: str, state: Path) -> tuple[str, str]:
    """The driver and why: auto takes libvirt where a real guest can be run, else the simulated one."""
    if wanted == "fake":
        return "fake", "asked for"
    usable, why = compose.probe_libvirt(state)
    if wanted == "libvirt" and not usable:
        raise RuntimeError(f"libvirt cannot be used here: {why}")
    return ("libvirt", why) if usable else ("fake", f"libvirt cannot be used: {why}")


def _ensure_flavors(tx: Tx) -> None:
    for flavorid, name, vcpus, memory, disk in FLAVORS:
        try:
            flavors.get(tx, flavorid)
        except NotFound:
            try:
                flavors.insert(tx, Flavor(flavorid=flavorid, name=name, vcpus=vcpus, memory_mb=memory, root_gb=disk))
            except Conflict:
                LOG.info("a flavor called %s is there already", name)
