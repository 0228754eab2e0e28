"""Options of simulated hosts."""

from __future__ import annotations

from kilonova.base.config import group, option


@group("fake")
class FakeOptions:
    """How large simulated hosts are, and how quick."""

    hosts: int = option(1, min=1, max=10_000, help="How many simulated hosts one process holds.")
    vcpus: int = option(64, min=1, help="Processors of each.")
    memory_mb: int = option(256 * 1024, min=1, help="Memory of each in MiB.")
    disk_gb: int = option(4096, min=0, help="Disk space of each in GiB.")
    spawn_seconds: float = option(0.0, min=0, help="How long it takes to make a guest.")
    boot_seconds: float = option(2.0, min=0, help="How long a guest writes to its console until it asks for a login.")
    shutdown_seconds: float = option(0.0, min=0, help="How long a guest takes to shut down.")
    obey_metadata: bool = option(
        True, help="Let the metadata kilonova:fail and kilonova:delay of servers order failures and delays."
    )
