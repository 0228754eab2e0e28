"""What Neutron says about networks: typed facts, the Protocol by which the plane gets them, and the real reader."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

DHCP_OWNER = "network:dhcp"
GATEWAY_OWNER = "network:router_gateway"
INTERFACE_OWNERS = ("network:router_interface", "network:ha_router_replicated_interface")
# Neutron's own device owners; every other bound port belongs to a guest.
NEUTRON_OWNERS = "network:"


class FixedIp(msgspec.Struct, frozen=True):
    """An address of a port."""

    subnet_id: str
    ip_address: str


class AddressPair(msgspec.Struct, frozen=True):
    """A further address (or CIDR) that a port may use."""

    ip_address: str
    mac_address: str = ""


class DhcpOption(msgspec.Struct, frozen=True):
    """An extra DHCP option of a port."""

    opt_name: str
    opt_value: str = ""
    ip_version: int = 4


class Network(msgspec.Struct, frozen=True):
    """A network."""

    id: str
    mtu: int = 1500
    external: bool = msgspec.field(default=False, name="router:external")


class HostRoute(msgspec.Struct, frozen=True):
    """A static route of a subnet or a router."""

    destination: str
    nexthop: str


class Subnet(msgspec.Struct, frozen=True):
    """A subnet."""

    id: str
    network_id: str
    cidr: str
    ip_version: int = 4
    gateway_ip: str | None = None
    enable_dhcp: bool = False
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[HostRoute, ...] = ()


class Port(msgspec.Struct, frozen=True):
    """A port. `host` is where it is bound, empty when it is not."""

    id: str
    network_id: str
    mac_address: str
    project_id: str = ""
    device_id: str = ""
    device_owner: str = ""
    admin_state_up: bool = True
    port_security_enabled: bool = True
    fixed_ips: tuple[FixedIp, ...] = ()
    security_groups: tuple[str, ...] = ()
    allowed_address_pairs: tuple[AddressPair, ...] = ()
    extra_dhcp_opts: tuple[DhcpOption, ...] = ()
    host: str = msgspec.field(default="", name="binding:host_id")

    @property
    def is_guests(self) -> bool:
        """Whether a guest uses the port: bound, and to none of Neutron's own devices."""
        return bool(self.host) and not self.device_owner.startswith(NEUTRON_OWNERS)

    @property
    def tap(self) -> str:
        """The name of its tap device on the host."""
        return f"tap{self.id[:11]}"


class Gateway(msgspec.Struct, frozen=True):
    """A router's way out."""

    network_id: str
    enable_snat: bool = True
    external_fixed_ips: tuple[FixedIp, ...] = ()


class Router(msgspec.Struct, frozen=True):
    """A router; its interfaces are ports."""

    id: str
    admin_state_up: bool = True
    external_gateway_info: Gateway | None = None
    routes: tuple[HostRoute, ...] = ()


class FloatingIp(msgspec.Struct, frozen=True):
    """A floating address; without a port it leads nowhere."""

    id: str
    floating_ip_address: str
    fixed_ip_address: str | None = None
    port_id: str | None = None
    router_id: str | None = None


class Rule(msgspec.Struct, frozen=True):
    """A security group rule: what it lets through."""

    direction: str
    ethertype: str = "IPv4"
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None
    remote_address_group_id: str | None = None


class SecurityGroup(msgspec.Struct, frozen=True):
    """A security group with its rules."""

    id: str
    rules: tuple[Rule, ...] = msgspec.field(default=(), name="security_group_rules")


class Facts(msgspec.Struct, frozen=True):
    """All that the plane needs to know, read within a moment."""

    networks: tuple[Network, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    ports: tuple[Port, ...] = ()
    routers: tuple[Router, ...] = ()
    floating_ips: tuple[FloatingIp, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()


class NeutronFacts(Protocol):
    """Where facts come from. Any method may raise; the plane then keeps what is and tries again later."""

    def read(self) -> Facts:
        """Every network, subnet, port, router, floating address and security group of all projects."""
        ...

    def reserve_dhcp_port(self, network_id: str, subnet_ids: list[str], host: str) -> None:
        """Make the port that holds the DHCP server's addresses on this network, or give it these subnets."""
        ...


class Response(Protocol):
    """What we use of a `requests` response."""

    content: bytes


class Session(Protocol):
    """What we use of a keystoneauth session of an administrator."""

    def get(self, url: str, **options: object) -> Response:
        """GET, with keystoneauth's options."""
        ...

    def post(self, url: str, **options: object) -> Response:
        """POST."""
        ...

    def put(self, url: str, **options: object) -> Response:
        """PUT."""
        ...


Resource = TypeVar("Resource", Network, Subnet, Port, Router, FloatingIp, SecurityGroup)


class RestFacts:
    """Facts from Neutron's REST API over a keystoneauth session."""

    def __init__(self, session: Session, *, interface: str = "public", region: str | None = None) -> None:
        self._session = session
        self._where = {"service_type": "network", "interface": interface, "region_name": region}

    def read(self) -> Facts:
        """One GET per kind of resource, with the fields that we use."""
        return Facts(
            networks=self._list("networks", Network),
            subnets=self._list("subnets", Subnet),
            ports=self._list("ports", Port),
            routers=self._list("routers", Router),
            floating_ips=self._list("floatingips", FloatingIp),
            security_groups=self._list("security-groups", SecurityGroup),
        )

    def _list(self, path: str, kind: type[Resource]) -> tuple[Resource, ...]:
        wanted = "&".join(f"fields={field.encode_name}" for field in msgspec.structs.fields(kind))
        response = self._session.get(f"/v2.0/{path}?{wanted}", endpoint_filter=self._where)
        body: dict[str, list[dict[str, object]]] = msgspec.json.decode(response.content)
        # Neutron says null for what is not set; our defaults say what that means.
        plain = [{k: v for k, v in item.items() if v is not None} for item in body[path.replace("-", "_")]]
        for item in plain:
            if item.get("external_gateway_info") == {}:
                del item["external_gateway_info"]
        return tuple(msgspec.convert(item, kind, strict=False) for item in plain)

    def reserve_dhcp_port(self, network_id: str, subnet_ids: list[str], host: str) -> None:
        """Find our DHCP port on the network and give it the subnets, or create it."""
        device_id = f"kilonova-{network_id}"
        query = f"network_id={network_id}&device_owner={DHCP_OWNER}&device_id={device_id}"
        response = self._session.get(f"/v2.0/ports?{query}", endpoint_filter=self._where)
        found = msgspec.json.decode(response.content)["ports"]
        fixed_ips = [{"subnet_id": subnet_id} for subnet_id in subnet_ids]
        if found:
            known = [ip for ip in found[0]["fixed_ips"] if ip["subnet_id"] in subnet_ids]
            new = [ip for ip in fixed_ips if ip["subnet_id"] not in {k["subnet_id"] for k in known}]
            self._session.put(
                f"/v2.0/ports/{found[0]['id']}",
                json={"port": {"fixed_ips": known + new}},
                endpoint_filter=self._where,
            )
            return
        port = {
            "network_id": network_id,
            "name": "",
            "admin_state_up": True,
            "device_owner": DHCP_OWNER,
            "device_id": device_id,
            "binding:host_id": host,
            "fixed_ips": fixed_ips,
        }
        self._session.post("/v2.0/ports", json={"port": port}, endpoint_filter=self._where)
