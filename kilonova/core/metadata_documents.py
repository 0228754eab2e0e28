"""The documents of the OpenStack and EC2 metadata trees, purely built from one record.

The metadata service answers with them and a config drive is written from them, so that both tell the same.
A version of a tree is a date; what a version adds stands in the table of its tree, once.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Collection, Iterable, Iterator

import msgspec

from kilonova.core.metadata import Device, InstanceMetadata, Json, Share, TaggedNic
from kilonova.core.network import FixedIP, Nic, Route

LATEST = "latest"

EC2_VERSIONS = (
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
)
OPENSTACK_VERSIONS = (
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "2025-04-04",
)
# EC2 versions that a config drive leaves out unless the operator says otherwise.
SKIPPED_ON_DRIVE = EC2_VERSIONS[:-1]

# The document or key -> the first version that has it.
_SINCE_OPENSTACK = {
    "password": "2013-04-04",
    "random_seed": "2013-04-04",
    "vendor_data.json": "2013-10-17",
    "network_data.json": "2015-10-15",
    "project_id": "2015-10-15",
    "devices": "2016-06-30",
    "vendor_data2.json": "2016-10-06",
    "vlan": "2017-02-22",
    "vf_trusted": "2018-08-27",
    "dedicated_cpus": "2020-10-14",
    "share": "2025-04-04",
}
_SINCE_EC2 = {
    "local-hostname": "2007-01-19",
    "public-hostname": "2007-01-19",
    "public-ipv4": "2007-01-19",
    "instance-type": "2007-08-29",
    "block-device-mapping": "2007-12-15",
    "kernel-id": "2007-12-15",
    "ramdisk-id": "2007-12-15",
    "placement": "2008-02-01",
    "instance-action": "2008-09-01",
}

Tree = dict[str, "str | Tree"]


def has(what: str, version: str) -> bool:
    """Whether a document or key exists in this version of the OpenStack tree."""
    return version == LATEST or version >= _SINCE_OPENSTACK.get(what, "")


def render_json(document: Json) -> bytes:
    """JSON as UTF-8 bytes with its keys sorted, so that equal records give equal bytes."""
    return msgspec.json.encode(document, order="sorted")


# --- the OpenStack tree


def meta_data(record: InstanceMetadata, version: str, *, seed: bytes = b"", drive: bool = False) -> dict[str, Json]:
    """meta_data.json. `seed` is fresh random (512 bytes) for the guest; `drive` adds what only a config drive tells."""
    document: dict[str, Json] = {
        "uuid": record.uuid,
        "name": record.name,
        "hostname": record.fqdn,
        "launch_index": record.launch_index,
        "availability_zone": record.availability_zone,
    }
    if record.metadata:
        document["meta"] = dict(record.metadata)
    if record.files:
        document["files"] = [
            {"content_path": f"/content/{name}", "path": file.path}
            for name, file in zip(content_names(record), record.files, strict=True)
        ]
    if record.key is not None:
        document["public_keys"] = {record.key.name: record.key.data}
        document["keys"] = [{"name": record.key.name, "type": record.key.type, "data": record.key.data}]
    if drive and record.admin_pass is not None:
        document["admin_pass"] = record.admin_pass
    later: dict[str, Json] = {
        "random_seed": base64.b64encode(seed).decode(),
        "project_id": record.project_id,
        "devices": [_device(device, version) for device in record.devices if _shown(device, version)],
        "dedicated_cpus": [*sorted(record.dedicated_cpus)],
    }
    return document | {key: value for key, value in later.items() if has(key, version)}


def _shown(device: Device, version: str) -> bool:
    return not isinstance(device, Share) or has("share", version)


def _device(device: Device, version: str) -> dict[str, Json]:
    if isinstance(device, Share):
        return {"type": "share", "share_id": device.share_id, "tag": device.tag}
    document: dict[str, Json] = {"bus": device.bus, "address": device.address, "tags": list(device.tags)}
    if isinstance(device, TaggedNic):
        document |= {"type": "nic", "mac": device.mac}
        if device.vlan is not None and has("vlan", version):
            document["vlan"] = device.vlan
        if device.vf_trusted is not None and has("vf_trusted", version):
            document["vf_trusted"] = device.vf_trusted
        return document
    document["type"] = "disk"
    if device.serial is not None:
        document["serial"] = device.serial
    if device.path is not None:
        document["path"] = device.path
    return document


def network_data(nics: Iterable[Nic]) -> dict[str, Json]:
    """network_data.json: links, the first IPv4 and every IPv6 address of each, and the DNS servers of all."""
    links: list[Json] = []
    networks: list[Json] = []
    services: list[Json] = []
    for nic in nics:
        if not nic.fixed_ips:
            continue
        links.append(_link(nic))
        for fixed in _told(nic):
            networks.append(_network(nic, fixed, number=len(networks)))
            services.extend(service for service in _dns(fixed) if service not in services)
    return {"links": links, "networks": networks, "services": services}


def _told(nic: Nic) -> list[FixedIP]:
    first = [fixed for fixed in nic.fixed_ips if fixed.version == 4][:1]
    return first + [fixed for fixed in nic.fixed_ips if fixed.version == 6]


def _link(nic: Nic) -> dict[str, Json]:
    by_dhcp = any(fixed.dhcp for fixed in nic.fixed_ips)
    return {
        "id": nic.device,
        "vif_id": nic.port_id,
        "type": "phy" if nic.vif_type == "ethernet" else nic.vif_type,
        "mtu": None if by_dhcp else nic.mtu,
        "ethernet_mac_address": nic.mac,
    }


def _dns(fixed: FixedIP) -> list[Json]:
    return [{"type": "dns", "address": address} for address in fixed.dns]


def _network(nic: Nic, fixed: FixedIP, *, number: int) -> dict[str, Json]:
    document: dict[str, Json] = {"id": f"network{number}", "link": nic.device, "network_id": nic.network_id}
    kind = f"ipv{fixed.version}"
    if fixed.ipv6_mode is not None:
        kind = f"{kind}_{fixed.ipv6_mode}"
    elif fixed.dhcp:
        return document | {"type": f"{kind}_dhcp"}
    routes: list[Json] = []
    default = "0.0.0.0/0" if fixed.version == 4 else "::/0"
    for route in (*([Route(default, fixed.gateway)] if fixed.gateway else []), *fixed.routes):
        network = ipaddress.ip_network(route.destination, strict=False)
        routes.append(
            {"network": str(network.network_address), "netmask": str(network.netmask), "gateway": route.gateway}
        )
    return document | {
        "type": kind,
        "ip_address": fixed.address,
        "netmask": str(ipaddress.ip_network(fixed.cidr or fixed.address, strict=False).netmask),
        "routes": routes,
        "services": _dns(fixed),
    }


def content_names(record: InstanceMetadata) -> list[str]:
    """The names of the injected files under content/: 0000, 0001, ..."""
    return [f"{number:04d}" for number in range(len(record.files))]


def openstack_documents(
    record: InstanceMetadata, version: str, *, seed: bytes = b"", drive: bool = False
) -> dict[str, bytes]:
    """Every document of one version of the OpenStack tree by its file name, the password apart."""
    documents = {"meta_data.json": render_json(meta_data(record, version, seed=seed, drive=drive))}
    if record.user_data is not None:
        documents["user_data"] = record.user_data
    later: dict[str, dict[str, Json]] = {
        "vendor_data.json": record.vendor_static,
        "network_data.json": network_data(record.nics),
        "vendor_data2.json": vendor_data2(record),
    }
    return documents | {name: render_json(content) for name, content in later.items() if has(name, version)}


def vendor_data2(record: InstanceMetadata) -> dict[str, Json]:
    """vendor_data2.json: the operator's file under "static", each vendor data service under its own name."""
    static: dict[str, Json] = {"static": dict(record.vendor_static)} if record.vendor_static else {}
    return static | dict(record.vendor_dynamic)


# --- the EC2 tree


def ec2_id(prefix: str, number: int | None, uuid: str) -> str:
    """An EC2 id: prefix and eight hex digits, of the number when there is one, else the first of the UUID."""
    return f"{prefix}-{number:08x}" if number is not None else f"{prefix}-{uuid.replace('-', '')[:8]:0>8}"


def ec2_meta_data(record: InstanceMetadata, version: str) -> Tree:
    """The meta-data folder of one EC2 version; a folder is a dict, a leaf a text."""
    local = next((address for address in record.fixed_ips if ":" not in address), "")
    tree: Tree = {
        "ami-id": ec2_id("ami", record.image_number, record.image_id),
        "ami-launch-index": str(record.launch_index),
        "ami-manifest-path": "FIXME",
        "instance-id": ec2_id("i", record.number, record.uuid),
        "hostname": record.fqdn,
        "local-ipv4": local,
        "reservation-id": record.reservation_id,
        "security-groups": "\n".join(record.security_groups),
    }
    if record.key is not None:
        tree["public-keys"] = {"0": {"openssh-key": record.key.data}}
    later: Tree = {
        "local-hostname": record.fqdn,
        "public-hostname": record.fqdn,
        "public-ipv4": next((address for address in record.floating_ips if ":" not in address), ""),
        "instance-type": record.flavor,
        "block-device-mapping": dict(record.block_devices),
        "placement": {"availability-zone": record.availability_zone or ""},
        "instance-action": "none",
    }
    if record.kernel_id:
        later["kernel-id"] = ec2_id("aki", None, record.kernel_id)
    if record.ramdisk_id:
        later["ramdisk-id"] = ec2_id("ari", None, record.ramdisk_id)
    return tree | {key: value for key, value in later.items() if version == LATEST or version >= _SINCE_EC2[key]}


def ec2_listing(tree: Tree) -> str:
    """The index of a folder: a line per entry, folders with a slash."""
    return "\n".join(f"{name}/" if isinstance(tree[name], dict) else name for name in sorted(tree))


# --- the config drive


def config_drive_files(
    record: InstanceMetadata, *, seed: bytes, skip_versions: Collection[str] = SKIPPED_ON_DRIVE
) -> Iterator[tuple[str, bytes]]:
    """The files of a config drive as pairs of path and content."""
    for version in (*EC2_VERSIONS, LATEST):
        if version in skip_versions:
            continue
        if record.user_data is not None:
            yield f"ec2/{version}/user-data", record.user_data
        yield f"ec2/{version}/meta-data.json", msgspec.json.encode(ec2_meta_data(record, version), order="sorted")
    for version in (*OPENSTACK_VERSIONS, LATEST):
        for name, content in openstack_documents(record, version, seed=seed, drive=True).items():
            yield f"openstack/{version}/{name}", content
    for name, file in zip(content_names(record), record.files, strict=True):
        yield f"openstack/content/{name}", file.content
