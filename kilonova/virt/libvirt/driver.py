"""The driver: makes the domain of a guest agree with its plan, and tells what becomes of it.

The domain's uuid is the server's. Every method looks at what is there first, so that running it twice, or after a crash
of whoever ran it before, ends in the same world.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import msgspec

from kilonova.base import log
from kilonova.base.errors import BuildFailed, Fault, NeighbourUnavailable, NotSupported
from kilonova.core.host import Node
from kilonova.core.server import Server
from kilonova.virt.libvirt import probe
from kilonova.virt.libvirt.connection import POWER, Connection, is_absent, is_moot
from kilonova.virt.libvirt.disks import Folder
from kilonova.virt.libvirt.domain import Domain, is_ours, to_xml
from kilonova.virt.libvirt.facts import node_of
from kilonova.virt.libvirt.options import LibvirtOptions
from kilonova.virt.roles import NOSTATE, RUNNING, SHUTDOWN, GuestPlan

LOG = log.of(__name__)


class LibvirtDriver:
    """Implements ``Driver``, ``Powers``, ``Logs``, ``StagesImages`` and ``Watches``."""

    hypervisor_type = "QEMU"

    def __init__(self, options: LibvirtOptions, *, host: str, node_uuid: str, state: Path) -> None:
        self._options, self._host, self._node_uuid = options, host, node_uuid
        self._instances = state.absolute() / "instances"
        self._is_root = os.geteuid() == 0
        default = "qemu:///system" if self._is_root else "qemu:///session"
        self._connection = Connection(options.connection_uri or default)
        self._virt_type = options.virt_type
        self._facts: Node | None = None

    def start(self) -> None:
        """Connect and choose between KVM and TCG."""
        lacking = probe.missing()
        if lacking is not None:
            raise NotSupported(f"libvirt cannot be used here: {lacking}")
        self._instances.mkdir(parents=True, exist_ok=True)
        closed = probe.unreachable(self._instances) if self._is_root else None
        if closed is not None:
            raise NotSupported(f"libvirt cannot be used here: {closed}")
        if self._virt_type == "auto":
            found = probe.accelerator()
            self._virt_type = found.virt_type
            LOG.info("guests run by %s", found.reason)
        self._connection.get()

    def close(self) -> None:
        """Guests go on."""
        self._connection.close()

    def image_folder(self) -> Path:
        """The images' cache is beside the guests' folders."""
        return self._instances

    def watch(self, changed: Callable[[str, int], None]) -> None:
        """Hear of lifecycle events of all domains; those of others are sorted out by their server being unknown."""
        self._connection.changed = changed

    def node(self) -> Node:
        """The host as it is, with the use that our guests make of it."""
        if self._facts is None:
            self._facts = node_of(
                self._connection.get(),
                uuid=self._node_uuid,
                host=self._host,
                virt_type=self._virt_type,
                instances=self._instances,
            )
        node = msgspec.structs.replace(self._facts)
        for domain in self._domains():
            try:
                state, memory, _, cpus, _ = domain.info()
            except libvirt.libvirtError:
                continue  # it has just gone
            node.vcpus_used += cpus
            node.memory_mb_used += memory // 1024
            node.running_vms += state == libvirt.VIR_DOMAIN_RUNNING
        return node

    def guests(self) -> dict[str, int]:
        """All domains that carry our mark."""
        found = {}
        for domain in self._domains():
            try:
                found[domain.UUIDString()] = POWER.get(domain.state()[0], NOSTATE)
            except libvirt.libvirtError as error:
                if not is_absent(error):
                    raise NeighbourUnavailable(neighbour="libvirt", reason=str(error)) from None
        return found

    def _domains(self) -> list[Any]:
        try:
            found = self._connection.get().listAllDomains()
        except libvirt.libvirtError as error:
            raise NeighbourUnavailable(neighbour="libvirt", reason=str(error)) from None
        return [domain for domain in found if self._is_ours(domain)]

    def _is_ours(self, domain: Any) -> bool:
        try:
            return is_ours(domain.XMLDesc(), str(self._instances))
        except libvirt.libvirtError:
            return False

    def ensure_guest(self, plan: GuestPlan) -> int:
        """Disks, domain, start. A domain that runs is left alone."""
        server = plan.guest.server
        domain = self._find(server.uuid)
        if domain is not None and domain.isActive():
            return RUNNING
        folder = Folder(self._instances, server.uuid)
        try:
            folder.ensure()
            return self._launch(plan, folder)
        except (libvirt.libvirtError, OSError) as error:
            raise BuildFailed(server=server.uuid, reason=str(error)) from error

    def _launch(self, plan: GuestPlan, folder: Folder) -> int:
        self._await_bridges(plan)
        xml = to_xml(self._domain_of(plan, folder))
        domain = self._connection.get().defineXML(xml)
        try:
            domain.create()
        except libvirt.libvirtError as error:
            if not is_moot(error):
                raise
        return POWER.get(domain.state()[0], NOSTATE)

    def _domain_of(self, plan: GuestPlan, folder: Folder) -> Domain:
        properties = plan.guest.server.image_properties
        mode, model = self._cpu()
        return Domain(
            name=self._name_of(plan.guest.server),
            server=plan.guest.server,
            virt_type=self._virt_type,
            machine=properties.get("hw_machine_type") or self._options.hw_machine_type or "pc",
            cpu_mode=mode,
            cpu_model=model,
            disks=folder.ensure_disks(plan, images_type=self._options.images_type),
            nics=plan.nics,
            console_log=str(folder.console_log),
            user_network=not self._is_root,
            ssh_port=None if self._is_root else folder.ensure_ssh_port(),
            kernel=str(plan.kernel) if plan.kernel else None,
            ramdisk=str(plan.ramdisk) if plan.ramdisk else None,
            command_line=properties.get("os_command_line"),
        )

    def _name_of(self, server: Server) -> str:
        """The name that operators know; a part of the uuid behind it where another cloud's domain has that name."""
        try:
            holder = self._connection.get().lookupByName(server.instance_name).UUIDString()
        except libvirt.libvirtError as error:
            if not is_absent(error):
                raise
            return server.instance_name
        return server.instance_name if holder == server.uuid else f"{server.instance_name}-{server.uuid[:8]}"

    def _cpu(self) -> tuple[str | None, str | None]:
        mode = self._options.cpu_mode
        if mode == "none" or (mode is None and self._virt_type != "kvm"):
            return None, None
        return mode or "host-model", next(iter(self._options.cpu_models), None)

    def _await_bridges(self, plan: GuestPlan) -> None:
        """The network plane makes a bridge when a port is bound here; that may take a moment."""
        if not self._is_root:
            return
        deadline = time.monotonic() + self._options.network_seconds
        for nic in plan.nics:
            while not Path("/sys/class/net", nic.bridge).exists():
                if time.monotonic() > deadline:
                    reason = f"the bridge {nic.bridge} of network {nic.network_id} did not appear"
                    raise BuildFailed(server=plan.guest.server.uuid, reason=reason)
                time.sleep(0.05)

    def remove_guest(self, server: str, *, keep_disks: bool = False) -> None:
        """Power off, forget the domain with all it keeps, remove the folder."""
        domain = self._find(server)
        if domain is not None:
            self._force_off(domain)
            flags = (
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
                | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            )
            try:
                domain.undefineFlags(flags)
            except libvirt.libvirtError as error:
                if not is_absent(error):
                    raise Fault(f"the domain of {server} could not be removed: {error}") from error
        if not keep_disks:
            Folder(self._instances, server).remove()

    def power_on(self, plan: GuestPlan) -> int:
        """Start the domain; one that has been lost is made again from the plan."""
        return self.ensure_guest(plan)

    def power_off(self, server: str, *, grace: float) -> int:
        """Ask through ACPI, then pull the plug."""
        domain = self._find(server)
        if domain is None or not domain.isActive():
            return SHUTDOWN
        if grace > 0 and self._shut_down(domain, grace):
            return SHUTDOWN
        self._force_off(domain)
        return SHUTDOWN

    def reboot(self, plan: GuestPlan, *, hard: bool, grace: float) -> int:
        """Soft: shut down and start, hard when it does not shut down in time. Hard: from the plan anew."""
        server = plan.guest.server.uuid
        domain = self._find(server)
        if domain is not None and not hard:
            self.power_off(server, grace=grace)
        elif domain is not None:
            self._force_off(domain)
        return self.ensure_guest(plan)

    def console_output(self, server: str) -> bytes:
        """The serial console's log; empty when there is none."""
        try:
            return Folder(self._instances, server).console_log.read_bytes()
        except FileNotFoundError:
            return b""

    def _find(self, server: str) -> Any:
        try:
            return self._connection.get().lookupByUUIDString(server)
        except libvirt.libvirtError as error:
            if is_absent(error):
                return None
            raise NeighbourUnavailable(neighbour="libvirt", reason=str(error)) from None

    def _shut_down(self, domain: Any, grace: float) -> bool:
        """Ask again every few seconds: a guest that is still booting does not hear the first time."""
        deadline, asked = time.monotonic() + grace, -1e9
        while time.monotonic() < deadline:
            if not domain.isActive():
                return True
            if time.monotonic() - asked > 5:
                asked = time.monotonic()
                try:
                    domain.shutdown()
                except libvirt.libvirtError as error:
                    LOG.info("%s does not shut down: %s", domain.UUIDString(), error)
            time.sleep(0.1)
        return not domain.isActive()

    def _force_off(self, domain: Any) -> None:
        try:
            domain.destroy()
        except libvirt.libvirtError as error:
            if not is_moot(error) and not is_absent(error):
                raise Fault(f"the guest could not be powered off: {error}") from error
