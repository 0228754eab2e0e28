"""From Neutron's facts to parts: which networks, addresses, routes and servers a host gets."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kilonova.embedded.plane.desire import Outcome, Place, bridge_name, desire
from kilonova.embedded.plane.dhcp import kept_leases
from kilonova.embedded.plane.facts import DhcpOption, Facts, FixedIp, HostRoute, Network, Port, Subnet
from kilonova.embedded.plane.parts import HOST as HOST_NS
from kilonova.embedded.plane.parts import (
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
from tests.unit.embedded.plane.cloud import (
    EXTERNAL,
    FLOATING,
    HOST,
    PRIVATE,
    PUBLIC,
    ROUTER,
    cloud,
    dhcp_port,
    guest,
)

PLACE = Place("abc", Path("/state/plane"), host=HOST, dns=("9.9.9.9",))
DHCP_NS, ROUTER_NS = PLACE.dhcp_namespace(PRIVATE), PLACE.router_namespace(ROUTER)


def wish(facts: Facts, state: HostState | None = None) -> Outcome:
    return desire(facts, PLACE, state or HostState())


def only(outcome: Outcome, kind: type[Part]) -> list[Part]:
    return [part for part in outcome.parts if isinstance(part, kind)]


def test_nothing_without_a_guest_here() -> None:
    assert wish(cloud()).parts == frozenset()
    assert wish(cloud(guest(0, host="elsewhere"))).parts == frozenset()
    assert wish(cloud(guest(0, host=""))).parts == frozenset()
    assert wish(cloud(dhcp_port(PRIVATE))).parts == frozenset()
    anywhere = Place("abc", Path("/state/plane"), host=None)
    assert desire(cloud(guest(0, host="elsewhere")), anywhere, HostState()).parts


def test_a_guest_brings_its_network_its_router_and_the_way_out() -> None:
    outcome = wish(cloud(guest(0), dhcp_port(PRIVATE)))
    parts = outcome.parts
    private, public = bridge_name(PRIVATE), bridge_name(PUBLIC)
    assert private == "brqaaaaaaaa-00"
    assert {Bridge(private, 1450), Bridge(public, 1500)} == set(only(outcome, Bridge))
    assert set(only(outcome, Namespace)) == {Namespace(DHCP_NS), Namespace(ROUTER_NS)}
    assert {
        Address(DHCP_NS, "dhcp0", "10.211.0.2/24"),
        Address(DHCP_NS, "dhcp0", "169.254.169.254/32"),
        Address(ROUTER_NS, "lo", "169.254.169.254/32"),
        Address(ROUTER_NS, "ext0", f"{EXTERNAL}/24"),
        Address(ROUTER_NS, "ext0", f"{FLOATING}/32"),
        Address(ROUTER_NS, "qr33333333-30", "10.211.0.1/24"),
        Address(HOST_NS, public, "172.31.4.1/24"),
    } == set(only(outcome, Address))
    assert Route(HOST_NS, "10.211.0.0/24", EXTERNAL, public) in parts
    assert Route(ROUTER_NS, "default", "172.31.4.1", "ext0") in parts
    assert Forwarding() in parts
    assert {part.namespace for part in parts if isinstance(part, Ruleset)} == {HOST_NS, ROUTER_NS}
    assert outcome.reserve == {}
    assert outcome.serves == {DHCP_NS: frozenset({PRIVATE}), ROUTER_NS: frozenset({PRIVATE})}


def test_names_of_devices_fit_the_kernel() -> None:
    outcome = wish(cloud(guest(0), dhcp_port(PRIVATE)))
    devices = [guest(0).tap, *(name for veth in only(outcome, Veth) for name in (veth.outer, veth.inner))]
    devices += [bridge.name for bridge in only(outcome, Bridge)]
    assert all(len(name) <= 15 for name in devices)


def test_a_network_without_dhcp_addresses_asks_for_them() -> None:
    outcome = wish(cloud(guest(0)))
    assert outcome.reserve == {PRIVATE: ["private-subnet"]}
    assert not only(outcome, Dhcp)


def test_dhcp_texts() -> None:
    odd = DhcpOption("bootfile-name", "a\ndhcp-script=/bin/sh")
    port = guest(0, extra_dhcp_opts=(DhcpOption("67", "pxe.0"), odd))
    outcome = wish(cloud(port, dhcp_port(PRIVATE)))
    (server,) = only(outcome, Dhcp)
    assert isinstance(server, Dhcp)
    assert "dhcp-range=set:subnet0,10.211.0.0,static,255.255.255.0,86400s" in server.text
    assert "option:mtu,1450" in server.text
    assert "option:dns-server,9.9.9.9" in server.text
    assert "option:router,10.211.0.1" in server.text
    assert "option:classless-static-route,169.254.169.254/32,10.211.0.2,0.0.0.0/0,10.211.0.1" in server.text
    (hosts,) = only(outcome, DhcpHosts)
    assert isinstance(hosts, DhcpHosts)
    assert f"fa:16:3e:00:01:00,set:{port.id},10.211.0.10,host-10-211-0-10\n" in hosts.hosts
    assert hosts.options == f"tag:{port.id},67,pxe.0\n"


def test_subnet_options_reach_the_guests() -> None:
    facts = cloud(guest(0), dhcp_port(PRIVATE))
    public, private = facts.subnets
    private = msgspec.structs.replace(
        private, dns_nameservers=("1.1.1.1",), host_routes=(HostRoute("10.9.0.0/16", "10.211.0.9"),), gateway_ip=None
    )
    (server,) = only(wish(msgspec.structs.replace(facts, subnets=(public, private))), Dhcp)
    assert isinstance(server, Dhcp)
    assert "option:dns-server,1.1.1.1" in server.text
    assert "option:classless-static-route,10.9.0.0/16,10.211.0.9,169.254.169.254/32,10.211.0.2\n" in server.text
    assert "option:router\n" in server.text


@pytest.mark.parametrize("foreign,connected", [(("192.168.0.0/16",), True), (("172.16.0.0/12",), False)])
def test_an_external_network_that_the_host_uses_is_left_alone(foreign: tuple[str, ...], connected: bool) -> None:
    outcome = wish(cloud(guest(0), dhcp_port(PRIVATE)), HostState(foreign=foreign))
    assert (Forwarding() in outcome.parts) is connected
    assert bool(outcome.problems) is not connected
    assert any(isinstance(part, Route) and part.namespace == HOST_NS for part in outcome.parts) is connected


def test_fixed_addresses_that_the_host_uses_get_no_route() -> None:
    outcome = wish(cloud(guest(0), dhcp_port(PRIVATE)), HostState(foreign=("10.0.0.0/8",)))
    assert not [part for part in outcome.parts if isinstance(part, Route) and part.namespace == HOST_NS]
    assert Forwarding() in outcome.parts


def test_a_bridge_in_use_is_kept() -> None:
    state = HostState(frozenset({Bridge("brqold", 1450), Bridge("brqfree", 1450)}), {"brqold": frozenset({"tapx"})})
    outcome = wish(cloud(), state)
    assert only(outcome, Bridge) == [Bridge("brqold", 1450)]


def test_two_networks_with_the_same_addresses_do_not_share_connections() -> None:
    other = "bbbbbbbb-0000-4000-8000-000000000002"
    facts = cloud(guest(0), dhcp_port(PRIVATE))
    port = Port(
        "99999999-9000-4000-8000-000000000009",
        other,
        "fa:16:3e:00:09:09",
        host=HOST,
        fixed_ips=(FixedIp("other-subnet", "10.211.0.10"),),
    )
    facts = msgspec.structs.replace(
        facts,
        networks=(*facts.networks, Network(other)),
        subnets=(*facts.subnets, Subnet("other-subnet", other, "10.211.0.0/24")),
        ports=(*facts.ports, port),
    )
    (rules,) = [part for part in only(wish(facts), Ruleset) if isinstance(part, Ruleset) and part.namespace == HOST_NS]
    zones = [line for line in rules.text.splitlines() if "ct zone set" in line]
    assert len({line.rpartition(" ")[2] for line in zones}) == len(zones) == 2


def test_a_firewall_that_stands_in_the_way_lets_our_bridges_pass() -> None:
    state = HostState(walls=("ip filter FORWARD",))
    assert only(wish(cloud(guest(0)), state), Admission) == [Admission("ip filter FORWARD")]
    assert not wish(cloud(), state).parts


def test_leases_of_ports_that_are_gone_are_forgotten() -> None:
    leases = "99 fa:16:3e:00:01:00 10.211.0.10 host *\n99 fa:16:3e:00:01:01 10.211.0.11 host *\n"
    hosts = "FA:16:3E:00:01:00,set:x,10.211.0.10,host-10-211-0-10\nfa:16:3e:00:01:02,set:y,10.211.0.11,h\n"
    assert kept_leases(leases, hosts) == "99 fa:16:3e:00:01:00 10.211.0.10 host *\n"
