"""A server that has everything a metadata document can tell."""

from kilonova.core.metadata import (
    InjectedFile,
    InstanceMetadata,
    Key,
    Share,
    TaggedDisk,
    TaggedNic,
)
from kilonova.core.network import FixedIP, Nic, Route

UUID = "83679162-1378-4288-a2d4-70e13ec132aa"
PROJECT = "6f70656e737461636b20342065766572"

FULL = InstanceMetadata(
    uuid=UUID,
    name="Web 1",
    hostname="web-1",
    project_id=PROJECT,
    reservation_id="r-abc123de",
    launch_index=2,
    number=26,
    image_number=1,
    image_id="70a599e0-31e7-49b7-b260-868f441e862b",
    kernel_id="11111111-31e7-49b7-b260-868f441e862b",
    ramdisk_id="22222222-31e7-49b7-b260-868f441e862b",
    flavor="m1.small",
    availability_zone="nova",
    key=Key("mykey", "ssh", "ssh-ed25519 AAAA me"),
    user_data=b"#!/bin/sh\necho hello\n",
    metadata={"role": "web"},
    security_groups=("default", "web"),
    nics=(
        Nic(
            port_id="aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
            network_id="net-1",
            mac="fa:16:3e:00:00:01",
            mtu=1450,
            vif_type="bridge",
            fixed_ips=[
                FixedIP(
                    address="10.0.0.5",
                    version=4,
                    cidr="10.0.0.0/26",
                    gateway="10.0.0.1",
                    dns=["9.9.9.9"],
                    routes=[Route("192.168.7.0/24", "10.0.0.9")],
                    floating=["172.24.4.8"],
                ),
                FixedIP(address="2001:db8::5", version=6, cidr="2001:db8::/64", ipv6_mode="slaac"),
            ],
        ),
        Nic(
            port_id="bbbbbbbb-bbbb-cccc-dddd-eeeeeeeeeeee",
            network_id="net-2",
            mac="fa:16:3e:00:00:02",
            vif_type="ethernet",
            mtu=9000,
            fixed_ips=[
                FixedIP(address="10.1.0.5", version=4, cidr="10.1.0.0/24", dhcp=True, dns=["9.9.9.9", "8.8.8.8"])
            ],
        ),
    ),
    devices=(
        TaggedNic("fa:16:3e:00:00:01", "pci", "0000:00:03.0", tags=("front",), vlan=7, vf_trusted=True),
        TaggedDisk("scsi", "0:0:0:1", tags=("data",), serial="disk-vol-1"),
        Share("share-1", "files"),
    ),
    dedicated_cpus=(3, 2),
    block_devices={"ami": "vda", "root": "/dev/vda", "swap": "vdc"},
    files=(InjectedFile("/etc/motd", b"welcome"), InjectedFile("/etc/issue", b"issue")),
    admin_pass="s3cret",
)
PLAIN = InstanceMetadata(uuid=UUID, name="plain", hostname="plain", project_id=PROJECT)
