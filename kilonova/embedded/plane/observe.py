"""Looks at the host: which of our parts are there now."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from kilonova.embedded.plane import dhcp
from kilonova.embedded.plane.commands import Commands, JsonObject
from kilonova.embedded.plane.desire import Place
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

# Our routes on the host bear this protocol number.
PROTOCOL = "75"
# What passes our bridges, and what is routed from or to them.
ADMITTED = ("iifname", "oifname")
NAMESPACES = Path("/run/netns")


def namespaces(place: Place) -> list[Namespace]:
    """Our namespaces by their names. A kill, or a lost mount, can leave a name without a namespace."""
    try:
        around = NAMESPACES.stat().st_dev
        found = sorted(NAMESPACES.glob(f"kn-{place.tag}-*"))
    except FileNotFoundError:
        return []
    return [Namespace(path.name, sound=path.stat().st_dev != around) for path in found]


def observe(commands: Commands, place: Place) -> HostState:
    """All of our parts, the taps in our bridges, and the networks that the host reaches otherwise."""
    links = commands.ip_json(HOST, "-d", "link", "show")
    ours = {str(link["ifname"]): link for link in links if link.get("ifalias") == place.mark}
    bridges = {name: link for name, link in ours.items() if _kind(link) == "bridge"}
    members: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.get("master") in bridges and str(link["ifname"]).startswith("tap"):
            members[str(link["master"])].add(str(link["ifname"]))
    parts: set[Part] = {_bridge(link) for link in bridges.values()}
    parts |= set(_addresses(commands.ip_json(HOST, "addr", "show"), HOST, set(bridges)))
    chains = _chains(commands, HOST)
    parts |= set(_ruleset(chains, place, HOST))
    passed = _forward_chains(chains, place)
    parts |= {Admission(wall) for wall in passed if len(admitted(commands, place, wall)) == len(ADMITTED)}
    by_index = {link["ifindex"]: link for link in ours.values()}
    for namespace in namespaces(place):
        parts.add(namespace)
        if namespace.sound:
            parts |= set(_inside(commands, place, namespace.name, by_index))
    for folder in (place.folder / "dhcp").glob("*"):
        parts |= set(_dhcp(place, folder.name))
    if _forwarding(commands, place):
        parts.add(Forwarding())
    foreign: set[str] = set()
    for route in commands.ip_json(HOST, "-4", "route", "show"):
        if str(route.get("protocol")) == PROTOCOL:
            parts.add(_route(HOST, route))
        elif route["dst"] != "default" and route.get("dev") not in bridges:
            foreign.add(_network(route["dst"]))
    return HostState(
        parts=frozenset(parts),
        members={name: frozenset(taps) for name, taps in members.items()},
        foreign=tuple(sorted(foreign)),
        walls=tuple(wall for wall, rest in passed.items() if rest == "drop"),
    )


def _kind(link: JsonObject) -> str:
    info = link.get("linkinfo")
    return str(info.get("info_kind")) if isinstance(info, dict) else ""


def _bridge(link: JsonObject) -> Bridge:
    info = link["linkinfo"]
    data = info["info_data"] if isinstance(info, dict) else {}
    filtered = data.get("nf_call_iptables") == 1 and data.get("nf_call_ip6tables") == 1
    return Bridge(str(link["ifname"]), int(str(link["mtu"])), filtered=filtered)


def _addresses(listed: list[JsonObject], namespace: str, devices: set[str] | None) -> Iterator[Address]:
    """The addresses on these devices (None: on all), without those that the kernel gives by itself."""
    for link in listed:
        if devices is not None and link["ifname"] not in devices:
            continue
        found = link.get("addr_info")
        for info in found if isinstance(found, list) else []:
            if info.get("scope") != "link" and "local" in info and info["local"] not in ("127.0.0.1", "::1"):
                yield Address(namespace, str(link["ifname"]), f"{info['local']}/{info['prefixlen']}")


def _inside(commands: Commands, place: Place, name: str, by_index: dict[object, JsonObject]) -> Iterator[Part]:
    listed = commands.ip_json(name, "-d", "addr", "show")
    yield from _addresses(listed, name, None)
    for link in listed:
        if _kind(link) == "veth":
            outer = by_index.get(link.get("link_index"), {})
            yield Veth(
                outer=str(outer.get("ifname", "")),
                bridge=str(outer.get("master", "")),
                namespace=name,
                inner=str(link["ifname"]),
                mac=str(link["address"]),
                mtu=int(str(link["mtu"])),
            )
    for route in commands.ip_json(name, "-4", "route", "show"):
        if route.get("protocol") != "kernel":
            yield _route(name, route)
    yield from _ruleset(_chains(commands, name), place, name)


def _network(destination: object) -> str:
    text = str(destination)
    return text if "/" in text or text == "default" else f"{text}/32"


def _route(namespace: str, route: JsonObject) -> Route:
    return Route(namespace, _network(route["dst"]), str(route.get("gateway", "")), str(route["dev"]))


def _chains(commands: Commands, namespace: str) -> list[dict[str, str]]:
    listed = json.loads(commands.inside(namespace, "nft", "-j", "list", "chains"))["nftables"]
    return [entry["chain"] for entry in listed if "chain" in entry]


def _ruleset(chains: list[dict[str, str]], place: Place, namespace: str) -> Iterator[Ruleset]:
    ours = [chain["name"] for chain in chains if chain["table"] == place.table]
    if ours:
        digests = {name.removeprefix("digest_") for name in ours if name.startswith("digest_")}
        yield Ruleset(namespace, digests.pop() if len(digests) == 1 else "")


def _forward_chains(chains: list[dict[str, str]], place: Place) -> dict[str, str]:
    """Others' chains that forwarded packets pass, with what they do with the rest."""
    found = [chain for chain in chains if chain.get("hook") == "forward" and chain["table"] != place.table]
    return {
        f"{chain['family']} {chain['table']} {chain['name']}": chain.get("policy", "accept")
        for chain in found
        if chain["family"] in ("ip", "inet")
    }


def admitted(commands: Commands, place: Place, wall: str) -> list[str]:
    """The handles of our rules in another's chain."""
    listed = json.loads(commands.inside(HOST, "nft", "-j", "-a", "list", "chain", *wall.split()))["nftables"]
    rules = [entry["rule"] for entry in listed if "rule" in entry]
    return [str(rule["handle"]) for rule in rules if rule.get("comment") == place.mark]


def _forwarding(commands: Commands, place: Place) -> bool:
    if not (place.folder / "forwarding-before").exists():
        return False
    return commands.inside(HOST, "cat", "/proc/sys/net/ipv4/ip_forward").strip() == "1"


def _dhcp(place: Place, network_id: str) -> Iterator[Part]:
    folder, namespace = place.dhcp_folder(network_id), place.dhcp_namespace(network_id)
    if applied := _read(folder.path / "applied-hosts"):
        yield DhcpHosts(namespace, network_id, applied)
    if server_pid(folder) is not None:
        here = _same_namespace(server_pid(folder), namespace)
        yield Dhcp(namespace, network_id, dhcp.DEVICE if here else "", _read(folder.path / "applied-config"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def server_pid(folder: dhcp.Folder) -> int | None:
    """The process id of the living DHCP server that reads this folder, None when there is none.

    A pid file outlives its process, and the number may be another's by now; a dead process may not be reaped yet.
    """
    text = _read(folder.pid).strip()
    if not text.isdigit():
        return None
    process = Path("/proc", text)
    try:
        alive = process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
        ours = str(folder.config) in process.joinpath("cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return int(text) if alive and ours else None


def _same_namespace(pid: int | None, namespace: str) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == (NAMESPACES / namespace).stat().st_ino
    except OSError:
        return False
