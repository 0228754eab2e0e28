"""From Neutron's ports, networks and subnets to the NICs of a server; and the marks that say whose a port is.

The mark stands in the port's binding profile, which only services see and which is written in one request with the
port: ``{"kilonova_request": <place of the network request>}`` on ports that were made for a server. Ports of users
carry none, so they are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kilonova.core.network import FixedIP, NetworkRequest, Nic, Route

MARK = "kilonova_request"
FAILED = "binding_failed"


def mark_of(port: Mapping[str, Any]) -> int | None:
    """The place of the request that the port was made for; None: it is a user's."""
    place = (port.get("binding:profile") or {}).get(MARK)
    return place if isinstance(place, int) else None


def match(requests: Sequence[NetworkRequest], ports: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]:
    """The port of each request among those that carry the server's id: a user's by its id, one of ours by its mark."""
    by_id = {port["id"]: port for port in ports}
    by_mark = {mark: port for port in by_id.values() if (mark := mark_of(port)) is not None}
    found: list[Mapping[str, Any] | None] = []
    for place, request in enumerate(requests):
        port = by_id.get(request.port_id) if request.port_id else by_mark.get(place)
        if port is not None and not request.port_id and port["network_id"] != request.network_id:
            port = None
        found.append(port)
    return found


def ordered(ports: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A server's ports in a stable order when its requests are not at hand: ours by their marks, then by age."""

    def key(port: Mapping[str, Any]) -> tuple[bool, int, str, str]:
        mark = mark_of(port)
        return mark is None, mark or 0, str(port.get("created_at", "")), port["id"]

    return sorted(ports, key=key)


def nic_of(
    port: Mapping[str, Any],
    *,
    network: Mapping[str, Any] | None,
    subnets: Mapping[str, Mapping[str, Any]],
    floating: Mapping[str, list[str]],
    tag: str | None = None,
) -> Nic:
    """One NIC. ``subnets`` by id; ``floating``: floating addresses by fixed address."""
    network = network or {}
    profile = {name: value for name, value in (port.get("binding:profile") or {}).items() if name != MARK}
    return Nic(
        port_id=port["id"],
        network_id=port["network_id"],
        mac=port["mac_address"],
        network_name=network.get("name", ""),
        fixed_ips=[
            _address(fixed, subnets.get(fixed.get("subnet_id", ""), {}), floating)
            for fixed in port.get("fixed_ips", [])
        ],
        vif_type=port.get("binding:vif_type") or "unbound",
        vnic_type=port.get("binding:vnic_type") or "normal",
        details=_plain(port.get("binding:vif_details") or {}),
        profile=_plain(profile),
        mtu=network.get("mtu"),
        tag=tag,
        created=mark_of(port) is not None,
        active=port.get("status") == "ACTIVE",
        security_groups=list(port.get("security_groups") or []),
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, str | bool | int | None)}


def _address(fixed: Mapping[str, Any], subnet: Mapping[str, Any], floating: Mapping[str, list[str]]) -> FixedIP:
    address = fixed["ip_address"]
    version = 6 if ":" in address else 4
    return FixedIP(
        address=address,
        version=version,
        subnet_id=fixed.get("subnet_id", ""),
        cidr=subnet.get("cidr", ""),
        gateway=subnet.get("gateway_ip"),
        dhcp=bool(subnet.get("enable_dhcp")),
        dns=list(subnet.get("dns_nameservers") or []),
        routes=[Route(route["destination"], route["nexthop"]) for route in subnet.get("host_routes") or []],
        floating=list(floating.get(address, [])),
        ipv6_mode=subnet.get("ipv6_address_mode") if version == 6 else None,
    )


def floating_by_fixed(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Floating addresses by port and fixed address."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        port = record.get("port_id")
        if port:
            by_fixed = found.setdefault(port, {})
            by_fixed.setdefault(record["fixed_ip_address"], []).append(record["floating_ip_address"])
    return found
