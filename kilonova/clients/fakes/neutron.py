"""Neutron in memory: networks with addresses to give, ports with owners and bindings, security groups."""

from __future__ import annotations

import ipaddress
import threading
import uuid
from collections.abc import Iterator
from typing import Any

from kilonova.base.errors import (
    BadRequest,
    BuildFailed,
    Conflict,
    Fault,
    NetworkNotFound,
    OverQuota,
    PortInUse,
    PortNotFound,
)
from kilonova.clients import nics as ports_to_nics
from kilonova.clients.fakes.orders import Orders, ordered
from kilonova.clients.neutron import Network
from kilonova.clients.nics import FAILED, MARK
from kilonova.core.network import NetworkRequest, Nic


class FakeNeutron:
    """Implements ``Neutron``. ``records`` are ports in Neutron's form; hosts in ``unbindable`` fail to bind."""

    def __init__(self) -> None:
        self.orders = Orders("neutron")
        self.lock = threading.RLock()
        self.nets: dict[str, Network] = {}
        self.subnets: dict[str, dict[str, Any]] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.floating: list[dict[str, Any]] = []
        self.groups: dict[str, list[dict[str, Any]]] = {}
        self.unbindable: set[str] = set()
        self.port_quota = -1
        self.port_quotas: dict[str, int] = {}
        self._numbers = 0

    # --- setting the scene

    def add_network(
        self,
        name: str,
        cidr: str = "10.0.0.0/16",
        *,
        project_id: str = "",
        shared: bool = False,
        external: bool = False,
    ) -> Network:
        """A network with one subnet (none when ``cidr`` is "")."""
        network = Network(
            id=str(uuid.uuid4()), name=name, shared=shared, external=external, mtu=1450, project_id=project_id
        )
        if cidr:
            net = ipaddress.ip_network(cidr)
            subnet: dict[str, Any] = {
                "id": str(uuid.uuid4()),
                "cidr": cidr,
                "gateway_ip": str(net[1]),
                "enable_dhcp": True,
            }
            self.subnets[subnet["id"]] = {**subnet, "dns_nameservers": [], "host_routes": [], "network_id": network.id}
            network.subnets.append(subnet["id"])
        self.nets[network.id] = network
        return network

    def add_port(self, network_id: str, *, project_id: str = "", fixed_ip: str | None = None) -> dict[str, Any]:
        """A port as a user makes one."""
        with self.lock:
            return self._make(self.nets[network_id], project_id=project_id, fixed_ip=fixed_ip)

    def add_floating(self, port_id: str, address: str) -> None:
        """A floating address of a port's first address."""
        fixed = self.records[port_id]["fixed_ips"][0]["ip_address"]
        self.floating.append({"port_id": port_id, "fixed_ip_address": fixed, "floating_ip_address": address})

    def add_group(self, project_id: str, name: str) -> dict[str, Any]:
        """A security group."""
        group = {"id": str(uuid.uuid4()), "name": name, "project_id": project_id, "description": ""}
        self.groups.setdefault(project_id, []).append(group)
        return group

    def _make(self, network: Network, *, project_id: str, fixed_ip: str | None = None, **more: Any) -> dict[str, Any]:
        used = len([p for p in self.records.values() if p["project_id"] == project_id])
        if 0 <= self.port_quotas.get(project_id, self.port_quota) <= used:
            raise OverQuota(f"Maximum number of ports exceeded: {used}")
        self._numbers += 1
        fixed = [self._address(network, fixed_ip)] if network.subnets else []
        number = f"{self._numbers:06x}"
        port = {
            "id": str(uuid.uuid4()),
            "network_id": network.id,
            "project_id": project_id,
            "mac_address": f"fa:16:3e:{number[:2]}:{number[2:4]}:{number[4:]}",
            "fixed_ips": fixed,
            "device_id": "",
            "device_owner": "",
            "status": "DOWN",
            "binding:host_id": "",
            "binding:profile": {},
            "binding:vif_type": "unbound",
            "binding:vif_details": {},
            "binding:vnic_type": "normal",
            "security_groups": [],
            "created_at": number,
            **more,
        }
        self.records[port["id"]] = port
        return port

    def _address(self, network: Network, wanted: str | None) -> dict[str, str]:
        taken = {
            f["ip_address"] for p in self.records.values() for f in p["fixed_ips"] if p["network_id"] == network.id
        }
        if wanted in taken:
            raise BadRequest(f"Fixed IP address {wanted} is already in use.")
        for one in network.subnets:
            subnet = self.subnets[one]
            net = ipaddress.ip_network(subnet["cidr"])
            if wanted is not None:
                if ipaddress.ip_address(wanted) in net:
                    return {"subnet_id": one, "ip_address": wanted}
                continue
            for address in _hosts(net):
                if str(address) not in taken and str(address) != subnet["gateway_ip"]:
                    return {"subnet_id": one, "ip_address": str(address)}
        raise BadRequest(f"No fixed IP addresses available for network: {network.id}")

    # --- the Protocol

    @ordered
    def networks(self, project_id: str, *, ids: list[str] | None = None) -> list[Network]:
        if ids is not None:
            named = [self.nets[one] for one in dict.fromkeys(ids) if one in self.nets]
            return [n for n in named if n.project_id == project_id or n.shared or n.external]
        return [n for n in self.nets.values() if n.project_id == project_id or n.shared]

    @ordered
    def port(self, port_id: str) -> dict[str, Any]:
        if port_id not in self.records:
            raise PortNotFound(port=port_id)
        return dict(self.records[port_id])

    @ordered
    def ports(self, **filters: str) -> list[dict[str, Any]]:
        return [dict(port) for port in self.records.values() if _passes(port, filters)]

    @ordered
    def ensure_ports(
        self,
        server: str,
        requests: list[NetworkRequest],
        *,
        project_id: str,
        host: str,
        security_groups: list[str],
        zone: str,
        hostname: str = "",
    ) -> list[Nic]:
        binding = {"device_id": server, "device_owner": f"compute:{zone}"}
        mine = [port for port in self.records.values() if port["device_id"] == server]
        present = ports_to_nics.match(requests, mine)
        groups = self._group_ids(project_id, security_groups)
        for request in requests:
            if request.port_id:
                self._check_claimable(request.port_id, server)
            elif request.network_id not in self.nets:
                raise NetworkNotFound(network=request.network_id)
        result = []
        for place, (request, known) in enumerate(zip(requests, present, strict=True)):
            if known is not None:
                port = self.records[known["id"]]
            elif request.port_id:
                port = self.records[request.port_id]
            else:
                network = self.nets[str(request.network_id)]
                more = {"binding:profile": {MARK: place}, "security_groups": groups, "dns_name": hostname, **binding}
                port = self._make(network, project_id=project_id, fixed_ip=request.fixed_ip, **more)
            port |= binding
            self._bind(port, host)
            result.append(port)
        for port in result:
            if port["binding:vif_type"] == FAILED:
                raise BuildFailed(server=server, reason=f"Binding failed for port {port['id']}, see Neutron's logs.")
        return [self._nic(port, tag=request.tag) for port, request in zip(result, requests, strict=True)]

    def _check_claimable(self, port_id: str, server: str) -> None:
        if port_id not in self.records:
            raise PortNotFound(port=port_id)
        if self.records[port_id]["device_id"] not in ("", server):
            raise PortInUse(port=port_id)

    def _bind(self, port: dict[str, Any], host: str) -> None:
        bound = bool(host) and host not in self.unbindable
        port["binding:host_id"] = host
        port["binding:vif_type"] = "bridge" if bound else FAILED if host else "unbound"
        port["binding:vif_details"] = {"bridge_name": f"brq{port['network_id'][:11]}"} if bound else {}
        port["status"] = "ACTIVE" if bound else "DOWN"

    @ordered
    def release_ports(self, server: str) -> None:
        for port in [p for p in self.records.values() if p["device_id"] == server]:
            if ports_to_nics.mark_of(port) is not None:
                del self.records[port["id"]]
            else:
                port |= {"device_id": "", "device_owner": "", "binding:profile": {}}
                self._bind(port, "")

    @ordered
    def nics(self, server: str) -> list[Nic]:
        mine = [port for port in self.records.values() if port["device_id"] == server]
        return [self._nic(port) for port in ports_to_nics.ordered(mine)]

    def _nic(self, port: Any, *, tag: str | None = None) -> Nic:
        network = self.nets[port["network_id"]]
        floating = ports_to_nics.floating_by_fixed(self.floating).get(port["id"], {})
        record = {"name": network.name, "mtu": network.mtu}
        return ports_to_nics.nic_of(port, network=record, subnets=self.subnets, floating=floating, tag=tag)

    @ordered
    def security_groups(self, project_id: str) -> list[dict[str, Any]]:
        if not any(group["name"] == "default" for group in self.groups.get(project_id, [])):
            self.add_group(project_id, "default")
        return list(self.groups[project_id])

    def _group_ids(self, project_id: str, names: list[str]) -> list[str]:
        if not any(group["name"] == "default" for group in self.groups.get(project_id, [])):
            self.add_group(project_id, "default")
        ids = []
        for name in names or ["default"]:
            found = [g["id"] for g in self.groups[project_id] if name in (g["id"], g["name"])]
            if not found:
                raise BadRequest(f"Security group {name} not found for project {project_id}.")
            if len(found) > 1:
                raise Conflict(f"Multiple security groups found matching '{name}'. Use an ID to be more specific.")
            ids.append(found[0])
        return ids

    @ordered
    def auto_network(self, project_id: str, *, dry_run: bool = False) -> str | None:
        found = next((n for n in self.nets.values() if n.name == "auto" and n.project_id == project_id), None)
        if found is None:
            if not any(network.external for network in self.nets.values()):
                if dry_run:
                    return None
                raise _no_auto(project_id)
            if dry_run:
                return "dry-run=pass"
            found = self.add_network("auto", project_id=project_id)
        return found.id

    @ordered
    def quota_used(self, project_id: str) -> dict[str, dict[str, int]]:
        used = len([port for port in self.records.values() if port["project_id"] == project_id])
        limit = self.port_quotas.get(project_id, self.port_quota)
        return {"port": {"limit": limit, "used": used, "reserved": 0}}


def _hosts(net: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Iterator[Any]:
    return iter(net.hosts())


def _passes(port: dict[str, Any], filters: dict[str, str]) -> bool:
    for name, value in filters.items():
        if name == "fixed_ips":
            if not any(fixed["ip_address"] == value.removeprefix("ip_address=") for fixed in port["fixed_ips"]):
                return False
        elif str(port.get(name)) != value:
            return False
    return True


def _no_auto(project_id: str) -> Fault:
    return BadRequest(f"Unable to automatically allocate a network for project {project_id}: no external network")
