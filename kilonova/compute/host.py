"""A host: answers the contract ``Compute`` for one hypervisor, and keeps the rest informed of it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from kilonova.base import log
from kilonova.base.context import acting, service_context
from kilonova.base.engine import utcnow
from kilonova.base.errors import Fault, NotImplementedHere
from kilonova.base.flow import Work
from kilonova.base.pool import Draining, Pool
from kilonova.base.rpc import Bus, client, handler
from kilonova.base.timers import Timer, Timers
from kilonova.clients.neighbours import Neighbours
from kilonova.clients.vendordata import VendorData
from kilonova.compute.images import Images
from kilonova.compute.options import ComputeOptions
from kilonova.compute.standing import Standing
from kilonova.compute.steps import Builds, Steps, Tools, perform
from kilonova.compute.work import Check, Desk
from kilonova.contracts import GENERATION
from kilonova.contracts.compute import Attached, Compute, Nothing, Plugged, Power, Spawned
from kilonova.contracts.conductor import Conductor, Joined
from kilonova.core.device import BlockDevice
from kilonova.core.network import NetworkRequest, Nic
from kilonova.core.options import HeartbeatOptions
from kilonova.core.server import Guest
from kilonova.virt.roles import CRASHED, RUNNING, SHUTDOWN, Driver, Interrupts, Logs, Powers, StagesImages, Watches

LOG = log.of(__name__)

BINARY = "nova-compute"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
ANSWER_SECONDS = 15.0
"""A conductor that dies over a question leaves it unanswered: it is asked again, of another one."""


class Shared:
    """What the hosts of one process share, so that a thousand of them cost no thousand threads.

    ``vendor``: the operator's vendor data, told on config drives.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        *,
        timers: Timers,
        options: ComputeOptions = ComputeOptions(),  # noqa: B008 frozen
        heartbeats: HeartbeatOptions = HeartbeatOptions(),  # noqa: B008 frozen
        pool: Pool | None = None,
        vendor: VendorData | None = None,
    ) -> None:
        self.vendor = vendor
        self.neighbours, self.timers, self.options, self.heartbeats = neighbours, timers, options, heartbeats
        self.pool = pool or Pool(options.max_concurrent_work, "compute")
        # Hosts that come up wait for Placement; the work of those that are up does not wait behind them.
        self.arrivals = Pool(8, "arrivals")


class ComputeHost:
    """Implements ``Compute``. ``start`` returns at once; ``ready`` is set when the host can be chosen for servers."""

    def __init__(self, host: str, driver: Driver, *, bus: Bus, shared: Shared) -> None:
        self.host, self.driver, self._bus, self._shared = host, driver, bus, shared
        self._conductor = client(Conductor, bus, timeout=ANSWER_SECONDS)
        self.ready = threading.Event()
        self._powers: dict[str, int] = {}
        self._stop_serving: Any = None
        self._timers: list[Timer] = []
        self._started = False
        self._joined: Joined | None = None
        self._stopped = False
        self._pause = FIRST_PAUSE
        self._silent = False
        self._beaten, self._forced_down = 0.0, False
        builds = Builds()
        self.desk = Desk(
            host,
            self._perform,
            report=lambda report: self._conductor.report(report=report),
            pool=shared.pool,
            timers=shared.timers,
            interrupt=self._interrupt,
        )
        self.standing = Standing(
            driver,
            conductor=self._conductor,
            placement=shared.neighbours.placement,
            options=shared.options,
            timers=shared.timers,
            building=self.desk.building,
            failed_builds=lambda: builds.failed,
        )
        images = Images(driver.image_folder(), shared.neighbours.glance) if isinstance(driver, StagesImages) else None
        self._tools = Tools(
            host=host,
            driver=driver,
            neutron=shared.neighbours.neutron,
            cinder=shared.neighbours.cinder,
            images=images,
            options=shared.options,
            builds=builds,
            changed=self.standing.changed,
            power_seen=self._note_power,
            vendor=shared.vendor,
        )
        self._steps = Steps(self._tools)

    # --- life

    def start(self) -> None:
        """Begin to come up; what is not there yet (the conductor, Placement) is waited for without a thread."""
        self._again(0.0)

    def _again(self, seconds: float) -> None:
        self._shared.timers.once(seconds, self._hand_to_pool, name="join")

    def _hand_to_pool(self) -> None:
        with contextlib.suppress(Draining):
            self._shared.arrivals.run(self._come_up)

    def _come_up(self) -> None:
        if self._stopped:
            return
        try:
            with acting(service_context(BINARY)):
                if self._joined is None:
                    self._join()
                self.standing.place(self.standing.node())
        except Exception as error:
            known = isinstance(error, Fault)
            LOG.warning("%s is not up yet, again in %.1f s: %s", self.host, self._pause, error, exc_info=not known)
            self._again(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            return
        self.standing.begin(self.host)
        self.ready.set()

    def _join(self) -> None:
        if not self._started:
            self.driver.start()
            self._started = True
        joined = self._conductor.join(host=self.host, binary=BINARY, version=GENERATION, node=self.standing.node())
        self.standing.disabled = joined.disabled
        self._remove_strangers(joined.expected, self.driver.guests())
        if isinstance(self.driver, Watches):
            self.driver.watch(self._power_changed)
        self._stop_serving = self._bus.serve("compute", self.host, handler(Compute, self))
        self._joined, self._beaten = joined, time.monotonic()
        self._tell_powers(joined.expected)
        self._begin_timers()
        waiting = self._conductor.live_runs(host=self.host)
        LOG.info("%s has joined, with %d guests; %d runs wait for it", self.host, len(self._powers), len(waiting))

    def _remove_strangers(self, expected: dict[str, str], guests: dict[str, int]) -> None:
        """Guests whose servers were deleted or went elsewhere while the host was away. They were there before the
        servers were asked for, so none of them can be new."""
        for server, power in guests.items():
            if server in expected or self.desk.busy(server):
                self._powers.setdefault(server, power)
                continue
            action = self._shared.options.running_deleted_instance_action
            if action != "noop":
                LOG.warning("guest %s is not expected on %s: %s", server, self.host, action)
            try:
                if action == "reap":
                    self.driver.remove_guest(server)
                elif action == "shutdown" and isinstance(self.driver, Powers):
                    self.driver.power_off(server, grace=0)
            except Exception:
                LOG.exception("guest %s could not be put away", server)

    def _tell_powers(self, expected: dict[str, str]) -> None:
        """Tell of the guests whose power contradicts their servers' states."""
        now = utcnow()
        for server, power in list(self._powers.items()):
            state = expected.get(server)
            odd = (state == "active" and power != RUNNING) or (state == "stopped" and power not in (SHUTDOWN, CRASHED))
            if odd:
                self._conductor.record_power(server=server, host=self.host, power_state=power, at=now)

    def _begin_timers(self) -> None:
        timers, options = self._shared.timers, self._shared.options
        every = self._shared.heartbeats.report_interval
        self._timers.append(timers.every(every, self._beat, name="heartbeat"))
        if options.sync_power_state_interval >= 0:
            spacing = options.sync_power_state_interval or 60
            self._timers.append(timers.every(spacing, self.sync_powers, name="power sync"))
        if options.running_deleted_instance_poll_interval:
            spacing = options.running_deleted_instance_poll_interval
            self._timers.append(timers.every(spacing, self._catch_up, name="strangers", jitter=spacing / 10))

    def stop_serving(self) -> None:
        """Take no more work; what is under way goes on."""
        if self._stop_serving is not None:
            self._stop_serving()
            self._stop_serving = None

    def stop(self) -> None:
        """Leave in good order; guests go on."""
        self._stopped = True
        self.stop_serving()
        self.standing.end()
        for timer in self._timers:
            timer.stop()
        if self._joined is not None:
            try:
                self._conductor.leave(host=self.host, binary=BINARY)
            except Fault as error:
                LOG.info("%s could not say that it leaves: %s", self.host, error.message)
        self.driver.close()

    def _beat(self) -> None:
        try:
            beat = self._conductor.beat(host=self.host, binary=BINARY)
            if not beat.known:
                self._conductor.join(host=self.host, binary=BINARY, version=GENERATION, node=self.standing.node())
        except Fault as error:
            if not self._silent:
                LOG.warning("%s: the heartbeat is not heard: %s", self.host, error.message)
            self._silent = True
            return
        if self._silent:
            LOG.info("%s: the heartbeat is heard again", self.host)
        now = time.monotonic()
        away = self._silent or self._forced_down or now - self._beaten > self._shared.heartbeats.service_down_time
        self._silent, self._beaten, self._forced_down = False, now, beat.forced_down
        if away and not beat.forced_down:
            self._catch_up()
        self.standing.set_disabled(beat.disabled)

    def _catch_up(self) -> None:
        """The host may have been taken for dead: servers were deleted without it, runs wait for its next look.

        What is new since the guests were counted is not among them; what is being worked on is looked after there.
        """
        guests = {server: power for server, power in self.driver.guests().items() if not self.desk.busy(server)}
        try:
            joined = self._conductor.join(host=self.host, binary=BINARY, version=GENERATION, node=self.standing.node())
            self._conductor.live_runs(host=self.host)
        except Fault as error:
            LOG.warning("%s: what went on meanwhile is not known: %s", self.host, error.message)
            self._silent = True
            return
        self._remove_strangers(joined.expected, guests)

    # --- powers

    def _note_power(self, server: str, power: int | None) -> None:
        if power is None:
            self._powers.pop(server, None)
        else:
            self._powers[server] = power

    def _power_changed(self, server: str, power: int) -> None:
        """A guest changed of itself. Under work, the step that changes it tells the outcome."""
        if self.desk.busy(server) or self._powers.get(server) == power:
            return
        self._powers[server] = power
        self._conductor.record_power(server=server, host=self.host, power_state=power, at=utcnow())
        self.standing.changed()

    def sync_powers(self) -> None:
        """Look at all guests; tell of those that are not as they were last seen."""
        guests = self.driver.guests()
        for server, power in guests.items():
            if server in self._powers:
                self._power_changed(server, power)
        for server in [s for s in list(self._powers) if s not in guests]:
            self._power_changed(server, SHUTDOWN)

    def _interrupt(self, server: str) -> None:
        if isinstance(self.driver, Interrupts):
            self.driver.interrupt(server)

    def _perform(self, method: str, state: dict[str, Any], check: Check) -> dict[str, Any]:
        return perform(self._tools, method, state, check)

    # --- the contract

    def perform(self, *, work: Work) -> None:
        self.desk.take(work)

    def forget(self, *, run: str) -> None:
        self.desk.forget(run)

    def console_output(self, *, server: str, length: int | None) -> str:
        if not isinstance(self.driver, Logs):
            raise NotImplementedHere("The hypervisor of this server keeps no console log.")
        text = self.driver.console_output(server).decode(errors="replace")
        if length is None or length < 0:
            return text
        return "\n".join(text.split("\n")[-length:]) if length else ""

    def plug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Plugged:
        return self._steps.plug_ports(guest=guest, networks=networks, host=host)

    def unplug_ports(self, *, guest: Guest, networks: list[NetworkRequest] | None, host: str) -> Nothing:
        return self._steps.unplug_ports(guest=guest, networks=networks, host=host)

    def attach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Attached:
        return self._steps.attach_volumes(guest=guest, devices=devices, host=host)

    def detach_volumes(self, *, guest: Guest, devices: list[BlockDevice], host: str) -> Nothing:
        return self._steps.detach_volumes(guest=guest, devices=devices, host=host)

    def spawn_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Spawned:
        return self._steps.spawn_guest(guest=guest, nics=nics, devices=devices)

    def destroy_guest(self, *, guest: Guest, devices: list[BlockDevice] = []) -> Nothing:  # noqa: B006 the contract's
        return self._steps.destroy_guest(guest=guest, devices=devices)

    def start_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice]) -> Power:
        return self._steps.start_guest(guest=guest, nics=nics, devices=devices)

    def stop_guest(self, *, guest: Guest) -> Power:
        return self._steps.stop_guest(guest=guest)

    def reboot_guest(self, *, guest: Guest, nics: list[Nic], devices: list[BlockDevice], hard: bool = False) -> Power:
        return self._steps.reboot_guest(guest=guest, nics=nics, devices=devices, hard=hard)
