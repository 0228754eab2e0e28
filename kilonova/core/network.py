"""A server's ports: what was asked for, and what the guest gets."""

from __future__ import annotations

import msgspec


class NetworkRequest(msgspec.Struct, kw_only=True):
    """One entry of a create request's networks. Exactly one of ``network_id`` and ``port_id`` is asked for.

    ``port_created``: the port was made by us for this server, so it goes with it. ``device_id``-claimed ports of
    users are only unbound.
    """

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None
    port_created: bool = False


class Route(msgspec.Struct, frozen=True):
    """A static route of a subnet."""

    destination: str
    gateway: str


class FixedIP(msgspec.Struct, kw_only=True):
    """An address of a port, with what a guest needs to use it. ``version`` is 4 or 6."""

    address: str
    version: int
    subnet_id: str = ""
    cidr: str = ""
    gateway: str | None = None
    dhcp: bool = False
    dns: list[str] = []
    routes: list[Route] = []
    floating: list[str] = []
    ipv6_mode: str | None = None


class Nic(msgspec.Struct, kw_only=True):
    """A port of a server, as bound. ``created`` says whether it is ours to delete."""

    port_id: str
    network_id: str
    mac: str
    network_name: str = ""
    fixed_ips: list[FixedIP] = []
    vif_type: str = "unbound"
    vnic_type: str = "normal"
    details: dict[str, str | bool | int | None] = {}
    profile: dict[str, str | int | bool | None] = {}
    mtu: int | None = None
    tag: str | None = None
    created: bool = False
    active: bool = False
    security_groups: list[str] = []

    @property
    def device(self) -> str:
        """The name of its tap device on the host."""
        return f"tap{self.port_id[:11]}"

    @property
    def bridge(self) -> str:
        """The Linux bridge of its network."""
        named = self.details.get("bridge_name")
        return str(named) if named else f"brq{self.network_id[:11]}"
