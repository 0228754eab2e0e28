"""What this host's networks should look like: purely from Neutron's facts to the set of parts."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kilonova.embedded.plane import dhcp, filters
from kilonova.embedded.plane.facts import (
    DHCP_OWNER,
    GATEWAY_OWNER,
    INTERFACE_OWNERS,
    Facts,
    Network,
    Port,
    Router,
    Subnet,
)
from kilonova.embedded.plane.parts import (
    HOST,
    Address,
    Admission,
    Bridge,
    Dhcp,
    DhcpHosts,
    Forwarding,
    HostState,
    Namespace,
    Part,
    Route,
    Ruleset,
    Veth,
)

METADATA_CIDR = f"{dhcp.METADATA}/32"
EXTERNAL_DEVICE = "ext0"
EXTERNAL_BRIDGE = "br-ex"


@dataclass(frozen=True)
class Place:
    """Who and where the plane is: `tag` tells its things from another plane's, `host` is Neutron's name for us.

    `dns` are the servers told to guests whose subnet names none. `host` None means every bound port is ours.
    """

    tag: str
    folder: Path
    host: str | None = None
    domain: str = "novalocal"
    dns: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The name of our nftables tables."""
        return f"kn_{self.tag}"

    @property
    def mark(self) -> str:
        """The alias by which our devices are known."""
        return f"kilonova:{self.tag}"

    def dhcp_namespace(self, network_id: str) -> str:
        """The namespace of a network's DHCP server and metadata."""
        return f"kn-{self.tag}-dhcp-{network_id}"

    def router_namespace(self, router_id: str) -> str:
        """The namespace of a router."""
        return f"kn-{self.tag}-router-{router_id}"

    def dhcp_folder(self, network_id: str) -> dhcp.Folder:
        """Where a DHCP server's files are."""
        return dhcp.Folder(self.folder / "dhcp" / network_id)


def bridge_name(network_id: str) -> str:
    """The bridge of a network; Neutron's mechanism driver tells the same name to compute."""
    return f"brq{network_id[:11]}"


@dataclass(frozen=True)
class Outcome:
    """What should be, and what keeps it from being whole.

    `reserve` are networks (with the subnets) whose DHCP server has no addresses yet; `serves` are the networks whose
    guests ask for metadata in each namespace; `problems` are texts for people.
    """

    parts: frozenset[Part]
    reserve: dict[str, list[str]]
    serves: dict[str, frozenset[str]]
    problems: tuple[str, ...]


def desire(facts: Facts, place: Place, state: HostState) -> Outcome:
    """The parts for the networks that have a guest's port on this host, and for the routers between them."""
    return _Desire(facts, place, state).outcome()


class _Desire:
    """The working table of one call: indexes of the facts, and the parts as they add up."""

    def __init__(self, facts: Facts, place: Place, state: HostState) -> None:
        self.facts, self.place, self.state = facts, place, state
        self.networks = {network.id: network for network in facts.networks}
        self.subnets = {subnet.id: subnet for subnet in facts.subnets}
        self.ports_of: dict[str, list[Port]] = defaultdict(list)
        self.device_ports: dict[str, list[Port]] = defaultdict(list)
        for port in facts.ports:
            self.ports_of[port.network_id].append(port)
            self.device_ports[port.device_id].append(port)
        self.guests = [port for port in facts.ports if self._is_here(port) and port.network_id in self.networks]
        self.active = {port.network_id for port in self.guests}
        self.external_used: set[str] = set()
        self.parts: set[Part] = set()
        self.reserve: dict[str, list[str]] = {}
        self.serves: dict[str, frozenset[str]] = {}
        self.problems: list[str] = []

    def _is_here(self, port: Port) -> bool:
        return port.is_guests and self.place.host in (None, port.host)

    def outcome(self) -> Outcome:
        for router in self.facts.routers:
            self._router(router)
        for network_id in sorted(self.active):
            self._dhcp(self.networks[network_id])
        for network_id in sorted(self.active | self.external_used):
            self._bridge(self.networks[network_id])
        self._keep_bridges_in_use()
        external = self._host_gateways()
        self._host_routes(set(external.values()))
        self._host_rules(external)
        if any(isinstance(part, Bridge) for part in self.parts):
            self.parts |= {Admission(wall) for wall in self.state.walls}
        return Outcome(frozenset(self.parts), self.reserve, self.serves, tuple(self.problems))

    def _bridge(self, network: Network) -> None:
        external = EXTERNAL_BRIDGE if network.external else ""
        self.parts.add(Bridge(bridge_name(network.id), network.mtu, other_name=external))

    def _keep_bridges_in_use(self) -> None:
        """A bridge with a guest's tap in it stays until the guest is gone, whatever Neutron says by now."""
        wanted = {part.key for part in self.parts}
        for part in self.state.parts:
            if isinstance(part, Bridge) and part.key not in wanted and self.state.members.get(part.name):
                self.parts.add(part)

    # --- DHCP and metadata

    def _dhcp_subnets(self, network: Network) -> list[Subnet]:
        subnets = [s for s in self.facts.subnets if s.network_id == network.id]
        return sorted((s for s in subnets if s.enable_dhcp and s.ip_version == 4), key=lambda s: s.id)

    def _dhcp(self, network: Network) -> None:
        subnets = self._dhcp_subnets(network)
        if not subnets:
            return
        port = min(
            (p for p in self.ports_of[network.id] if p.device_owner == DHCP_OWNER), key=lambda p: p.id, default=None
        )
        servers = {ip.subnet_id: ip.ip_address for ip in port.fixed_ips} if port else {}
        if any(subnet.id not in servers for subnet in subnets):
            self.reserve[network.id] = [subnet.id for subnet in subnets]
        subnets = [subnet for subnet in subnets if subnet.id in servers]
        if port is None or not subnets:
            return
        namespace, device = self.place.dhcp_namespace(network.id), dhcp.DEVICE
        outer = f"knd{network.id[:11]}"
        veth = Veth(outer, bridge_name(network.id), namespace, device, port.mac_address, network.mtu)
        self.parts |= {Namespace(namespace), veth, Address(namespace, device, METADATA_CIDR)}
        for subnet in subnets:
            self.parts.add(Address(namespace, device, _with_prefix(servers[subnet.id], subnet)))
        first = next((subnet for subnet in subnets if subnet.gateway_ip), None)
        if first is not None and first.gateway_ip:
            self.parts.add(Route(namespace, "default", first.gateway_ip, device))
        folder = self.place.dhcp_folder(network.id)
        config = dhcp.config_text(
            network, subnets, servers, folder=folder, dns=self.place.dns, domain=self.place.domain
        )
        ports = [p for p in self.ports_of[network.id] if p.device_owner != DHCP_OWNER]
        hosts, options = dhcp.hosts_text(ports, subnets), dhcp.options_text(ports)
        known = filters.digest(f"{hosts}\0{options}")
        self.parts.add(DhcpHosts(namespace, network.id, known, hosts, options))
        self.parts.add(Dhcp(namespace, network.id, device, filters.digest(config), config))
        self.serves[namespace] = frozenset({network.id})

    # --- routers

    def _router(self, router: Router) -> None:
        inside = [p for p in self.device_ports[router.id] if p.device_owner in INTERFACE_OWNERS]
        inside = [p for p in inside if p.network_id in self.active]
        if not inside or not router.admin_state_up:
            return
        namespace = self.place.router_namespace(router.id)
        self.parts |= {Namespace(namespace, forwards=True), Address(namespace, "lo", METADATA_CIDR)}
        self.serves[namespace] = frozenset(port.network_id for port in inside)
        for port in inside:
            self._leg(namespace, port, outer=f"knr{port.id[:11]}", inner=f"qr{port.id[:11]}")
        for route in router.routes:
            device = self._towards(route.nexthop, inside)
            if device is not None:
                self.parts.add(Route(namespace, _plain(route.destination), route.nexthop, device))
        self._gateway(router, namespace)

    def _leg(self, namespace: str, port: Port, *, outer: str, inner: str) -> None:
        network = self.networks[port.network_id]
        self.parts.add(Veth(outer, bridge_name(network.id), namespace, inner, port.mac_address, network.mtu))
        for ip in port.fixed_ips:
            if ip.subnet_id in self.subnets:
                self.parts.add(Address(namespace, inner, _with_prefix(ip.ip_address, self.subnets[ip.subnet_id])))

    def _towards(self, nexthop: str, inside: list[Port]) -> str | None:
        for port in inside:
            for ip in port.fixed_ips:
                subnet = self.subnets.get(ip.subnet_id)
                if subnet and ipaddress.ip_address(nexthop) in ipaddress.ip_network(subnet.cidr):
                    return f"qr{port.id[:11]}"
        return None

    def _gateway(self, router: Router, namespace: str) -> None:
        gateway = router.external_gateway_info
        port = next((p for p in self.device_ports[router.id] if p.device_owner == GATEWAY_OWNER), None)
        if gateway is None or port is None or port.network_id not in self.networks:
            return
        address = next((ip for ip in port.fixed_ips if self._version(ip.subnet_id) == 4), None)
        if address is None:
            return
        self.external_used.add(port.network_id)
        self._leg(namespace, port, outer=f"knx{router.id[:11]}", inner=EXTERNAL_DEVICE)
        out = self.subnets[address.subnet_id].gateway_ip
        if out:
            self.parts.add(Route(namespace, "default", out, EXTERNAL_DEVICE))
        floating = {
            ip.floating_ip_address: ip.fixed_ip_address
            for ip in self.facts.floating_ips
            if ip.router_id == router.id and ip.fixed_ip_address is not None
        }
        for outside in floating:
            self.parts.add(Address(namespace, EXTERNAL_DEVICE, f"{outside}/32"))
        text = filters.router_translation(address.ip_address, EXTERNAL_DEVICE, floating, snat=gateway.enable_snat)
        self._rules(namespace, {"ip": text})

    def _version(self, subnet_id: str) -> int:
        subnet = self.subnets.get(subnet_id)
        return subnet.ip_version if subnet else 0

    # --- the host's own side

    def _host_gateways(self) -> dict[str, str]:
        """The host takes the gateway address of each external network in use; their CIDRs and bridges."""
        found: dict[str, str] = {}
        for subnet in self.facts.subnets:
            if subnet.network_id not in self.external_used or subnet.ip_version != 4 or not subnet.gateway_ip:
                continue
            if self._taken(subnet.cidr):
                self.problems.append(
                    f"{subnet.cidr} of an external network is in use on this host already: not connected"
                )
                continue
            bridge = bridge_name(subnet.network_id)
            self.parts.add(Address(HOST, bridge, _with_prefix(subnet.gateway_ip, subnet)))
            found[_plain(subnet.cidr)] = bridge
        if found:
            self.parts.add(Forwarding())
        return found

    def _host_routes(self, reachable: set[str]) -> None:
        """Fixed addresses are reached from the host through their router, where no two networks claim the same."""
        claims: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for part in list(self.parts):
            if not isinstance(part, Ruleset):
                continue
            via, bridge = self._way_in(part.namespace)
            if via is None or bridge not in reachable:
                continue
            for cidr in self._inner_networks(part.namespace):
                claims[cidr].add((via, bridge))
        nets = {cidr: ipaddress.ip_network(cidr) for cidr in claims}
        for cidr, ways in claims.items():
            overlaps = [other for other, net in nets.items() if other != cidr and net.overlaps(nets[cidr])]
            if nets[cidr].version != 4 or len(ways) > 1 or overlaps or self._taken(cidr):
                continue
            ((via, bridge),) = ways
            self.parts.add(Route(HOST, cidr, via, bridge))

    def _inner_networks(self, namespace: str) -> set[str]:
        """The networks that a router connects, by the addresses of its legs."""
        legs = [part for part in self.parts if isinstance(part, Address) and part.namespace == namespace]
        return {str(ipaddress.ip_interface(leg.cidr).network) for leg in legs if leg.device.startswith("qr")}

    def _way_in(self, namespace: str) -> tuple[str | None, str]:
        """A router's main address on its external network, and that network's bridge."""
        for router in self.facts.routers:
            if self.place.router_namespace(router.id) == namespace:
                port = next(p for p in self.device_ports[router.id] if p.device_owner == GATEWAY_OWNER)
                address = next(ip for ip in port.fixed_ips if self._version(ip.subnet_id) == 4)
                return address.ip_address, bridge_name(port.network_id)
        return None, ""

    def _taken(self, cidr: str) -> bool:
        net = ipaddress.ip_network(cidr)
        return any(net.overlaps(ipaddress.ip_network(other)) for other in self.state.foreign)

    def _host_rules(self, external: Mapping[str, str]) -> None:
        bridges = {part.name for part in self.parts if isinstance(part, Bridge)}
        if not bridges:
            return
        rules = {group.id: group.rules for group in self.facts.security_groups}
        members: dict[str, set[str]] = defaultdict(set)
        for port in self.facts.ports:
            for group in port.security_groups:
                members[group] |= {ip.ip_address for ip in port.fixed_ips}
                members[group] |= {pair.ip_address for pair in port.allowed_address_pairs}
        secured = [
            filters.GuestPort(port, tuple(rule for group in port.security_groups for rule in rules.get(group, ())))
            for port in self.guests
            if port.port_security_enabled
        ]
        unfiltered = {port.tap for port in self.guests if not port.port_security_enabled}
        groups = {group: frozenset(addresses) for group, addresses in members.items()}
        zones = {name: _zone(name) for name in bridges - set(external.values())}
        bodies = {
            "bridge": filters.guest_filters(secured, groups, unfiltered),
            "inet": filters.connection_marks(bridges, zones),
            "ip": filters.masquerade(external, bridges),
        }
        self._rules(HOST, {family: body for family, body in bodies.items() if body})

    def _rules(self, namespace: str, bodies: Mapping[str, str]) -> None:
        text, known = filters.rules_text(self.place.table, bodies)
        self.parts.add(Ruleset(namespace, known, text))


def _zone(bridge: str) -> int:
    """A connection zone from a bridge's name; zone 0 is the host's own."""
    return int(filters.digest(bridge)[:4], 16) or 1


def _with_prefix(address: str, subnet: Subnet) -> str:
    return f"{address}/{ipaddress.ip_network(subnet.cidr).prefixlen}"


def _plain(cidr: str) -> str:
    return "default" if cidr == "0.0.0.0/0" else str(ipaddress.ip_network(cidr, strict=False))
