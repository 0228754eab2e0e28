"""A simulated host."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kilonova.base.errors import BuildAborted, BuildFailed, ServerNotFound
from kilonova.core.host import Node
from kilonova.virt.fake.console import console_text
from kilonova.virt.fake.disk import Disk, Domain
from kilonova.virt.fake.options import FakeOptions
from kilonova.virt.fake.orders import Orders, failure, ordered_by
from kilonova.virt.identity import identity
from kilonova.virt.roles import NOSTATE, RUNNING, SHUTDOWN, GuestPlan

TRAITS = [
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_AKI",
    "COMPUTE_IMAGE_TYPE_AMI",
    "COMPUTE_IMAGE_TYPE_ARI",
    "COMPUTE_IMAGE_TYPE_ISO",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_VOLUME_MULTI_ATTACH",
]
CPU_RATIO, RESERVED_MEMORY_MB = 4.0, 512


class FakeDriver:
    """Implements ``Driver``, ``Powers``, ``Logs``, ``Watches``, ``Interrupts``. One object is one host."""

    hypervisor_type = "fake"

    def __init__(
        self,
        host: str,
        *,
        node_uuid: str,
        folder: Path | None = None,
        options: FakeOptions = FakeOptions(),  # noqa: B008 frozen
        orders: Orders | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host, self._node_uuid, self._options, self._clock = host, node_uuid, options, clock
        self.orders = orders or Orders()
        self._disk = Disk(folder)
        self._domains: dict[str, Domain] = {}
        self._making: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._changed: Callable[[str, int], None] | None = None

    # --- Driver

    def start(self) -> None:
        """Take up the guests that were there."""
        with self._lock:
            self._domains = self._disk.read()

    def close(self) -> None:
        """Nothing is held."""

    def node(self) -> Node:
        self._obey("node", "", {})
        options = self._options
        with self._lock:
            domains = list(self._domains.values())
        totals = {"VCPU": options.vcpus, "MEMORY_MB": options.memory_mb, "DISK_GB": options.disk_gb}
        inventory: dict[str, dict[str, float]] = {
            name: {
                "total": total,
                "reserved": 0,
                "min_unit": 1,
                "max_unit": total,
                "step_size": 1,
                "allocation_ratio": 1.0,
            }
            for name, total in totals.items()
            if total
        }
        inventory["VCPU"]["allocation_ratio"] = CPU_RATIO
        inventory["MEMORY_MB"]["reserved"] = min(RESERVED_MEMORY_MB, options.memory_mb - 1)
        return Node(
            uuid=self._node_uuid,
            name=self.host,
            host=self.host,
            hypervisor_type=self.hypervisor_type,
            hypervisor_version=1000,
            vcpus=options.vcpus,
            memory_mb=options.memory_mb,
            disk_gb=options.disk_gb,
            vcpus_used=sum(d.vcpus for d in domains),
            memory_mb_used=sum(d.memory_mb for d in domains) + RESERVED_MEMORY_MB,
            disk_gb_used=sum(d.disk_gb for d in domains),
            running_vms=len(domains),
            cpu_info='{"arch": "x86_64", "model": "simulated", "vendor": "Kilonova", "topology": {}, "features": []}',
            inventory=inventory,
            traits=list(TRAITS),
            supported=[("x86_64", "fake", "exe"), ("x86_64", "kvm", "hvm"), ("x86_64", "qemu", "hvm")],
        )

    def ensure_guest(self, plan: GuestPlan) -> int:
        server = plan.guest.server
        with self._lock:
            there = self._domains.get(server.uuid)
            if there is not None and there.made:
                return there.power
            interrupted = self._making.setdefault(server.uuid, threading.Event())
            try:
                domain = self._room_for(plan)
            except BuildFailed:
                del self._making[server.uuid]
                raise
            self._domains[server.uuid] = domain
            self._disk.write(domain)
        try:
            self._obey("spawn", server.uuid, server.metadata, interrupted, self._options.spawn_seconds)
            with self._lock:
                if interrupted.is_set() or self._domains.get(server.uuid) is not domain:
                    raise BuildAborted(server=server.uuid, reason="it is not wanted any more")
                domain.made, domain.power, domain.starts = True, RUNNING, [self._clock()]
                self._disk.write(domain)
                return domain.power
        finally:
            with self._lock:
                self._making.pop(server.uuid, None)

    def _room_for(self, plan: GuestPlan) -> Domain:
        """With the lock held: the guest that the plan makes. BuildFailed when the host is full."""
        server, flavor = plan.guest.server, plan.guest.server.flavor
        disk = (0 if server.volume_backed else flavor.root_gb) + flavor.ephemeral_gb + -(-flavor.swap // 1024)
        others = [d for d in self._domains.values() if d.uuid != server.uuid]
        room = {
            "vCPUs": (self._options.vcpus * CPU_RATIO, sum(d.vcpus for d in others), flavor.vcpus),
            "MiB of memory": (self._options.memory_mb, sum(d.memory_mb for d in others), flavor.memory_mb),
            "GiB of disk": (self._options.disk_gb, sum(d.disk_gb for d in others), disk),
        }
        for what, (total, used, wanted) in room.items():
            if used + wanted > total:
                reason = f"host {self.host} has {max(total - used, 0):.0f} {what} free, {wanted} are needed"
                raise BuildFailed(server=server.uuid, reason=reason)
        return Domain(
            uuid=server.uuid,
            name=server.name,
            hostname=server.hostname or server.name,
            vcpus=flavor.vcpus,
            memory_mb=flavor.memory_mb,
            disk_gb=disk,
            addresses=[fixed.address for nic in plan.nics for fixed in nic.fixed_ips],
            volumes=[device.volume_id for device in plan.devices if device.volume_id],
            metadata=dict(server.metadata),
        )

    def remove_guest(self, server: str, *, keep_disks: bool = False) -> None:
        self.interrupt(server)
        with self._lock:
            domain = self._domains.get(server)
        if domain is None:
            self._disk.remove(server)
            return
        self._obey("destroy", server, domain.metadata)
        with self._lock:
            self._domains.pop(server, None)
            self._disk.remove(server)

    def guests(self) -> dict[str, int]:
        with self._lock:
            return {domain.uuid: domain.power for domain in self._domains.values()}

    def interrupt(self, server: str) -> None:
        with self._lock:
            making = self._making.get(server)
            if making is not None:
                making.set()

    # --- Powers

    def power_on(self, plan: GuestPlan) -> int:
        server = plan.guest.server
        if self._domain(server.uuid) is None:
            return self.ensure_guest(plan)
        self._obey("start", server.uuid, server.metadata)
        return self._set_power(server.uuid, RUNNING, boots=True)

    def power_off(self, server: str, *, grace: float) -> int:
        domain = self._domain(server)
        if domain is None:
            raise ServerNotFound(server=server)
        if domain.power != SHUTDOWN:
            self._obey("stop", server, domain.metadata, seconds=min(grace, self._options.shutdown_seconds))
        return self._set_power(server, SHUTDOWN)

    def reboot(self, plan: GuestPlan, *, hard: bool, grace: float) -> int:
        server = plan.guest.server
        if self._domain(server.uuid) is None:
            return self.ensure_guest(plan)
        self._obey("reboot", server.uuid, server.metadata)
        if hard:
            self._set_power(server.uuid, SHUTDOWN)
            return self._set_power(server.uuid, RUNNING, boots=True)
        with self._lock:
            domain = self._domains[server.uuid]
            domain.starts.append(self._clock())
            domain.power = RUNNING
            self._disk.write(domain)
        return RUNNING

    def _domain(self, server: str) -> Domain | None:
        with self._lock:
            domain = self._domains.get(server)
            return domain if domain is not None and domain.made else None

    def _set_power(self, server: str, power: int, *, boots: bool = False) -> int:
        with self._lock:
            domain = self._domains.get(server)
            if domain is None:
                return NOSTATE
            if domain.power != power:
                domain.power = power
                if boots:
                    domain.starts.append(self._clock())
                self._disk.write(domain)
        return power

    # --- Logs, Watches

    def console_output(self, server: str) -> bytes:
        domain = self._domain(server)
        if domain is None:
            raise ServerNotFound(server=server)
        return console_text(
            domain.name,
            domain.hostname,
            addresses=domain.addresses,
            starts=domain.starts,
            now=self._clock(),
            boot_seconds=self._options.boot_seconds,
        )

    def watch(self, changed: Callable[[str, int], None]) -> None:
        self._changed = changed

    def happen(self, server: str, power: int) -> None:
        """The guest changes its power state of itself, e.g. it shuts down."""
        self._set_power(server, power, boots=power == RUNNING)
        if self._changed is not None:
            self._changed(server, power)

    def _obey(
        self,
        method: str,
        server: str,
        metadata: dict[str, str],
        interrupted: threading.Event | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Take the time and fail as ordered."""
        orders = self.orders.take(method, self.host, server)
        if self._options.obey_metadata:
            orders += ordered_by(metadata, method)
        pause = threading.Event() if interrupted is None else interrupted
        total = seconds + sum(order.delay for order in orders)
        if total > 0:
            pause.wait(total)
        for order in orders:
            while order.until is not None and not order.until.wait(0.05) and not pause.is_set():
                continue
        for order in orders:
            if order.fail and not pause.is_set():
                self._forget_unmade(server)
                raise order.error or failure(method, self.host, server)

    def _forget_unmade(self, server: str) -> None:
        with self._lock:
            domain = self._domains.get(server)
            if domain is not None and not domain.made:
                del self._domains[server]
                self._disk.remove(server)


class FakeHypervisors:
    """Implements ``Hypervisors``: many simulated hosts in one process, the same ones after every start.

    ``folder``: where their identity and their guests are kept (None: nowhere). ``names``: the hosts (by default
    ``sim-0001`` and on, as many as the options say).
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        options: FakeOptions = FakeOptions(),  # noqa: B008 frozen
        names: Sequence[str] | None = None,
        orders: Orders | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._options, self._clock = folder, options, clock
        self.names = list(names) if names is not None else [f"sim-{n:04d}" for n in range(1, options.hosts + 1)]
        self.orders = orders or Orders()

    def drivers(self) -> Iterator[tuple[str, FakeDriver]]:
        """(host name, driver) pairs."""
        root = identity(self._folder) if self._folder is not None else uuid.NAMESPACE_DNS
        for name in self.names:
            yield (
                name,
                FakeDriver(
                    name,
                    node_uuid=str(uuid.uuid5(root, name)),
                    folder=self._folder / name if self._folder is not None else None,
                    options=self._options,
                    orders=self.orders,
                    clock=self._clock,
                ),
            )
