"""The extra specs that a flavor may have: which names are known, and which values each takes.

The table is the declaration; what is in a known name space but not in the table is refused, what is in none passes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kilonova.core.standard_traits import RESOURCE_CLASSES, TRAITS

_TRUE = {"1", "t", "true", "on", "y", "yes"}
_FALSE = {"0", "f", "false", "off", "n", "no"}

NAMESPACES = (
    "accel",
    "aggregate_instance_extra_specs",
    "capabilities",
    "hw",
    "hw_rng",
    "hw_video",
    "os",
    "pci_passthrough",
    "powervm",
    "quota",
    r"resources([a-zA-Z0-9_-]{1,64})?",
    r"trait([a-zA-Z0-9_-]{1,64})?",
    "vmware",
)


class Text(NamedTuple):
    """A value that fits a pattern, where there is one."""

    pattern: str | None = None

    def check(self, value: str) -> None:
        """ValueError."""
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise ValueError(f"'{value}' does not match the pattern '{self.pattern}'.")


class OneOf(NamedTuple):
    """A value out of a few."""

    values: tuple[str, ...]

    def check(self, value: str) -> None:
        """ValueError."""
        if value not in self.values:
            raise ValueError(f"'{value}' is not one of: {', '.join(self.values)}.")


class Whole(NamedTuple):
    """A whole number between bounds, both included."""

    minimum: int | None = None
    maximum: int | None = None

    def check(self, value: str) -> None:
        """ValueError."""
        if not re.fullmatch(r"\s*[-+]?[0-9]{1,30}\s*", value):
            raise ValueError(f"'{value}' is not a valid integer value.")
        number = int(value)
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"'{value}' is greater than the max value of '{self.maximum}'.")
        if self.minimum is not None and number < self.minimum:
            raise ValueError(f"'{value}' is less than the min value of '{self.minimum}'.")


class YesNo(NamedTuple):
    """A text that means true or false."""

    def check(self, value: str) -> None:
        """ValueError."""
        if value.strip().lower() not in _TRUE | _FALSE:
            raise ValueError(f"'{value}' is not a valid boolean-like value.")


Kind = Text | OneOf | Whole | YesNo

_ANY = Text()
_FROM_0, _FROM_1, _INT = Whole(0), Whole(1), Whole()
_CPUS = Text(r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*")
_LEVEL = OneOf(("custom", "high", "normal", "low"))

SPECS: dict[str, Kind] = {
    "accel:device_profile": _ANY,
    "group_policy": OneOf(("isolate", "none")),
    "hide_hypervisor_id": YesNo(),
    "hw:boot_menu": YesNo(),
    "hw:cpu_cores": _FROM_1,
    "hw:cpu_dedicated_mask": _CPUS,
    "hw:cpu_max_cores": _FROM_1,
    "hw:cpu_max_sockets": _FROM_1,
    "hw:cpu_max_threads": _FROM_1,
    "hw:cpu_policy": OneOf(("dedicated", "shared", "mixed")),
    "hw:cpu_realtime": YesNo(),
    "hw:cpu_realtime_mask": Text(r"(\^)?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*"),
    "hw:cpu_sockets": _FROM_1,
    "hw:cpu_thread_policy": OneOf(("prefer", "isolate", "require")),
    "hw:cpu_threads": _FROM_1,
    "hw:emulator_threads_policy": OneOf(("isolate", "share")),
    "hw:ephemeral_encryption": YesNo(),
    "hw:ephemeral_encryption_format": OneOf(("plain", "luks", "luksv2")),
    "hw:hide_hypervisor_id": YesNo(),
    "hw:locked_memory": YesNo(),
    "hw:mem_encryption": YesNo(),
    "hw:mem_encryption_model": OneOf(("amd-sev", "amd-sev-es", "amd-sev-snp")),
    "hw:mem_page_size": Text(r"(large|small|any|\d+([kKMGT]i?)?(b|bit|B)?)"),
    "hw:numa_nodes": _FROM_1,
    "hw:pci_numa_affinity_policy": OneOf(("required", "preferred", "legacy", "socket")),
    "hw:pmem": Text(r"([a-zA-Z0-9_]+(,)?)+"),
    "hw:pmu": YesNo(),
    "hw:redirected_usb_ports": Whole(0, 15),
    "hw:serial_port_count": _FROM_0,
    "hw:sound_model": OneOf(("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio")),
    "hw:tpm_model": OneOf(("tpm-tis", "tpm-crb")),
    "hw:tpm_secret_security": OneOf(("user", "host", "deployment")),
    "hw:tpm_version": OneOf(("1.2", "2.0")),
    "hw:usb_model": OneOf(("none", "nec-xhci", "qemu-xhci")),
    "hw:vif_multiqueue_enabled": YesNo(),
    "hw:viommu_model": OneOf(("intel", "smmuv3", "virtio", "auto")),
    "hw:virtio_packed_ring": YesNo(),
    "hw:watchdog_action": OneOf(("none", "pause", "poweroff", "reset", "disabled")),
    "hw_rng:allowed": YesNo(),
    "hw_rng:rate_bytes": _FROM_0,
    "hw_rng:rate_period": _FROM_0,
    "hw_video:ram_max_mb": _FROM_0,
    "os:secure_boot": OneOf(("disabled", "required")),
    "pci_passthrough:alias": Text(r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*"),
    "quota:cpu_limit": _FROM_0,
    "quota:cpu_period": _FROM_0,
    "quota:cpu_quota": _INT,
    "quota:cpu_reservation": _INT,
    "quota:cpu_shares": _FROM_0,
    "quota:cpu_shares_level": _LEVEL,
    "quota:cpu_shares_share": _FROM_0,
    "quota:disk_io_limit": _FROM_0,
    "quota:disk_io_reservation": _INT,
    "quota:disk_io_shares_level": _LEVEL,
    "quota:disk_io_shares_share": _FROM_0,
    "quota:disk_read_bytes_sec": _FROM_0,
    "quota:disk_read_iops_sec": _FROM_0,
    "quota:disk_total_bytes_sec": _FROM_0,
    "quota:disk_total_iops_sec": _FROM_0,
    "quota:disk_write_bytes_sec": _FROM_0,
    "quota:disk_write_iops_sec": _FROM_0,
    "quota:memory_limit": _FROM_0,
    "quota:memory_reservation": _INT,
    "quota:memory_shares_level": _LEVEL,
    "quota:memory_shares_share": _FROM_0,
    "quota:vif_inbound_average": _FROM_0,
    "quota:vif_inbound_burst": _FROM_0,
    "quota:vif_inbound_peak": _FROM_0,
    "quota:vif_limit": _FROM_0,
    "quota:vif_outbound_average": _FROM_0,
    "quota:vif_outbound_burst": _FROM_0,
    "quota:vif_outbound_peak": _FROM_0,
    "quota:vif_reservation": _INT,
    "quota:vif_shares_level": _LEVEL,
    "quota:vif_shares_share": _FROM_0,
    "vmware:hw_version": _ANY,
    "vmware:storage_policy": _ANY,
}
"""By exact name."""

_CAPABILITIES = """
    aggregates cell_uuid cpu_allocation_ratio current_workload disk_allocation_ratio disk_available_least disk_mb_used
    failed_builds free_disk_gb free_disk_mb free_ram_mb host host_ip hypervisor_hostname hypervisor_type
    hypervisor_version id local_gb local_gb_used mapped memory_mb memory_mb_used num_instances num_io_ops
    ram_allocation_ratio running_vms service_id total_usable_disk_gb total_usable_ram_mb updated uuid vcpus vcpus_total
    vcpus_used
""".split()

_DEEP_CAPABILITIES = """
    cpu_info instances limits metrics nodename numa_topology pci_device_pools pci_stats stats supported_hv_specs
    supported_instances
""".split()

_GROUP = r"([a-zA-Z0-9_-]{1,64})?"

PATTERNS: tuple[tuple[re.Pattern[str], Kind], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"aggregate_instance_extra_specs:.+", _ANY),
        (rf"capabilities:({'|'.join(_CAPABILITIES)})", _ANY),
        (rf"capabilities:({'|'.join(_DEEP_CAPABILITIES)})(:\w+)*", _ANY),
        (r"hw:numa_cpus\.\d+", _CPUS),
        (r"hw:numa_mem\.\d+", _FROM_1),
        (rf"resources{_GROUP}:(CUSTOM_[A-Z0-9_]+|{'|'.join(sorted(RESOURCE_CLASSES))})", _INT),
        (rf"trait{_GROUP}:(CUSTOM_[A-Z0-9_]+|{'|'.join(sorted(TRAITS))})", OneOf(("required", "forbidden"))),
    )
)
"""By patterns that the whole name fits."""


def validate(name: str, value: str) -> None:
    """ValueError with a text for people where ``name`` is unknown in its name space, or does not take ``value``."""
    kind = _kind_of(name)
    if kind is not None:
        kind.check(value)
        return
    space, colon, _ = name.partition(":")
    if colon and any(re.fullmatch(known, space) for known in NAMESPACES):
        raise ValueError(f"extra spec '{name}' does not appear to be a valid extra spec.")


def _kind_of(name: str) -> Kind | None:
    if name in SPECS:
        return SPECS[name]
    return next((kind for pattern, kind in PATTERNS if pattern.fullmatch(name)), None)
