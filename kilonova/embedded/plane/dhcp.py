"""The texts that a network's DHCP server reads, purely made from facts, and what is left of its leases."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kilonova.embedded.plane.facts import Network, Port, Subnet

METADATA = "169.254.169.254"
LEASE_SECONDS = 86400
DEVICE = "dhcp0"
UNSAFE = re.compile(r"[^\w:./=,;@%+\- ]")


@dataclass(frozen=True)
class Folder:
    """Where a server's files are."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "dnsmasq.conf"

    @property
    def hosts(self) -> Path:
        return self.path / "hosts"

    @property
    def options(self) -> Path:
        return self.path / "options"

    @property
    def leases(self) -> Path:
        return self.path / "leases"

    @property
    def pid(self) -> Path:
        return self.path / "pid"


def config_text(
    network: Network,
    subnets: Sequence[Subnet],
    servers: dict[str, str],
    *,
    folder: Folder,
    dns: Sequence[str],
    domain: str,
) -> str:
    """dnsmasq's configuration. `servers` has our address in each subnet; `dns` serves subnets without any."""
    lines = [
        "port=0",
        "user=root",
        "bind-interfaces",
        f"interface={DEVICE}",
        "except-interface=lo",
        "dhcp-authoritative",
        "dhcp-lease-max=65536",
        f"pid-file={folder.pid}",
        f"dhcp-leasefile={folder.leases}",
        f"dhcp-hostsfile={folder.hosts}",
        f"dhcp-optsfile={folder.options}",
    ]
    for number, subnet in enumerate(subnets):
        tag = f"subnet{number}"
        net = ipaddress.ip_network(subnet.cidr)
        lines.append(f"dhcp-range=set:{tag},{net.network_address},static,{net.netmask},{LEASE_SECONDS}s")
        options = [f"option:mtu,{network.mtu}", f"option:domain-name,{domain}" if domain else ""]
        names = subnet.dns_nameservers or tuple(dns)
        options.append(f"option:dns-server,{','.join(names)}" if names else "option:dns-server")
        options.append(f"option:router,{subnet.gateway_ip}" if subnet.gateway_ip else "option:router")
        routes = [f"{route.destination},{route.nexthop}" for route in subnet.host_routes]
        if not any(route.destination == f"{METADATA}/32" for route in subnet.host_routes):
            routes.append(f"{METADATA}/32,{servers[subnet.id]}")
        if subnet.gateway_ip:
            # A guest that heeds this option ignores the router option.
            routes.append(f"0.0.0.0/0,{subnet.gateway_ip}")
        options.append(f"option:classless-static-route,{','.join(routes)}")
        lines += [f"dhcp-option=tag:{tag},{option}" for option in options if option]
    return "\n".join(lines) + "\n"


def hosts_text(ports: Iterable[Port], subnets: Sequence[Subnet]) -> str:
    """A line per port and address: MAC, a tag for the port's own options, address, host name."""
    served = {subnet.id for subnet in subnets}
    lines = [
        f"{port.mac_address},set:{port.id},{ip.ip_address},host-{ip.ip_address.replace('.', '-')}"
        for port in ports
        for ip in port.fixed_ips
        if ip.subnet_id in served
    ]
    return "".join(f"{line}\n" for line in sorted(lines))


def options_text(ports: Iterable[Port]) -> str:
    """The ports' extra DHCP options. What could break out of its line is left away."""
    lines: list[str] = []
    for port in ports:
        for option in port.extra_dhcp_opts:
            name = option.opt_name if option.opt_name.isdigit() else f"option:{option.opt_name}"
            if option.ip_version == 4 and not UNSAFE.search(f"{name}{option.opt_value}"):
                lines.append(f"tag:{port.id},{name},{option.opt_value}")
    return "".join(f"{line}\n" for line in sorted(lines))


def kept_leases(leases: str, hosts: str) -> str:
    """The leases that still agree with the hosts file.

    A lease of a port that is gone would keep its address from the next port that gets it.
    """
    pairs = {(fields[0].lower(), fields[2]) for line in hosts.splitlines() if len(fields := line.split(",")) > 2}
    kept = [
        line
        for line in leases.splitlines()
        if len(fields := line.split()) >= 3 and (fields[1].lower(), fields[2]) in pairs
    ]
    return "".join(f"{line}\n" for line in kept)
