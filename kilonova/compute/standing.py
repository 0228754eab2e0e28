"""What a host tells of itself: its node to the conductor, its provider to Placement. Nothing is sent twice in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from kilonova.base import log
from kilonova.base.errors import NotFound
from kilonova.base.timers import Timer, Timers
from kilonova.clients.placement import Placement
from kilonova.clients.placement_rest import INITIAL_RATIO
from kilonova.compute.options import ComputeOptions
from kilonova.contracts.conductor import Conductor
from kilonova.core.host import Node
from kilonova.virt.roles import Driver

LOG = log.of(__name__)

DISABLED = "COMPUTE_STATUS_DISABLED"
ALWAYS = ("COMPUTE_NODE", "OWNER_NOVA")
COALESCED = 1.0
REMIND = 10
"""After so many reports without a change the conductor is told all the same: a message may have been lost."""


class Standing:
    """One host's standing with the rest. ``building``, ``failed_builds``: how many, when asked."""

    def __init__(
        self,
        driver: Driver,
        *,
        conductor: Conductor,
        placement: Placement,
        options: ComputeOptions,
        timers: Timers,
        building: Callable[[], int],
        failed_builds: Callable[[], int],
    ) -> None:
        self._driver, self._conductor, self._placement = driver, conductor, placement
        self._options, self._timers = options, timers
        self._building, self._failed_builds = building, failed_builds
        self._timer: Timer | None = None
        self._soon = False
        self._told: Node | None = None
        self._unsaid = 0
        self._lock = threading.Lock()
        self.disabled = False
        self.placed = threading.Event()

    def node(self) -> Node:
        """The node as it is now, with what the options say of it."""
        node, options = self._driver.node(), self._options
        return msgspec.structs.replace(
            node,
            building=self._building(),
            failed_builds=self._failed_builds(),
            cpu_allocation_ratio=options.cpu_allocation_ratio or options.initial_cpu_allocation_ratio,
            ram_allocation_ratio=options.ram_allocation_ratio or options.initial_ram_allocation_ratio,
            disk_allocation_ratio=options.disk_allocation_ratio or options.initial_disk_allocation_ratio,
            reserved_memory_mb=options.reserved_host_memory_mb,
            inventory=inventory_of(node, options),
            traits=sorted({*node.traits, *ALWAYS, *([DISABLED] if self.disabled else [])}),
        )

    def begin(self, host: str) -> None:
        """Report now and then from now on."""
        spacing = self._options.update_resources_interval or 60
        self._timer = self._timers.every(spacing, self.report, name="resources", jitter=spacing / 10)
        LOG.debug("%s reports its resources every %d s", host, spacing)

    def end(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.stop()

    def report(self) -> None:
        """Tell the conductor and Placement."""
        node = self.node()
        self._unsaid += 1
        if node != self._told or self._unsaid >= REMIND:
            self._tell(node)
        self.place(node)

    def _tell(self, node: Node) -> None:
        self._conductor.record_node(node=node)
        self._told, self._unsaid = node, 0

    def changed(self) -> None:
        """What the host holds has changed: the conductor hears of it soon, of many changes at once."""
        with self._lock:
            if self._soon:
                return
            self._soon = True
        self._timers.once(COALESCED, self._record, name="changed host")

    def _record(self) -> None:
        with self._lock:
            self._soon = False
        self._tell(self.node())

    def set_disabled(self, disabled: bool) -> None:
        """Placement gives no candidates of a host that is disabled."""
        if disabled != self.disabled:
            self.disabled = disabled
            self.place(self.node())

    def place(self, node: Node) -> None:
        """Bring Placement in line with the node; NeighbourUnavailable when it cannot be now."""
        inventory = initial(node.inventory, self._options)
        try:
            self._placement.ensure_inventory(node.uuid, inventory)
        except NotFound:
            self._placement.ensure_provider(node.uuid, node.name)
            self._placement.ensure_inventory(node.uuid, inventory)
        self._placement.ensure_traits(node.uuid, node.traits)
        self.placed.set()


def _ratios(options: ComputeOptions) -> dict[str, tuple[float | None, float]]:
    return {
        "VCPU": (options.cpu_allocation_ratio, options.initial_cpu_allocation_ratio),
        "MEMORY_MB": (options.ram_allocation_ratio, options.initial_ram_allocation_ratio),
        "DISK_GB": (options.disk_allocation_ratio, options.initial_disk_allocation_ratio),
    }


def inventory_of(node: Node, options: ComputeOptions) -> dict[str, dict[str, float]]:
    """The driver's inventory with the ratios and reserves of the options."""
    reserved = {
        "VCPU": options.reserved_host_cpus,
        "MEMORY_MB": options.reserved_host_memory_mb,
        "DISK_GB": -(-options.reserved_host_disk_mb // 1024),
    }
    ratios = _ratios(options)
    made = {}
    for name, part in node.inventory.items():
        if name not in ratios:
            made[name] = dict(part)
            continue
        fixed, first = ratios[name]
        total = part["total"]
        made[name] = {
            **part,
            "allocation_ratio": first if fixed is None else fixed,
            "reserved": max(0, min(reserved[name], total - 1)),
        }
    return made


def initial(inventory: dict[str, dict[str, float]], options: ComputeOptions) -> dict[str, dict[str, float]]:
    """The form for Placement: ratios that no option fixes count for a new provider only."""
    ratios = _ratios(options)
    made = {}
    for name, part in inventory.items():
        made[name] = dict(part)
        if name in ratios and ratios[name][0] is None:
            made[name][INITIAL_RATIO] = made[name].pop("allocation_ratio")
    return made
