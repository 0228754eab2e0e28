"""Packet filters and address translation as nftables texts, purely made from facts.

Security groups are filtered on the bridge, per tap device, where spoofed frames are seen too. The bridge family knows
no connections on every kernel, so the connection's state is noted in the packet's mark by the IP hooks (which bridged
frames pass through br_netfilter) and read from there: bit ESTABLISHED, bit INVALID. Bit KNOWN goes the other way.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kilonova.embedded.plane.facts import Port, Rule

ESTABLISHED = 0x10000000
INVALID = 0x20000000
KNOWN = 0x40000000
FAMILIES = ("bridge", "inet", "ip")

PROTOCOLS = {
    "icmp": 1,
    "igmp": 2,
    "ipip": 4,
    "tcp": 6,
    "egp": 8,
    "udp": 17,
    "dccp": 33,
    "ipv6-encap": 41,
    "ipv6-route": 43,
    "ipv6-frag": 44,
    "rsvp": 46,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "icmpv6": 58,
    "ipv6-icmp": 58,
    "ipv6-nonxt": 59,
    "ipv6-opts": 60,
    "ospf": 89,
    "vrrp": 112,
    "pgm": 113,
    "sctp": 132,
    "udplite": 136,
}
WITH_PORTS = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp", 136: "udplite"}
MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def rules_text(table: str, bodies: Mapping[str, str]) -> tuple[str, str]:
    """One nft transaction that puts these tables (family -> chains) in the place of ours; with its digest.

    The digest is also the name of an empty chain, by which the loaded text is known again.
    """
    whole = "\n".join(f"{family}\n{bodies.get(family, '')}" for family in FAMILIES)
    name = digest(whole)
    lines: list[str] = []
    for family in FAMILIES:
        lines += [f"table {family} {table}", f"delete table {family} {table}"]
        if family in bodies:
            lines += [f"table {family} {table} {{", f"chain digest_{name} {{", "}", bodies[family], "}"]
    return "\n".join(lines) + "\n", name


def removal_text(table: str) -> str:
    """Removes our tables, whether they are there or not."""
    return rules_text(table, {})[0]


def chain(name: str, lines: Iterable[str], hook: str = "") -> str:
    """A chain; with a hook (such as "filter hook prerouting priority 0") a base chain that accepts by itself."""
    head = [f"type {hook}; policy accept;"] if hook else []
    return "\n".join([f"chain {name} {{", *head, *lines, "}"])


@dataclass(frozen=True)
class GuestPort:
    """A port with what its filters need: its rules, and the link-local address that its MAC gives."""

    port: Port
    rules: tuple[Rule, ...]


def guest_filters(ports: Iterable[GuestPort], groups: Mapping[str, frozenset[str]], unfiltered: Iterable[str]) -> str:
    """The chains of the bridge family. `groups` maps a group to its members' addresses.

    `unfiltered` are the taps of ports without port security. A tap that is neither theirs nor of `ports` is not marked
    as known, so that `connection_marks` drops what it sends: a guest may come before its port is known here.
    """
    chains: list[str] = []
    sent: list[str] = []
    received: list[str] = []
    known = {f'"{tap}"' for tap in unfiltered}
    for guest in sorted(ports, key=lambda guest: guest.port.id):
        tap, name = guest.port.tap, re.sub(r"\W", "_", guest.port.id[:11])
        known.add(f'"{tap}"')
        chains.append(chain(f"sent_{name}", _sent(guest, groups)))
        chains.append(chain(f"received_{name}", _received(guest, groups)))
        sent.append(f'"{tap}" : jump sent_{name}')
        received.append(f'"{tap}" : jump received_{name}')
    mark = f"meta mark set meta mark or {KNOWN:#x}"
    taps = [f"iifname {{ {', '.join(sorted(known))} }} {mark}"] if known else []
    # Before br_netfilter's hook at priority 0, so that the IP hooks see the mark; the filter after it, to see theirs.
    chains.append(chain("known", [f'iifname != "tap*" {mark}', *taps], "filter hook prerouting priority -300"))
    chains.append(chain("from_guest", _map("iifname", sent), "filter hook prerouting priority 100"))
    chains.append(chain("to_guest", _map("oifname", received), "filter hook postrouting priority 0"))
    return "\n".join(chains)


def _map(what: str, verdicts: list[str]) -> list[str]:
    return [f"{what} vmap {{ {', '.join(verdicts)} }}"] if verdicts else []


def _state() -> list[str]:
    return [
        f"meta mark & {ESTABLISHED:#x} == {ESTABLISHED:#x} accept",
        f"meta mark & {INVALID:#x} == {INVALID:#x} drop",
    ]


def _sent(guest: GuestPort, groups: Mapping[str, frozenset[str]]) -> list[str]:
    """What a guest may send: only under its own MAC and addresses, never as DHCP server or router, as its rules say."""
    port = guest.port
    if not port.admin_state_up:
        return ["drop"]
    pairs = port.allowed_address_pairs
    macs = sorted({port.mac_address, *(pair.mac_address for pair in pairs if pair.mac_address)})
    if not all(MAC.fullmatch(mac) for mac in macs):
        return ["drop"]
    own = [ip.ip_address for ip in port.fixed_ips] + [pair.ip_address for pair in pairs]
    v4, v6 = _collapsed(own, 4), _collapsed([*own, *map(link_local, macs), "::"], 6)
    asking = _collapsed([str(ipaddress.IPv4Address(0)), *v4], 4)
    lines = [f"ether saddr != {{ {', '.join(macs)} }} drop"]
    if "0.0.0.0/0" not in v4:
        only = f"!= {{ {', '.join(v4)} }} " if v4 else ""
        lines.append(f"ether type arp arp saddr ip {only}drop" if v4 else "ether type arp drop")
    lines += [
        "ether type arp accept",
        f"ether type ip ip saddr {{ {', '.join(asking)} }} udp sport 68 udp dport 67 accept",
        "ether type ip udp sport 67 udp dport 68 drop",
        "ether type ip6 udp sport 547 udp dport 546 drop",
        "ether type ip6 icmpv6 type { nd-router-advert, nd-redirect } drop",
    ]
    if "0.0.0.0/0" not in v4:
        lines.append(f"ether type ip ip saddr != {{ {', '.join(v4)} }} drop" if v4 else "ether type ip drop")
    if "::/0" not in v6:
        lines.append(f"ether type ip6 ip6 saddr != {{ {', '.join(v6)} }} drop")
    lines += [
        "ether type ip6 icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept",
        "ether type ip6 icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } accept",
        "ether type ip6 udp sport 546 udp dport 547 accept",
        "ether type != { ip, ip6 } drop",
    ]
    return [*lines, *_state(), *_allowed(guest.rules, "egress", groups), "drop"]


def _received(guest: GuestPort, groups: Mapping[str, frozenset[str]]) -> list[str]:
    """What a guest may receive: ARP, DHCP answers, neighbour discovery, answers to itself, and as its rules say."""
    if not guest.port.admin_state_up:
        return ["drop"]
    return [
        "ether type arp accept",
        "ether type ip udp sport 67 udp dport 68 accept",
        "ether type ip6 udp sport 547 udp dport 546 accept",
        "ether type ip6 icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept",
        "ether type ip6 icmpv6 type mld-listener-query accept",
        *_state(),
        *_allowed(guest.rules, "ingress", groups),
        "drop",
    ]


def _collapsed(addresses: Iterable[str], version: int) -> list[str]:
    networks = [ipaddress.ip_network(address, strict=False) for address in addresses]
    fitting = [network for network in networks if network.version == version]
    return [str(network) for network in ipaddress.collapse_addresses(fitting)]  # type: ignore[type-var]  # of one version


def link_local(mac: str) -> str:
    """The IPv6 link-local address that a MAC gives (EUI-64)."""
    first, *rest = [int(part, 16) for part in mac.split(":")]
    eui = bytes([first ^ 2, *rest[:2], 0xFF, 0xFE, *rest[2:]])
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + eui))


def _allowed(rules: Iterable[Rule], direction: str, groups: Mapping[str, frozenset[str]]) -> list[str]:
    matches = {match for rule in rules if rule.direction == direction and (match := _match(rule, groups)) is not None}
    return [f"{match} accept" for match in sorted(matches)]


def _match(rule: Rule, groups: Mapping[str, frozenset[str]]) -> str | None:
    """A rule as an nft match; None when it can match nothing (or is of a kind that we do not know: then it is shut)."""
    version = 4 if rule.ethertype == "IPv4" else 6
    family = "ip" if version == 4 else "ip6"
    words = [f"ether type {family}"]
    side = "saddr" if rule.direction == "ingress" else "daddr"
    if rule.remote_address_group_id is not None:
        return None
    if rule.remote_group_id is not None:
        members = _collapsed(groups.get(rule.remote_group_id, frozenset()), version)
        if not members:
            return None
        words.append(f"{family} {side} {{ {', '.join(members)} }}")
    elif rule.remote_ip_prefix is not None:
        prefix = ipaddress.ip_network(rule.remote_ip_prefix, strict=False)
        if prefix.version != version:
            return None
        if prefix.prefixlen:
            words.append(f"{family} {side} {prefix}")
    protocol = _protocol(rule.protocol, version)
    if protocol is not None:
        words.append(_protocol_match(rule, protocol))
    return " ".join(words)


def _protocol(name: str | None, version: int) -> int | None:
    if name in (None, "any", "0"):
        return None
    number = PROTOCOLS[name] if name in PROTOCOLS else int(str(name))
    return 58 if version == 6 and number == 1 else number


def _protocol_match(rule: Rule, protocol: int) -> str:
    low, high = rule.port_range_min, rule.port_range_max
    if protocol in (1, 58) and low is not None:
        kind = "icmp" if protocol == 1 else "icmpv6"
        return f"{kind} type {int(low)}" + (f" {kind} code {int(high)}" if high is not None else "")
    if protocol in WITH_PORTS and low is not None and high is not None:
        return f"{WITH_PORTS[protocol]} dport {int(low)}-{int(high)}"
    return f"meta l4proto {protocol}"


def connection_marks(bridges: Iterable[str], zones: Mapping[str, int]) -> str:
    """The chains of the inet family that note the state of a connection in the mark of packets of our bridges.

    `zones` gives each bridge without host addresses a space of connections of its own: networks may use the same
    addresses.
    """
    names = ", ".join(f'"{name}"' for name in sorted(bridges))
    if not names:
        return ""
    notes = [
        f"ct state established,related meta mark set meta mark or {ESTABLISHED:#x}",
        f"ct state invalid meta mark set meta mark or {INVALID:#x}",
    ]
    zoned = [f'iifname "{name}" ct zone set {zone}' for name, zone in sorted(zones.items())]
    unknown = f"meta mark & {KNOWN:#x} == 0 drop"
    entering = [f"iifname {{ {names} }} {what}" for what in (*notes, unknown)]
    return "\n".join(
        [
            chain("zones", zoned, "filter hook prerouting priority -300"),
            chain("noted", entering, "filter hook prerouting priority -150"),
            chain("routed", [f"oifname {{ {names} }} {note}" for note in notes], "filter hook forward priority -150"),
            chain("told", [f"oifname {{ {names} }} {note}" for note in notes], "filter hook output priority -150"),
        ]
    )


def masquerade(networks: Iterable[str], bridges: Iterable[str]) -> str:
    """The host's translation: what comes from an external network (CIDR) leaves under the host's address.

    Frames that only cross one of our bridges pass these hooks too and must stay as they are.
    """
    names = ", ".join(f'"{name}"' for name in sorted(bridges))
    lines = [f"ip saddr {cidr} oifname != {{ {names} }} masquerade" for cidr in sorted(networks)]
    return chain("leave", lines, "nat hook postrouting priority 100") if lines else ""


def router_translation(external: str, device: str, floating: Mapping[str, str], *, snat: bool) -> str:
    """A router's translation: floating addresses (floating -> fixed), and its own address for everybody else."""
    to_fixed = [f"ip daddr {outside} dnat to {fixed}" for outside, fixed in sorted(floating.items())]
    leave = [f'oifname "{device}" ip saddr {fixed} snat to {outside}' for outside, fixed in sorted(floating.items())]
    # Guests of one router who meet by a floating address must answer through it.
    leave.append(f'iifname != "{device}" oifname != "{device}" ct status dnat snat to {external}')
    if snat:
        leave.append(f'iifname != "{device}" oifname "{device}" snat to {external}')
    return "\n".join(
        [
            chain("enter", to_fixed, "nat hook prerouting priority -100"),
            chain("leave", leave, "nat hook postrouting priority 100"),
        ]
    )
