"""Obeys the plan: one change, a few commands, each harmless when repeated."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from kilonova.embedded.plane import dhcp, filters
from kilonova.embedded.plane.commands import CommandFailed, Commands
from kilonova.embedded.plane.desire import EXTERNAL_DEVICE, Place
from kilonova.embedded.plane.observe import ADMITTED, PROTOCOL, admitted, namespaces, server_pid
from kilonova.embedded.plane.parts import (
    HOST,
    Address,
    Admission,
    Bridge,
    Dhcp,
    DhcpHosts,
    Forwarding,
    Namespace,
    Part,
    Route,
    Ruleset,
    Veth,
)
from kilonova.embedded.plane.plan import Change, Ensure

STOP_SECONDS = 5.0


class Executor:
    """Makes parts and removes them."""

    def __init__(self, commands: Commands, place: Place) -> None:
        self._commands = commands
        self._place = place

    def obey(self, change: Change) -> None:
        """Carry out one change; CommandFailed when it cannot be done now."""
        if isinstance(change, Ensure):
            self._ensure(change.part)
        else:
            self._remove(change.part)

    def _ensure(self, part: Part) -> None:
        ip = self._commands.ip
        match part:
            case Namespace():
                self._ensure_namespace(part)
            case Bridge():
                self._ensure_bridge(part)
            case Veth():
                self._ensure_veth(part)
            case Address():
                ip(part.namespace, "addr", "replace", part.cidr, "dev", part.device)
                if part.device == EXTERNAL_DEVICE:
                    # A floating address may have moved here from another router: the host must ask anew.
                    with suppress(CommandFailed):
                        ip(HOST, "neigh", "flush", "to", part.cidr.partition("/")[0])
            case Route():
                way = ["via", part.via, "dev", part.device, "proto", PROTOCOL]
                ip(part.namespace, "route", "replace", part.destination, *way)
            case Forwarding():
                self._ensure_forwarding()
            case Ruleset():
                self._commands.inside(part.namespace, "nft", "-f", "-", text=part.text)
            case Admission():
                self._ensure_admission(part)
            case DhcpHosts():
                self._ensure_hosts(part)
            case Dhcp():
                self._ensure_server(part)

    def _remove(self, part: Part) -> None:
        match part:
            case Namespace():
                self._remove_namespace(part)
            case Bridge():
                self._delete_device(HOST, part.name)
            case Veth():
                self._delete_device(part.namespace, part.inner)
            case Address():
                with suppress(CommandFailed):
                    self._commands.ip(part.namespace, "addr", "del", part.cidr, "dev", part.device)
            case Route():
                with suppress(CommandFailed):
                    self._commands.ip(part.namespace, "route", "del", part.destination, "proto", PROTOCOL)
            case Forwarding():
                self._remove_forwarding()
            case Ruleset():
                text = filters.removal_text(self._place.table)
                self._commands.inside(part.namespace, "nft", "-f", "-", text=text)
            case Admission():
                self._remove_admission(part)
            case DhcpHosts():
                self._place.dhcp_folder(part.network_id).path.joinpath("applied-hosts").unlink(missing_ok=True)
            case Dhcp():
                stop_server(self._place.dhcp_folder(part.network_id))

    # --- devices and namespaces

    def _ensure_namespace(self, part: Namespace) -> None:
        if part.name not in [found.name for found in namespaces(self._place)]:
            self._commands.netns("add", part.name)
        self._commands.ip(part.name, "link", "set", "lo", "up")
        if part.forwards:
            self._commands.set_kernel(part.name, "ipv4/ip_forward", "1")
            self._commands.set_kernel(part.name, "ipv6/conf/all/forwarding", "1")
        # Else the first address of a subnet takes all others of it along when it goes.
        self._commands.set_kernel(part.name, "ipv4/conf/all/promote_secondaries", "1")

    def _remove_namespace(self, part: Namespace) -> None:
        if part.name in [found.name for found in namespaces(self._place)]:
            self._commands.netns("del", part.name)
        prefix = self._place.dhcp_namespace("")
        if part.name.startswith(prefix):
            shutil.rmtree(self._place.dhcp_folder(part.name.removeprefix(prefix)).path, ignore_errors=True)

    def _exists(self, namespace: str, device: str) -> bool:
        with suppress(CommandFailed):
            return bool(self._commands.ip(namespace, "link", "show", "dev", device))
        return False

    def _delete_device(self, namespace: str, device: str) -> None:
        if not self._exists(namespace, device):
            return
        try:
            self._commands.ip(namespace, "link", "del", "dev", device)
        except CommandFailed:
            # It may have vanished meanwhile, with a namespace that the kernel is still clearing away.
            if self._exists(namespace, device):
                raise

    def _ensure_bridge(self, part: Bridge) -> None:
        ip = self._commands.ip
        if not self._exists(HOST, part.name):
            # An address of its own, else it takes one of its members' and changes it as they come and go.
            mac = f"02{filters.digest(part.name)[:10]}"
            address = ":".join(mac[at : at + 2] for at in range(0, 12, 2))
            ip(HOST, "link", "add", "name", part.name, "address", address, "type", "bridge")
        quiet = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"]
        ip(HOST, "link", "set", "dev", part.name, "type", "bridge", *quiet)
        filtered = ["nf_call_iptables", "1", "nf_call_ip6tables", "1"]
        ip(HOST, "link", "set", "dev", part.name, "type", "bridge", *filtered)
        # The host has no business with link-local addresses on its guests' networks.
        self._commands.set_kernel(HOST, f"ipv6/conf/{part.name}/disable_ipv6", "1")
        ip(HOST, "link", "set", "dev", part.name, "mtu", str(part.mtu), "up")
        if part.other_name:
            with suppress(CommandFailed):  # a second external network, or somebody else's bridge of that name
                ip(HOST, "link", "property", "add", "dev", part.name, "altname", part.other_name)
        ip(HOST, "link", "set", "dev", part.name, "alias", self._place.mark)

    def _ensure_veth(self, part: Veth) -> None:
        ip, mtu = self._commands.ip, str(part.mtu)
        self._delete_device(HOST, part.outer)
        self._delete_device(part.namespace, part.inner)
        peer = ["peer", "name", part.inner, "address", part.mac, "mtu", mtu, "netns", part.namespace]
        ip(HOST, "link", "add", "name", part.outer, "mtu", mtu, "type", "veth", *peer)
        ip(HOST, "link", "set", "dev", part.outer, "alias", self._place.mark)
        self._commands.set_kernel(HOST, f"ipv6/conf/{part.outer}/disable_ipv6", "1")
        ip(HOST, "link", "set", "dev", part.outer, "master", part.bridge, "up")
        ip(part.namespace, "link", "set", "dev", part.inner, "up")

    def _before(self) -> Path:
        return self._place.folder / "forwarding-before"

    def _ensure_forwarding(self) -> None:
        if not self._before().exists():
            value = self._commands.inside(HOST, "cat", "/proc/sys/net/ipv4/ip_forward")
            self._before().write_text(value.strip())
        self._commands.set_kernel(HOST, "ipv4/ip_forward", "1")

    def _remove_forwarding(self) -> None:
        if self._before().exists():
            if self._before().read_text() == "0":
                self._commands.set_kernel(HOST, "ipv4/ip_forward", "0")
            self._before().unlink()

    def _ensure_admission(self, part: Admission) -> None:
        self._remove_admission(part)
        for side in ADMITTED:
            rule = f'insert rule {part.wall} {side} "brq*" accept comment "{self._place.mark}"\n'
            self._commands.inside(HOST, "nft", "-f", "-", text=rule)

    def _remove_admission(self, part: Admission) -> None:
        for handle in admitted(self._commands, self._place, part.wall):
            self._commands.inside(HOST, "nft", "delete", "rule", *part.wall.split(), "handle", handle)

    # --- DHCP servers

    def _ensure_hosts(self, part: DhcpHosts) -> None:
        folder = self._place.dhcp_folder(part.network_id)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.hosts.write_text(part.hosts)
        folder.options.write_text(part.options)
        leases = folder.leases.read_text() if folder.leases.exists() else ""
        pid = server_pid(folder)
        if pid is not None:
            if dhcp.kept_leases(leases, part.hosts) == leases:
                os.kill(pid, signal.SIGHUP)
            else:
                # The server holds its leases in memory: it forgets one by starting again without it.
                stop_server(folder)
                self._start_server(folder, part.namespace)
        folder.path.joinpath("applied-hosts").write_text(part.digest)

    def _ensure_server(self, part: Dhcp) -> None:
        folder = self._place.dhcp_folder(part.network_id)
        stop_server(folder)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.config.write_text(part.text)
        self._start_server(folder, part.namespace)
        folder.path.joinpath("applied-config").write_text(part.digest)

    def _start_server(self, folder: dhcp.Folder, namespace: str) -> None:
        if folder.leases.exists():
            folder.leases.write_text(dhcp.kept_leases(folder.leases.read_text(), folder.hosts.read_text()))
        self._commands.inside(namespace, "dnsmasq", f"--conf-file={folder.config}")


def stop_server(folder: dhcp.Folder) -> None:
    """End the DHCP server of this folder, if it lives, and see it dead."""
    pid = server_pid(folder)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while server_pid(folder) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
