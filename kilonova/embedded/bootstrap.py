"""What a new cloud holds from the first minute: networks, a router, open ssh and ping, a volume type, images.

All of it is ensured by name, so that repeating it changes nothing, and what a user has changed since stays changed.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kilonova.embedded.settings import Site
from kilonova.embedded.wire import Wire, log_in

PUBLIC_CIDR, PRIVATE_CIDR, POOL_CIDR = "172.24.4.0/24", "10.10.0.0/20", "10.20.0.0/16"
VOLUME_TYPES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("local", "Files on this machine", {}),
    ("multiattach", "Files on this machine, for several servers at once", {"multiattach": "<is> True"}),
)
OPEN_RULES = ({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}, {"protocol": "icmp"})


def ensure_networks(site: Site) -> None:
    """The external network `public`, and for the demo project the network `private` behind `router1`."""
    tokens = {project: log_in(site.auth_url, "admin", site.secrets["admin"], project) for project in ("admin", "demo")}
    url = site.ports.url("neutron", "/v2.0")
    with Wire("neutron", url, tokens["admin"]) as admin, Wire("neutron", url, tokens["demo"]) as demo:
        public = _ensure(
            admin,
            "network",
            {
                "name": "public",
                "router:external": True,
                "is_default": True,
                "provider:network_type": "flat",
                "provider:physical_network": "public",
            },
        )
        _ensure(
            admin,
            "subnet",
            {
                "name": "public-subnet",
                "network_id": public["id"],
                "ip_version": 4,
                "cidr": PUBLIC_CIDR,
                "enable_dhcp": False,
            },
        )
        _ensure(
            admin,
            "subnetpool",
            {
                "name": "default-pool",
                "prefixes": [POOL_CIDR],
                "default_prefixlen": 24,
                "shared": True,
                "is_default": True,
            },
        )
        private = _ensure(demo, "network", {"name": "private", "shared": False})
        subnet = _ensure(
            demo,
            "subnet",
            {"name": "private-subnet", "network_id": private["id"], "ip_version": 4, "cidr": PRIVATE_CIDR},
        )
        router = _ensure(demo, "router", {"name": "router1", "external_gateway_info": {"network_id": public["id"]}})
        inside = f"/ports?device_id={router['id']}&network_id={private['id']}"
        if not demo.get(inside)["ports"]:
            demo.put(f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
        for wire in (admin, demo):
            _ensure_open_rules(wire)


def _ensure(wire: Wire, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    found = wire.get(f"/{kind}s?name={quote(body['name'])}")[f"{kind}s"]
    item: dict[str, Any] = found[0] if found else wire.post(f"/{kind}s", {kind: body})[kind]
    return item


def _ensure_open_rules(wire: Wire) -> None:
    """Let ssh and ping into the default security group of the wire's own project."""
    # An administrator's list holds every project's groups; the quota's owner tells which project the token is for.
    project = wire.get("/quotas/tenant")["tenant"]["tenant_id"]
    group = wire.get(f"/security-groups?name=default&project_id={project}")["security_groups"][0]
    present = {
        (rule["protocol"], rule["port_range_min"])
        for rule in group["security_group_rules"]
        if rule["direction"] == "ingress" and rule["remote_group_id"] is None
    }
    for rule in OPEN_RULES:
        if (rule["protocol"], rule.get("port_range_min")) not in present:
            wire.post(
                "/security-group-rules",
                {
                    "security_group_rule": {
                        "security_group_id": group["id"],
                        "direction": "ingress",
                        "ethertype": "IPv4",
                        **rule,
                    }
                },
            )


def ensure_volume_types(site: Site) -> None:
    """The default volume type, and one whose volumes may be attached to several servers."""
    token = log_in(site.auth_url, "admin", site.secrets["admin"], "admin")
    with Wire("cinder", site.ports.url("cinder", "/v3"), token) as wire:
        present = {kind["name"] for kind in wire.get("/types?is_public=None")["volume_types"]}
        for name, description, specs in VOLUME_TYPES:
            if name not in present:
                wire.post(
                    "/types",
                    {
                        "volume_type": {
                            "name": name,
                            "description": description,
                            "extra_specs": {"volume_backend_name": "local", **specs},
                        }
                    },
                )


def ensure_image(site: Site, name: str, path: Path, disk_format: str, properties: Mapping[str, str]) -> str:
    """A public image with the file's content, and its id; an older one of that name with other content is hidden."""
    token = log_in(site.auth_url, "admin", site.secrets["admin"], "admin")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").hexdigest()
    with Wire("glance", site.ports.url("glance", "/v2"), token) as wire:
        for image in wire.get(f"/images?name={quote(name)}&visibility=public")["images"]:
            if image["status"] == "active" and image.get("os_hash_value") == digest:
                return str(image["id"])
            if image["status"] in ("queued", "saving"):
                wire.delete(f"/images/{image['id']}")
            else:
                wire.send(
                    "PATCH",
                    f"/images/{image['id']}",
                    [{"op": "replace", "path": "/os_hidden", "value": True}],
                    {"Content-Type": "application/openstack-images-v2.1-json-patch"},
                )
        image = wire.post(
            "/images",
            {
                "name": name,
                "disk_format": disk_format,
                "container_format": "bare",
                "visibility": "public",
                **properties,
            },
        )
        wire.upload(f"/images/{image['id']}/file", path)
        return str(image["id"])
