"""A host with a fake driver, neighbours in memory and a conductor that follows a script."""

from __future__ import annotations

import datetime
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kilonova.base.bus_local import LocalBus
from kilonova.base.errors import DatabaseUnavailable
from kilonova.base.flow import Report, Work, WorkStep
from kilonova.base.pool import Pool
from kilonova.base.rpc import client, handler
from kilonova.base.timers import Timers
from kilonova.clients.fakes.neighbours import fake_neighbours
from kilonova.compute.host import ComputeHost, Shared
from kilonova.compute.options import ComputeOptions
from kilonova.contracts.compute import Compute
from kilonova.contracts.conductor import Beat, Conductor, Joined
from kilonova.core.device import BlockDevice
from kilonova.core.host import Node
from kilonova.core.network import NetworkRequest
from kilonova.core.server import Guest
from kilonova.virt.fake.driver import FakeHypervisors
from kilonova.virt.fake.options import FakeOptions

BUILD = ("plug_ports", "attach_volumes", "spawn_guest")
UNDO = ("destroy_guest", "detach_volumes", "unplug_ports")


def until(check: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class ScriptedConductor:
    """Implements what a host asks of ``Conductor``. ``refused``: runs whose reports are not wanted; ``deaf``: how many
    reports are lost before one is heard."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.refused: set[str] = set()
        self.deaf = 0
        self.joins: list[str] = []
        self.expected: dict[str, str] = {}
        self.disabled = False
        self.forced_down = False
        self.known = True
        self.beats = 0
        self.left: list[str] = []
        self.nodes: list[Node] = []
        self.powers: list[tuple[str, int]] = []
        self.asked_for_runs: list[str] = []
        self._lock = threading.Lock()

    def wake(self, *, run: str, where: str) -> None:
        raise AssertionError

    def report(self, *, report: Report) -> bool:
        with self._lock:
            if self.deaf:
                self.deaf -= 1
                raise DatabaseUnavailable(where="the cell")
            self.reports.append(report)
            return report.run not in self.refused

    def join(self, *, host: str, binary: str, version: int, node: Node | None) -> Joined:
        with self._lock:
            self.joins.append(host)
        assert node is not None
        self.nodes.append(node)
        return Joined(service_uuid="s", cell="c", expected=self.expected, disabled=self.disabled)

    def beat(self, *, host: str, binary: str) -> Beat:
        self.beats += 1
        return Beat(known=self.known, disabled=self.disabled, forced_down=self.forced_down)

    def leave(self, *, host: str, binary: str) -> None:
        self.left.append(host)

    def record_node(self, *, node: Node) -> None:
        self.nodes.append(node)

    def record_power(self, *, server: str, host: str, power_state: int, at: datetime.datetime) -> None:
        self.powers.append((server, power_state))

    def record_nics(self, *, server: str, nics: list[Any]) -> None:
        raise AssertionError

    def live_runs(self, *, host: str) -> list[str]:
        self.asked_for_runs.append(host)
        return []

    def told(self, run: str) -> list[tuple[str, bool]]:
        """Steps reported of a run, and whether each came off."""
        return [(report.step, report.error is None) for report in self.reports if report.run == run]


class Scene:
    """One process with hosts."""

    def __init__(
        self, folder: Path, *, hosts: int = 1, serve_conductor: bool = True, start: bool = True, **options: Any
    ) -> None:
        self.neighbours = fake_neighbours()
        self.network = self.neighbours.neutron.add_network("private", project_id="project").id
        self.conductor = ScriptedConductor()
        self.bus = LocalBus()
        self.timers = Timers(workers=4)
        self._folder, self._hosts, self._start = folder, hosts, start
        self._options = ComputeOptions(**options)
        if serve_conductor:
            self.serve_conductor()
        self.open()

    def serve_conductor(self) -> None:
        self.bus.serve("conductor", "conductor-1", handler(Conductor, self.conductor))

    def open(self) -> None:
        """The process begins; again after ``kill``."""
        self.hypervisors = FakeHypervisors(self._folder, options=FakeOptions(hosts=self._hosts))
        self.shared = Shared(
            self.neighbours.typed(), timers=self.timers, options=self._options, pool=Pool(8, "compute")
        )
        self.hosts = [
            ComputeHost(name, driver, bus=self.bus, shared=self.shared) for name, driver in self.hypervisors.drivers()
        ]
        for host in self.hosts if self._start else []:
            host.start()

    def late_host(self, name: str) -> ComputeHost:
        """One more host, started now."""
        _, driver = next(FakeHypervisors(self._folder, options=FakeOptions(), names=[name]).drivers())
        host = ComputeHost(name, driver, bus=self.bus, shared=self.shared)
        host.start()
        self.hosts.append(host)
        return host

    @property
    def host(self) -> ComputeHost:
        return self.hosts[0]

    @property
    def orders(self) -> Any:
        return self.hypervisors.orders

    def kill(self) -> None:
        """The process is gone without a word."""
        for host in self.hosts:
            host.stop_serving()
            host.standing.end()

    def close(self) -> None:
        for host in self.hosts:
            host.stop()
        self.timers.close(5)
        self.shared.arrivals.drain(5)
        self.shared.pool.drain(5)
        self.bus.close()

    def compute(self) -> Compute:
        return client(Compute, self.bus, host=self.host.host)

    def work(
        self,
        guest: Guest,
        methods: tuple[str, ...] = BUILD,
        *,
        run: str = "",
        attempt: int = 0,
        undo: bool = False,
        devices: tuple[BlockDevice, ...] = (),
        networks: bool = True,
        **more: Any,
    ) -> Work:
        state = {
            "guest": guest,
            "networks": [NetworkRequest(network_id=self.network)] if networks else None,
            "devices": list(devices),
            "nics": [],
            "host": self.host.host,
            "something_else": 1,
            **more,
        }
        return Work(
            run=run or str(uuid.uuid4()),
            attempt=attempt,
            steps=[WorkStep(method.removesuffix("_guest"), method) for method in methods],
            state=msgspec.to_builtins(state),
            subject=guest.server.uuid,
            undo=undo,
            where="cell-1",
        )

    def perform(self, work: Work) -> str:
        self.compute().perform(work=work)
        return work.run

    def finish(self, work: Work) -> list[tuple[str, bool]]:
        """Send work, wait until it has ended; what was reported."""
        before = len(self.conductor.told(work.run))
        self.perform(work)
        until(lambda: len(self.conductor.told(work.run)) > before and not self.host.desk.busy(work.subject))
        return self.conductor.told(work.run)
