"""The section [libvirt]."""

from __future__ import annotations

from kilonova.base.config import group, option


@group("libvirt")
class LibvirtOptions:
    """How guests are run."""

    virt_type: str = option(
        "auto", choices=["auto", "kvm", "qemu"], help="auto: kvm where a trial shows that it works."
    )
    connection_uri: str = option("", help="libvirt's URI; unset: qemu:///system, or qemu:///session without root.")
    cpu_mode: str | None = option(
        None, choices=["host-model", "host-passthrough", "custom", "none"], help="Unset: host-model with KVM."
    )
    cpu_models: list[str] = option([], help="Models for cpu_mode custom; the first is used.")
    images_type: str = option("qcow2", choices=["qcow2", "raw", "flat", "default"], help="How root disks are kept.")
    hw_machine_type: str | None = option(None, help="The machine type of guests whose image names none.")
    wait_soft_reboot_seconds: int = option(120, min=0, help="How long a guest may take to shut down for a reboot.")
    network_seconds: float = option(30.0, min=0, help="How long to wait for a network's bridge to appear.")
