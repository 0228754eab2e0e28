"""Hosts: services, nodes, and the state that scheduling decides on."""

from __future__ import annotations

import datetime

import msgspec


class Service(msgspec.Struct, kw_only=True):
    """A running program somewhere. ``version`` is the number of its RPC contracts' generation."""

    uuid: str
    binary: str
    host: str
    topic: str = ""
    id: int = 0
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    version: int = 0
    report_count: int = 0
    last_seen_up: datetime.datetime | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    availability_zone: str | None = None
    cell: str = ""

    def is_up(self, *, now: datetime.datetime, down_time: float) -> bool:
        """Whether its last heartbeat is younger than ``down_time`` seconds, and nobody forced it down."""
        seen = self.last_seen_up or self.updated_at or self.created_at
        return not self.forced_down and seen is not None and abs((now - seen).total_seconds()) <= down_time


class Node(msgspec.Struct, kw_only=True):
    """A hypervisor as its host reports it.

    ``inventory`` is Placement's form by resource class ({"VCPU": {"total":…, "reserved":…, "allocation_ratio":…, …}});
    ``used`` counts what guests take by resource class; ``supported`` are (architecture, hypervisor type, vm mode).
    """

    uuid: str
    name: str
    host: str
    hypervisor_type: str
    hypervisor_version: int = 0
    host_ip: str = "127.0.0.1"
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    vcpus_used: int = 0
    memory_mb_used: int = 0
    disk_gb_used: int = 0
    running_vms: int = 0
    building: int = 0
    failed_builds: int = 0
    cpu_info: str = ""
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mb: int = 512
    inventory: dict[str, dict[str, float]] = {}
    traits: list[str] = []
    supported: list[tuple[str, str, str]] = []
    stats: dict[str, str] = {}
    id: int = 0
    generation: int = 0
    mapped: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    cell: str = ""


class Aggregate(msgspec.Struct, kw_only=True):
    """A named set of hosts. The availability zone is the metadata key ``availability_zone``."""

    id: int
    uuid: str
    name: str
    hosts: list[str] = []
    metadata: dict[str, str] = {}
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None

    @property
    def availability_zone(self) -> str | None:
        """The zone that its hosts are in."""
        return self.metadata.get("availability_zone")


class HostState(msgspec.Struct, kw_only=True):
    """What the scheduler knows of one node: as reported, plus what it has promised since.

    Free amounts are in MiB, MiB and vCPUs. ``servers`` are the uuids on the host. ``generation`` grows by reports.
    """

    node_uuid: str
    node: str
    host: str
    cell: str
    enabled: bool = True
    up: bool = True
    disabled_reason: str | None = None
    free_ram_mb: int = 0
    free_disk_mb: int = 0
    vcpus_total: int = 0
    vcpus_used: int = 0
    cpu_allocation_ratio: float = 4.0
    num_instances: int = 0
    num_io_ops: int = 0
    failed_builds: int = 0
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    host_ip: str = ""
    supported: list[tuple[str, str, str]] = []
    stats: dict[str, str] = {}
    aggregates: list[Aggregate] = []
    servers: list[str] = []
    generation: int = 0
