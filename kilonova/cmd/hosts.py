"""Wires what a hypervisor runs. It reaches no database, so none of its imports may."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kilonova.base import config
from kilonova.base.service import Service
from kilonova.cmd.site import Site
from kilonova.virt.roles import Driver as Hypervisor


def hosts(site: Site, names: Sequence[tuple[str, str]], *, driver: str) -> list[Service]:
    """nova-compute for (host name, cell) pairs; the cell is "" for a program that knows its bus only."""
    from kilonova.compute.host import ComputeHost, Shared
    from kilonova.compute.options import ComputeOptions
    from kilonova.compute.service import compute_service

    shared = Shared(
        site.neighbours,
        timers=site.timers,
        options=config.read(ComputeOptions, site.conf),
        heartbeats=site.heartbeats,
        vendor=site.vendor,
    )
    cell_of = dict(names)
    found = [
        ComputeHost(name, made, bus=site.buses.cell(cell_of[name]) if cell_of[name] else site.cell_bus, shared=shared)
        for name, made in _drivers(site, list(cell_of), driver=driver)
    ]
    return [compute_service(found, shared)]


def _drivers(site: Site, names: list[str], *, driver: str) -> list[tuple[str, Hypervisor]]:
    state = Path(site.process.state_path)
    if driver == "fake":
        from kilonova.virt.fake.driver import FakeHypervisors
        from kilonova.virt.fake.options import FakeOptions

        made = FakeHypervisors(state / "fake", options=config.read(FakeOptions, site.conf), names=names)
        return [(name, simulated) for name, simulated in made.drivers()]
    if driver.startswith("libvirt"):
        from kilonova.virt.identity import identity
        from kilonova.virt.libvirt.driver import LibvirtDriver
        from kilonova.virt.libvirt.options import LibvirtOptions

        options = config.read(LibvirtOptions, site.conf)
        node = str(identity(state))
        return [(name, LibvirtDriver(options, host=name, node_uuid=node, state=state)) for name in names]
    raise config.BadConfig(f"[DEFAULT] compute_driver {driver} is not known: libvirt or fake")


def probe_libvirt(state: Path) -> tuple[bool, str]:
    """Whether real guests can be run here, with their disks below ``state``, and the reason."""
    from kilonova.virt.libvirt import probe

    lacking = probe.missing() or (probe.unreachable(state) if os.geteuid() == 0 else None)
    if lacking is not None:
        return False, lacking
    return True, probe.accelerator().reason
