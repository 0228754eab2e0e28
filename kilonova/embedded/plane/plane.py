"""The local network plane: keeps this host's networks as Neutron says they should be.

It reads Neutron's facts when poked by the mechanism driver (a datagram to `run/plane.sock`) and every few seconds
anyway, compares what should be with what the host has, and changes the difference. It keeps no record of its own:
after a kill the next run finds everything by its marks and goes on. Stopping leaves the networks up, as guests use
them; `teardown` removes all.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import logging
import os
import shutil
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.plane.commands import CommandFailed, Commands, run
from kilonova.embedded.plane.desire import Outcome, Place, desire
from kilonova.embedded.plane.execute import Executor
from kilonova.embedded.plane.facts import Facts, NeutronFacts, Port
from kilonova.embedded.plane.metadata_proxy import MetadataProxy
from kilonova.embedded.plane.observe import observe
from kilonova.embedded.plane.parts import Bridge, HostState, Namespace
from kilonova.embedded.plane.plan import Change, plan

LOG = logging.getLogger(__name__)
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "dnsmasq": "dnsmasq-base"}
ROUNDS = 3
LOOK_SECONDS = 30.0
# Pokes come in bursts: one look serves all that came within this time, and Neutron, which has one thread to answer
# with, is not asked again sooner than this.
GATHER_SECONDS = 0.15
REST_SECONDS = 1.0


class PlaneInUse(EmbeddedError):
    """Another process runs the plane of this state directory."""


class Status(msgspec.Struct, frozen=True):
    """How the plane is. Times are Unix seconds, 0.0 for never.

    `good` says that the last look ended with the host as it should be; `problems` may name what a person should know
    even so.
    """

    running: bool
    good: bool = False
    last_good: float = 0.0
    seconds: float = 0.0
    networks: int = 0
    routers: int = 0
    guests: int = 0
    problems: tuple[str, ...] = ()


def available() -> tuple[bool, str]:
    """Whether the plane can work here, and what it lacks."""
    if os.geteuid() != 0:
        return False, "real networks for guests need root"
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        return False, f"missing programs: apt-get install {' '.join(missing)}"
    _load_bridge_filter()
    if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        return False, "the kernel module br_netfilter is missing; security groups need it"
    probe = f"kn-probe-{os.getpid()}"
    try:
        run(["ip", "netns", "add", probe])
        run(["ip", "netns", "del", probe])
        run(["nft", "-c", "-f", "-"], "table bridge kn_probe { }\n")
    except CommandFailed as failed:
        return False, f"this kernel or container does not allow it: {failed}"
    return True, ""


def _load_bridge_filter() -> None:
    try:
        run(["modprobe", "-q", "br_netfilter"])
    except CommandFailed:
        LOG.debug("br_netfilter was not loaded; it may be built in")


def _host_dns() -> tuple[str, ...]:
    """The host's own DNS servers, without those that only the host itself reaches."""
    try:
        lines = Path("/etc/resolv.conf").read_text().splitlines()
    except OSError:
        return ()
    servers = [fields[1] for line in lines if len(fields := line.split()) >= 2 and fields[0] == "nameserver"]
    found: list[str] = []
    for server in servers:
        try:
            address = ipaddress.ip_address(server)
        except ValueError:
            continue
        if address.version == 4 and not address.is_loopback:
            found.append(server)
    return tuple(found)


class Plane:
    """The plane of one state directory.

    `facts` tells what Neutron has; `metadata` is where the metadata service listens (a Unix socket's path or
    `host:port`) and `secret` signs the questions to it. `host` is Neutron's name of this host; None serves every
    bound port. `interval` is the longest time in seconds between two looks at Neutron.
    """

    def __init__(
        self,
        state_dir: Path,
        facts: NeutronFacts,
        *,
        metadata: str,
        secret: str,
        host: str | None = None,
        domain: str = "novalocal",
        interval: float = 5.0,
        host_namespace: str | None = None,
    ) -> None:
        state_dir = state_dir.resolve()
        tag = hashlib.sha256(str(state_dir).encode()).hexdigest()[:6]
        self._place = Place(tag, state_dir / "plane", host=host, domain=domain, dns=_host_dns())
        self.socket_path = state_dir / "run" / "plane.sock"
        self._neutron = facts
        self._interval = interval
        self._commands = Commands(host_namespace)
        self._executor = Executor(self._commands, self._place)
        self._proxy = MetadataProxy(metadata, secret, self._find_port)
        self._ports: dict[tuple[str, str], Port] = {}
        self._serves: dict[str, frozenset[str]] = {}
        self._facts: Facts | None = None
        self._looked = 0.0
        self._status = Status(running=False)
        self._working = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock_file: int | None = None

    # --- life

    def start(self) -> None:
        """Take the state directory, listen to pokes and keep the networks right from now on."""
        self._take()
        self.socket_path.unlink(missing_ok=True)
        poked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            poked.bind(str(self.socket_path))
        except OSError as error:
            poked.close()
            self._release()
            raise EmbeddedError(f"the network plane cannot listen at {self.socket_path}: {error}") from error
        self._stopping.clear()
        self._status = msgspec.structs.replace(self._status, running=True)
        self._thread = threading.Thread(target=self._run, args=(poked,), name="network plane", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the work; networks stay as they are, metadata is not answered."""
        self._stopping.set()
        self.poke()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._proxy.close()
        self._status = msgspec.structs.replace(self._status, running=False)
        self._release()

    def poke(self) -> None:
        """Have the plane look at once, as the mechanism driver does from outside."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(b"{}", str(self.socket_path))
            except OSError as error:
                LOG.debug("the plane is not listening: %s", error)

    def status(self) -> Status:
        """How the plane is now."""
        return self._status

    def teardown(self) -> list[str]:
        """Remove everything that the plane ever made here; texts say what would not go."""
        if self._thread is not None:
            self.stop()
        self._take()
        self._proxy.close()
        problems: list[str] = []
        with self._working:
            for _ in range(ROUNDS):
                changes = plan((), observe(self._commands, self._place).parts)
                if not changes:
                    break
                problems = [text for change in changes for text in self._obey(change)]
            shutil.rmtree(self._place.folder, ignore_errors=True)
            self.socket_path.unlink(missing_ok=True)
        self._facts = None
        self._release()
        return problems

    def _take(self) -> None:
        self._place.folder.mkdir(parents=True, exist_ok=True)
        self.socket_path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.socket_path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise PlaneInUse(f"another process runs the network plane of {self._place.folder.parent}") from error
        self._lock_file = descriptor

    def _release(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _run(self, poked: socket.socket) -> None:
        with poked:
            while not self._stopping.is_set():
                started = time.monotonic()
                # A look that failed is soon tried again; a good one lasts until a poke or the interval's end.
                again = self._interval if self._look() else min(REST_SECONDS, self._interval)
                poked.settimeout(again)
                with suppress(TimeoutError):
                    poked.recv(4096)
                    poked.settimeout(GATHER_SECONDS)
                    deadline = time.monotonic() + GATHER_SECONDS
                    while time.monotonic() < deadline and not self._stopping.is_set():
                        poked.recv(4096)
                self._stopping.wait(max(0.0, started + REST_SECONDS - time.monotonic()))

    def _look(self) -> bool:
        try:
            self.reconcile_once(lazily=True)
        except Exception as error:
            # The plane must outlive whatever Neutron or the kernel says.
            LOG.warning("the network plane could not work: %s", error)
            self._status = msgspec.structs.replace(self._status, good=False, problems=(str(error),))
        return self._status.good

    # --- work

    def reconcile_once(self, *, lazily: bool = False) -> tuple[str, ...]:
        """Read the facts and make the host agree; texts say what is not well, none when all is.

        `lazily` leaves the host alone when the facts are as before and the last look is fresh.
        """
        with self._working:
            started = time.monotonic()
            facts = self._neutron.read()
            fresh = started - self._looked < LOOK_SECONDS and self._status.good
            if lazily and fresh and facts == self._facts:
                return self._status.problems
            self._looked = started
            self._place.folder.mkdir(parents=True, exist_ok=True)
            failures, outcome = self._converge(facts)
            self._status = Status(
                running=self._thread is not None,
                good=not failures,
                last_good=self._status.last_good if failures else time.time(),
                seconds=time.monotonic() - started,
                networks=sum(isinstance(part, Bridge) for part in outcome.parts),
                routers=sum(isinstance(part, Namespace) and part.forwards for part in outcome.parts),
                guests=sum(port.is_guests and self._place.host in (None, port.host) for port in facts.ports),
                problems=(*failures, *outcome.problems),
            )
            return self._status.problems

    def _converge(self, facts: Facts) -> tuple[list[str], Outcome]:
        """Look, plan and obey, until there is nothing to do or three rounds did not help."""
        state = observe(self._commands, self._place)
        reserve = desire(facts, self._place, state).reserve
        for network_id, subnet_ids in reserve.items():
            self._neutron.reserve_dhcp_port(network_id, subnet_ids, self._place.host or "")
        if reserve:
            facts = self._neutron.read()
        for number in range(1, ROUNDS + 1):
            outcome = desire(facts, self._place, state)
            self._remember(facts, outcome)
            failures = [*self._change(outcome, state), *self._proxy.serve(outcome.serves)]
            state = observe(self._commands, self._place)
            left = plan(outcome.parts, state.parts)
            if not left or number == ROUNDS:
                return [*failures, *(f"not reached: {change}" for change in left)], outcome
        raise AssertionError("the last round returns")

    def _remember(self, facts: Facts, outcome: Outcome) -> None:
        self._facts = facts
        self._ports = {(p.network_id, ip.ip_address): p for p in facts.ports for ip in p.fixed_ips if p.is_guests}
        self._serves = outcome.serves

    def _change(self, outcome: Outcome, state: HostState) -> list[str]:
        changes = plan(outcome.parts, state.parts)
        # A listening socket would keep a removed namespace, and its devices, alive.
        going = {change.part.name for change in changes if isinstance(change.part, Namespace)}
        self._proxy.serve({name: nets for name, nets in outcome.serves.items() if name not in going})
        return [text for change in changes for text in self._obey(change)]

    def _obey(self, change: Change) -> list[str]:
        try:
            self._executor.obey(change)
        except (CommandFailed, OSError) as error:
            LOG.warning("network plane: %s", error)
            return [str(error)]
        return []

    def _find_port(self, namespace: str, address: str) -> Port | None:
        found = [self._ports.get((network, address)) for network in self._serves.get(namespace, ())]
        ports = [port for port in found if port is not None]
        return ports[0] if len(ports) == 1 else None
