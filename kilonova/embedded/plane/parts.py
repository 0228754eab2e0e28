"""The parts that a host's networks are made of, as values: what should be and what is are both sets of them.

`key` names the thing in the kernel; two parts with one key are two states of one thing. `inside` are the keys of the
things that it stands on and vanishes with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOST = ""  # the name of the host's own namespace

Key = tuple[str, ...]


@dataclass(frozen=True)
class Namespace:
    """A network namespace; a router's forwards packets. One that is not `sound` is a name that leads nowhere."""

    name: str
    sound: bool = True
    forwards: bool = field(default=False, compare=False)

    rank = 0
    in_place = False

    @property
    def key(self) -> Key:
        return ("namespace", self.name)

    @property
    def inside(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True)
class Bridge:
    """A network's bridge on the host. `filtered`: its frames pass the host's packet filter (for security groups)."""

    name: str
    mtu: int
    filtered: bool = True
    other_name: str = field(default="", compare=False)

    rank = 1
    in_place = True

    @property
    def key(self) -> Key:
        return ("device", HOST, self.name)

    @property
    def inside(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True)
class Veth:
    """A pair of devices: `outer` in a bridge of the host, `inner` in a namespace with this MAC."""

    outer: str
    bridge: str
    namespace: str
    inner: str
    mac: str
    mtu: int

    rank = 2
    in_place = False

    @property
    def key(self) -> Key:
        return ("device", self.namespace, self.inner)

    @property
    def inside(self) -> tuple[Key, ...]:
        return (("namespace", self.namespace),)


@dataclass(frozen=True)
class Address:
    """An address with its prefix length on a device."""

    namespace: str
    device: str
    cidr: str

    rank = 3
    in_place = False

    @property
    def key(self) -> Key:
        return ("address", self.namespace, self.device, self.cidr)

    @property
    def inside(self) -> tuple[Key, ...]:
        if self.device == "lo":
            return (("namespace", self.namespace),)
        return (("device", self.namespace, self.device),)


@dataclass(frozen=True)
class Route:
    """An IPv4 route; `destination` may be "default"."""

    namespace: str
    destination: str
    via: str
    device: str

    rank = 4
    in_place = True

    @property
    def key(self) -> Key:
        return ("route", self.namespace, self.destination)

    @property
    def inside(self) -> tuple[Key, ...]:
        return (("device", self.namespace, self.device),)


@dataclass(frozen=True)
class Forwarding:
    """The host forwards IPv4 packets."""

    rank = 4
    in_place = True

    @property
    def key(self) -> Key:
        return ("forwarding",)

    @property
    def inside(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True)
class Ruleset:
    """Our nftables tables in one namespace; loaded as one transaction. The digest stands for the text."""

    namespace: str
    digest: str
    text: str = field(default="", compare=False, repr=False)

    rank = 5
    in_place = True

    @property
    def key(self) -> Key:
        return ("ruleset", self.namespace)

    @property
    def inside(self) -> tuple[Key, ...]:
        return (("namespace", self.namespace),) if self.namespace else ()


@dataclass(frozen=True)
class Admission:
    """Rules of ours in another's chain ("family table chain") that lets nothing be forwarded: our bridges may."""

    wall: str

    rank = 5
    in_place = True

    @property
    def key(self) -> Key:
        return ("admission", self.wall)

    @property
    def inside(self) -> tuple[Key, ...]:
        return ()


@dataclass(frozen=True)
class DhcpHosts:
    """Who gets which address from a DHCP server."""

    namespace: str
    network_id: str
    digest: str
    hosts: str = field(default="", compare=False, repr=False)
    options: str = field(default="", compare=False, repr=False)

    rank = 6
    in_place = True

    @property
    def key(self) -> Key:
        return ("dhcp-hosts", self.network_id)

    @property
    def inside(self) -> tuple[Key, ...]:
        return (("namespace", self.namespace),)


@dataclass(frozen=True)
class Dhcp:
    """A DHCP server process in a namespace."""

    namespace: str
    network_id: str
    device: str
    digest: str
    text: str = field(default="", compare=False, repr=False)

    rank = 7
    in_place = True

    @property
    def key(self) -> Key:
        return ("dhcp", self.network_id)

    @property
    def inside(self) -> tuple[Key, ...]:
        return (("device", self.namespace, self.device),)


Part = Namespace | Bridge | Veth | Address | Route | Forwarding | Ruleset | Admission | DhcpHosts | Dhcp


@dataclass(frozen=True)
class HostState:
    """What is there now, ours only; with what is others' but matters.

    `members` maps a bridge to the tap devices in it; `foreign` are the IPv4 networks that the host reaches otherwise;
    `walls` are others' chains ("family table chain") that drop forwarded packets unless told otherwise.
    """

    parts: frozenset[Part] = frozenset()
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    walls: tuple[str, ...] = ()
