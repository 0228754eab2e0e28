"""The metadata documents: what each version of each tree holds, as reference/services.md section 11 lists it."""

import base64
import json
import re
from pathlib import Path

import msgspec
import pytest

from kilonova.core import metadata_documents as documents
from kilonova.core.metadata import InstanceMetadata
from tests.unit.metadata.records import FULL, PLAIN, UUID


def section(reference: Path) -> str:
    text = (reference / "services.md").read_text()
    return text.partition("## 11. Metadata service")[2].partition("\n## ")[0]


def test_the_versions_are_those_of_the_reference(reference: Path) -> None:
    text = section(reference)
    ec2 = re.search(r"`/` lists EC2 versions ([^.]+\.0[^.]*), latest", text)
    openstack = re.search(r"`/openstack` lists ([^(]+), latest \(", text)
    assert ec2
    assert openstack
    assert list(documents.EC2_VERSIONS) == ec2[1].split(", ")
    assert list(documents.OPENSTACK_VERSIONS) == openstack[1].split(", ")


# first version of the key -> keys
EC2_KEYS = {
    "1.0": {
        "ami-id",
        "ami-launch-index",
        "ami-manifest-path",
        "instance-id",
        "hostname",
        "local-ipv4",
        "reservation-id",
        "security-groups",
        "public-keys",
    },
    "2007-01-19": {"local-hostname", "public-hostname", "public-ipv4"},
    "2007-08-29": {"instance-type"},
    "2007-12-15": {"block-device-mapping", "kernel-id", "ramdisk-id"},
    "2008-02-01": {"placement"},
    "2008-09-01": {"instance-action"},
}


@pytest.mark.parametrize("version", [*documents.EC2_VERSIONS, "latest"])
def test_ec2_keys_per_version(version: str, reference: Path) -> None:
    expected = {key for since, keys in EC2_KEYS.items() for key in keys if version == "latest" or since <= version}
    assert set(documents.ec2_meta_data(FULL, version)) == expected
    text = section(reference)
    assert all(key in text for key in expected)


def test_ec2_values() -> None:
    tree = documents.ec2_meta_data(FULL, "latest")
    assert tree["instance-id"] == "i-0000001a"
    assert tree["ami-id"] == "ami-00000001"
    assert tree["ami-manifest-path"] == "FIXME"
    assert tree["hostname"] == tree["local-hostname"] == tree["public-hostname"] == "web-1.novalocal"
    assert (tree["local-ipv4"], tree["public-ipv4"]) == ("10.0.0.5", "172.24.4.8")
    assert tree["security-groups"] == "default\nweb"
    assert tree["placement"] == {"availability-zone": "nova"}
    assert tree["block-device-mapping"] == {"ami": "vda", "root": "/dev/vda", "swap": "vdc"}
    assert tree["instance-action"] == "none"
    assert documents.ec2_meta_data(PLAIN, "latest")["public-ipv4"] == ""
    assert "public-keys" not in documents.ec2_meta_data(PLAIN, "latest")
    assert re.fullmatch("i-[0-9a-f]{8}", str(documents.ec2_meta_data(PLAIN, "latest")["instance-id"]))


OPENSTACK_KEYS = {
    "2012-08-10": {
        *("uuid", "meta", "files", "public_keys", "keys", "hostname", "name", "launch_index", "availability_zone")
    },
    "2013-04-04": {"random_seed"},
    "2015-10-15": {"project_id"},
    "2016-06-30": {"devices"},
    "2020-10-14": {"dedicated_cpus"},
}
FILES = {
    "2012-08-10": {"meta_data.json", "user_data"},
    "2013-10-17": {"vendor_data.json"},
    "2015-10-15": {"network_data.json"},
    "2016-10-06": {"vendor_data2.json"},
}


@pytest.mark.parametrize("version", [*documents.OPENSTACK_VERSIONS, "latest"])
def test_openstack_keys_and_files_per_version(version: str) -> None:
    def held(table: dict[str, set[str]]) -> set[str]:
        return {name for since, names in table.items() for name in names if version == "latest" or since <= version}

    found = documents.openstack_documents(FULL, version, seed=b"s" * 512)
    assert set(found) == held(FILES)
    assert set(json.loads(found["meta_data.json"])) == held(OPENSTACK_KEYS)


def test_meta_data_values() -> None:
    found = documents.meta_data(FULL, "latest", seed=b"x" * 512)
    assert found["uuid"] == UUID
    assert found["hostname"] == "web-1.novalocal"
    assert found["meta"] == {"role": "web"}
    assert found["public_keys"] == {"mykey": "ssh-ed25519 AAAA me"}
    assert found["keys"] == [{"name": "mykey", "type": "ssh", "data": "ssh-ed25519 AAAA me"}]
    assert found["files"] == [
        {"content_path": "/content/0000", "path": "/etc/motd"},
        {"content_path": "/content/0001", "path": "/etc/issue"},
    ]
    assert found["dedicated_cpus"] == [2, 3]
    assert base64.b64decode(str(found["random_seed"])) == b"x" * 512
    assert "admin_pass" not in found
    assert {"meta", "files", "keys", "public_keys"}.isdisjoint(documents.meta_data(PLAIN, "latest"))
    assert documents.meta_data(msgspec.structs.replace(PLAIN, domain=""), "latest")["hostname"] == "plain"


@pytest.mark.parametrize(
    "version,kinds,nic_extra",
    [
        ("2016-06-30", ["nic", "disk"], set()),
        ("2017-02-22", ["nic", "disk"], {"vlan"}),
        ("2018-08-27", ["nic", "disk"], {"vlan", "vf_trusted"}),
        ("2025-04-04", ["nic", "disk", "share"], {"vlan", "vf_trusted"}),
    ],
)
def test_devices_per_version(version: str, kinds: list[str], nic_extra: set[str]) -> None:
    devices = json.loads(documents.openstack_documents(FULL, version)["meta_data.json"])["devices"]
    assert [device["type"] for device in devices] == kinds
    assert set(devices[0]) == {"type", "mac", "bus", "address", "tags"} | nic_extra
    assert devices[1] == {
        "type": "disk",
        "bus": "scsi",
        "address": "0:0:0:1",
        "tags": ["data"],
        "serial": "disk-vol-1",
    }


def test_network_data() -> None:
    assert documents.network_data(FULL.nics) == {
        "links": [
            {
                "id": "tapaaaaaaaa-bb",
                "vif_id": "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
                "type": "bridge",
                "mtu": 1450,
                "ethernet_mac_address": "fa:16:3e:00:00:01",
            },
            {
                "id": "tapbbbbbbbb-bb",
                "vif_id": "bbbbbbbb-bbbb-cccc-dddd-eeeeeeeeeeee",
                "type": "phy",
                "mtu": None,
                "ethernet_mac_address": "fa:16:3e:00:00:02",
            },
        ],
        "networks": [
            {
                "id": "network0",
                "type": "ipv4",
                "link": "tapaaaaaaaa-bb",
                "network_id": "net-1",
                "ip_address": "10.0.0.5",
                "netmask": "255.255.255.192",
                "routes": [
                    {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"},
                    {"network": "192.168.7.0", "netmask": "255.255.255.0", "gateway": "10.0.0.9"},
                ],
                "services": [{"type": "dns", "address": "9.9.9.9"}],
            },
            {
                "id": "network1",
                "type": "ipv6_slaac",
                "link": "tapaaaaaaaa-bb",
                "network_id": "net-1",
                "ip_address": "2001:db8::5",
                "netmask": "ffff:ffff:ffff:ffff::",
                "routes": [],
                "services": [],
            },
            {"id": "network2", "type": "ipv4_dhcp", "link": "tapbbbbbbbb-bb", "network_id": "net-2"},
        ],
        "services": [{"type": "dns", "address": "9.9.9.9"}, {"type": "dns", "address": "8.8.8.8"}],
    }


def drive(record: InstanceMetadata) -> dict[str, bytes]:
    return dict(documents.config_drive_files(record, seed=b"s" * 512))


def test_config_drive_layout() -> None:
    files = drive(FULL)
    assert {path.split("/")[1] for path in files if path.startswith("ec2/")} == {"2009-04-04", "latest"}
    assert {path for path in files if path.startswith("openstack/latest/")} == {
        f"openstack/latest/{name}"
        for name in ("meta_data.json", "user_data", "vendor_data.json", "network_data.json", "vendor_data2.json")
    }
    assert files["openstack/content/0000"] == b"welcome"
    assert files["ec2/latest/user-data"] == FULL.user_data
    assert json.loads(files["openstack/2013-04-04/meta_data.json"])["admin_pass"] == "s3cret"
    assert json.loads(files["ec2/latest/meta-data.json"])["public-keys"] == {
        "0": {"openssh-key": "ssh-ed25519 AAAA me"}
    }
    assert not [path for path in drive(PLAIN) if "user" in path or "content" in path]
    assert not [path for path in files if path.endswith("password")]


def test_vendor_data() -> None:
    record = msgspec.structs.replace(FULL, vendor_static={"cloud": "x"}, vendor_dynamic={"joiner": {"ok": True}})
    found = documents.openstack_documents(record, "latest")
    assert json.loads(found["vendor_data.json"]) == {"cloud": "x"}
    assert json.loads(found["vendor_data2.json"]) == {"static": {"cloud": "x"}, "joiner": {"ok": True}}
