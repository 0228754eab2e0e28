"""A small cloud as Neutron would tell it: an external network, a router, a private network, two guests."""

from __future__ import annotations

import msgspec

from kilonova.embedded.plane.facts import (
    DHCP_OWNER,
    GATEWAY_OWNER,
    INTERFACE_OWNERS,
    Facts,
    FixedIp,
    FloatingIp,
    Gateway,
    Network,
    Port,
    Router,
    Rule,
    SecurityGroup,
    Subnet,
)

PUBLIC = "eeeeeeee-0000-4000-8000-000000000001"
PRIVATE = "aaaaaaaa-0000-4000-8000-000000000002"
ROUTER = "cccccccc-0000-4000-8000-000000000003"
GROUP = "dddddddd-0000-4000-8000-000000000004"
GUESTS = ("11111111-1000-4000-8000-000000000005", "22222222-2000-4000-8000-000000000006")
SERVERS = ("11111111-aaaa-4000-8000-000000000005", "22222222-aaaa-4000-8000-000000000006")
PROJECT = "6f70656e737461636b20342065766572"
HOST = "here"
FLOATING = "172.31.4.9"
EXTERNAL = "172.31.4.5"

OUTWARD = (Rule("egress"), Rule("egress", "IPv6"))
SSH = Rule("ingress", protocol="tcp", port_range_min=22, port_range_max=22)
PING = Rule("ingress", protocol="icmp")


def guest(number: int, **changes: object) -> Port:
    port = Port(
        id=GUESTS[number],
        network_id=PRIVATE,
        mac_address=f"fa:16:3e:00:01:0{number}",
        project_id=PROJECT,
        device_id=SERVERS[number],
        device_owner="compute:nova",
        fixed_ips=(FixedIp("private-subnet", f"10.211.0.1{number}"),),
        security_groups=(GROUP,),
        host=HOST,
    )
    return msgspec.structs.replace(port, **changes)


def cloud(*guests: Port, rules: tuple[Rule, ...] = (*OUTWARD, SSH, PING), floating: bool = True) -> Facts:
    router_port = Port(
        id="33333333-3000-4000-8000-000000000007",
        network_id=PRIVATE,
        mac_address="fa:16:3e:00:00:01",
        device_id=ROUTER,
        device_owner=INTERFACE_OWNERS[0],
        fixed_ips=(FixedIp("private-subnet", "10.211.0.1"),),
    )
    gateway_port = Port(
        id="44444444-4000-4000-8000-000000000008",
        network_id=PUBLIC,
        mac_address="fa:16:3e:00:00:02",
        device_id=ROUTER,
        device_owner=GATEWAY_OWNER,
        fixed_ips=(FixedIp("public-subnet", EXTERNAL),),
    )
    bound = GUESTS[0] if floating else None
    fixed = "10.211.0.10" if floating else None
    return Facts(
        networks=(Network(PUBLIC, 1500, external=True), Network(PRIVATE, 1450)),
        subnets=(
            Subnet("public-subnet", PUBLIC, "172.31.4.0/24", gateway_ip="172.31.4.1"),
            Subnet("private-subnet", PRIVATE, "10.211.0.0/24", gateway_ip="10.211.0.1", enable_dhcp=True),
        ),
        ports=(router_port, gateway_port, *guests),
        routers=(Router(ROUTER, external_gateway_info=Gateway(PUBLIC)),),
        floating_ips=(FloatingIp("fip", FLOATING, fixed, bound, ROUTER if floating else None),),
        security_groups=(SecurityGroup(GROUP, rules),),
    )


class FakeNeutron:
    """Tells the facts that it is given, and makes DHCP ports when asked."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.reserved: dict[str, Port] = {}

    def read(self) -> Facts:
        return msgspec.structs.replace(self.facts, ports=(*self.facts.ports, *self.reserved.values()))

    def reserve_dhcp_port(self, network_id: str, subnet_ids: list[str], host: str) -> None:
        self.reserved[network_id] = dhcp_port(network_id)


def dhcp_port(network_id: str) -> Port:
    return Port(
        id="55555555-5000-4000-8000-000000000009",
        network_id=network_id,
        mac_address="fa:16:3e:00:00:03",
        device_id=f"kilonova-{network_id}",
        device_owner=DHCP_OWNER,
        fixed_ips=(FixedIp("private-subnet", "10.211.0.2"),),
        host=HOST,
    )
