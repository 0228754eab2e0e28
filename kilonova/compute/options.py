"""Options of the host agent, with the names that operators know."""

from __future__ import annotations

from kilonova.base.config import group, option
from kilonova.core.options import GuestOptions


@group("DEFAULT")
class ComputeOptions(GuestOptions):
    """The part of [DEFAULT] that nova-compute reads."""

    my_ip: str = option("127.0.0.1", help="The address of this host that volume servers see.")
    max_concurrent_work: int = option(
        16, min=1, help="Pieces of work done at the same time by one process, over all its hosts."
    )
    update_resources_interval: int = option(
        60, min=0, help="Seconds between reports of the host's capacity and use (0 means 60)."
    )
    sync_power_state_interval: int = option(
        600, min=-1, help="Seconds between looks at the power states of all guests (0 means 60, negative is never)."
    )
    running_deleted_instance_action: str = option(
        "reap",
        choices=("noop", "log", "shutdown", "reap"),
        help="What to do with guests whose servers are gone or elsewhere: reap removes them.",
    )
    running_deleted_instance_poll_interval: int = option(
        1800, min=0, help="Seconds between looks for such guests (0: only at the start and after an absence)."
    )
    shutdown_timeout: int = option(60, min=0, help="Seconds for a guest to shut down before it is powered off.")
    block_device_allocate_seconds: float = option(600.0, min=1, help="Seconds to wait for a new volume.")
    cpu_allocation_ratio: float | None = option(
        None, min=0, help="Virtual for each physical CPU. Unset: what Placement has, at first the initial one."
    )
    ram_allocation_ratio: float | None = option(None, min=0, help="The same of memory.")
    disk_allocation_ratio: float | None = option(None, min=0, help="The same of disk space.")
    initial_cpu_allocation_ratio: float = option(4.0, min=0, help="The ratio of CPUs of a host that is new.")
    initial_ram_allocation_ratio: float = option(1.0, min=0, help="The ratio of memory of a host that is new.")
    initial_disk_allocation_ratio: float = option(1.0, min=0, help="The ratio of disk space of a host that is new.")
    reserved_host_cpus: int = option(0, min=0, help="CPUs that guests do not get.")
    reserved_host_memory_mb: int = option(512, min=0, help="MiB of memory that guests do not get.")
    reserved_host_disk_mb: int = option(0, min=0, help="MiB of disk space that guests do not get.")
