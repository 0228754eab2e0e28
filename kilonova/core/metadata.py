"""What a guest may learn about itself: one typed record, the only input of the metadata documents."""

from __future__ import annotations

from typing import Literal

import msgspec

from kilonova.core.network import Nic

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Key(msgspec.Struct, frozen=True):
    """The public key that the server was booted with."""

    name: str
    type: Literal["ssh", "x509"]
    data: str


class TaggedNic(msgspec.Struct, frozen=True, tag="nic", omit_defaults=True):
    """A NIC that bears a device tag, with the address at which the guest finds it."""

    mac: str
    bus: str
    address: str
    tags: tuple[str, ...] = ()
    vlan: int | None = None
    vf_trusted: bool | None = None


class TaggedDisk(msgspec.Struct, frozen=True, tag="disk"):
    """A disk that bears a device tag."""

    bus: str
    address: str
    tags: tuple[str, ...] = ()
    serial: str | None = None
    path: str | None = None


class Share(msgspec.Struct, frozen=True, tag="share"):
    """An attached file share, and the tag under which the guest mounts it."""

    share_id: str
    tag: str


Device = TaggedNic | TaggedDisk | Share


class InjectedFile(msgspec.Struct, frozen=True):
    """A file asked for at creation (`personality`)."""

    path: str
    content: bytes


class InstanceMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the metadata service and the config drive tell about one server.

    `block_devices` maps EC2's names (ami, root, ephemeral0, ebs0, swap) to device names. `number` and the image
    numbers are the integers of EC2 ids; without them ids are cut from the UUIDs. `password` is what the guest posted,
    `admin_pass` what the user asked for; it appears on a config drive only. `vendor_static` is the operator's file,
    `vendor_dynamic` what the vendor data services answered, by target name.
    """

    uuid: str
    name: str
    hostname: str
    project_id: str
    user_id: str = ""
    domain: str = "novalocal"
    reservation_id: str = ""
    launch_index: int = 0
    number: int | None = None
    image_id: str = ""
    image_number: int | None = None
    kernel_id: str = ""
    ramdisk_id: str = ""
    flavor: str = ""
    availability_zone: str | None = None
    key: Key | None = None
    user_data: bytes | None = None
    metadata: dict[str, str] = {}
    security_groups: tuple[str, ...] = ()
    nics: tuple[Nic, ...] = ()
    devices: tuple[Device, ...] = ()
    dedicated_cpus: tuple[int, ...] = ()
    block_devices: dict[str, str] = {}
    files: tuple[InjectedFile, ...] = ()
    admin_pass: str | None = None
    password: str = ""
    vendor_static: dict[str, Json] = {}
    vendor_dynamic: dict[str, Json] = {}

    @property
    def fqdn(self) -> str:
        """The host name with the deployment's DHCP domain, when there is one."""
        return f"{self.hostname}.{self.domain}" if self.domain else self.hostname

    @property
    def fixed_ips(self) -> tuple[str, ...]:
        """All fixed addresses in the order of the NICs."""
        return tuple(fixed.address for nic in self.nics for fixed in nic.fixed_ips)

    @property
    def floating_ips(self) -> tuple[str, ...]:
        """All floating addresses in the order of the NICs."""
        return tuple(address for nic in self.nics for fixed in nic.fixed_ips for address in fixed.floating)
