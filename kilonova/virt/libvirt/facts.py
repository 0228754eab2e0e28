"""What the host has, as Placement and the scheduler want it."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from kilonova.core.host import Node

TRAITS = (
    "COMPUTE_NODE",
    "OWNER_NOVA",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_ISO",
    "COMPUTE_STORAGE_BUS_VIRTIO",
    "COMPUTE_NET_VIF_MODEL_VIRTIO",
    "COMPUTE_GRAPHICS_MODEL_VGA",
    "COMPUTE_VOLUME_MULTI_ATTACH",
)


def memory_mb(connection: Any) -> int:
    """The host's memory, MiB. Memory statistics are asked: the older figure is wrong inside some containers."""
    return int(connection.getMemoryStats(-1)["total"]) // 1024


def node_of(connection: Any, *, uuid: str, host: str, virt_type: str, instances: Path, name: str | None = None) -> Node:
    """The node without the use that its guests make of it."""
    cpus = os.cpu_count() or 1
    memory, disk = memory_mb(connection), shutil.disk_usage(instances).total >> 30
    architecture = connection.getInfo()[0]
    return Node(
        uuid=uuid,
        name=name or connection.getHostname(),
        host=host,
        hypervisor_type="QEMU",
        hypervisor_version=connection.getVersion(),
        host_ip=_own_address(),
        vcpus=cpus,
        memory_mb=memory,
        disk_gb=disk,
        cpu_info=_cpu_info(connection),
        inventory=_inventory(cpus, memory, disk),
        traits=sorted(TRAITS),
        supported=[(arch, kind, "hvm") for arch in (architecture, "i686") for kind in {virt_type, "qemu"}],
    )


def _inventory(cpus: int, memory: int, disk: int) -> dict[str, dict[str, float]]:
    def entry(total: int, *, ratio: float, reserved: int = 0) -> dict[str, float]:
        amounts = {"total": total, "reserved": reserved, "min_unit": 1, "max_unit": total, "step_size": 1}
        return {**amounts, "allocation_ratio": ratio}

    return {
        "VCPU": entry(cpus, ratio=4.0),
        "MEMORY_MB": entry(memory, ratio=1.0, reserved=min(512, memory // 2)),
        "DISK_GB": entry(disk, ratio=1.0),
    }


def _cpu_info(connection: Any) -> str:
    cpu = ET.fromstring(connection.getCapabilities()).find("host/cpu")  # noqa: S314 - libvirt's own answer
    if cpu is None:
        return ""
    topology = cpu.find("topology")
    facts = {
        "arch": cpu.findtext("arch"),
        "model": cpu.findtext("model"),
        "vendor": cpu.findtext("vendor"),
        "topology": {k: int(v) for k, v in topology.items() if v.isdigit()} if topology is not None else {},
        "features": [str(f.get("name")) for f in cpu.findall("feature")],
    }
    return msgspec.json.encode(facts).decode()


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
