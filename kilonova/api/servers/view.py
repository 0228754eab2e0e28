"""Servers as answers show them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from kilonova.api.call import Call
from kilonova.api.moments import micro, second
from kilonova.api.servers import loaders
from kilonova.api.servers.loaders import Sources, page_of
from kilonova.base.view import OMIT, Field, Page, View, field
from kilonova.core.server import Server
from kilonova.core.states import WITH_FAULT, WITH_PROGRESS, status_of

EXTENDED = "os_compute_api:os-extended-server-attributes"
EXTRA_SPECS = "os_compute_api:servers:show:flavor-extra-specs"
HOST_STATUS = "os_compute_api:servers:show:host_status"
HOST_UNKNOWN = "os_compute_api:servers:show:host_status:unknown-only"

Getter = Callable[[Server, Page[Server]], Any]

FULL = {"show", "detail"}
"""Occasions on which all is shown; "update" (before 2.75) shows less, "list" the name alone."""


def attribute(name: str, otherwise: object = None) -> Getter:
    """The attribute as it is; ``otherwise`` where it is None."""

    def get(server: Server, page: Page[Server]) -> Any:
        value = getattr(server, name)
        return otherwise if value is None else value

    return get


def _call(page: Page[Server]) -> Call[Any]:
    call: Call[Any] = page.env.call
    return call


def _links(server: Server, page: Page[Server]) -> list[dict[str, str]]:
    return _call(page).links("servers", server.uuid)


def host_id(server: Server) -> str:
    """What tells owners whether two of their servers share a host, and nothing else."""
    if not server.host:
        return ""
    return hashlib.sha224(f"{server.project_id}{server.host}".encode()).hexdigest()


def addresses(server: Server, *, extended: bool) -> dict[str, list[dict[str, Any]]]:
    """Addresses by the name of their network; none while the server is built."""
    found: dict[str, list[dict[str, Any]]] = {}
    if server.vm_state == "building":
        return found
    for nic in server.nics:
        of_network = found.setdefault(nic.network_name, [])
        for fixed in nic.fixed_ips:
            shown = [(fixed.version, fixed.address, "fixed")]
            shown += [(6 if ":" in floating else 4, floating, "floating") for floating in fixed.floating]
            for version, text, kind in shown:
                entry: dict[str, Any] = {"version": version, "addr": text}
                if extended:
                    entry |= {"OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": nic.mac}
                of_network.append(entry)
    return found


def _addresses(server: Server, page: Page[Server]) -> Any:
    return addresses(server, extended=True)


def _plain_addresses(server: Server, page: Page[Server]) -> Any:
    return addresses(server, extended=False)


def _flavor_link(server: Server, page: Page[Server]) -> dict[str, Any]:
    flavorid = server.flavor.flavorid
    return {"id": flavorid, "links": [_call(page).bookmark("flavors", flavorid)]}


def _may_see_specs(page: Page[Server]) -> bool:
    return _call(page).allows(EXTRA_SPECS)


def _flavor(server: Server, page: Page[Server]) -> dict[str, Any]:
    flavor = server.flavor
    shown: dict[str, Any] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap,
        "original_name": flavor.name,
    }
    if page.load(_may_see_specs):
        shown["extra_specs"] = flavor.extra_specs
    return shown


def _image(server: Server, page: Page[Server]) -> Any:
    if server.volume_backed or not server.image_id:
        return ""
    return {"id": server.image_id, "links": [_call(page).bookmark("images", server.image_id)]}


def _image_with_properties(server: Server, page: Page[Server]) -> Any:
    shown = _image(server, page)
    return {**shown, "properties": server.image_properties} if shown else ""


def _fault(server: Server, page: Page[Server]) -> Any:
    if status_of(server) not in WITH_FAULT:
        return OMIT
    fault = page.load(loaders.faults).get(server.uuid)
    if fault is None:
        return OMIT
    shown: dict[str, Any] = {"code": fault.code, "created": second(fault.created_at), "message": fault.message[:255]}
    if fault.details and (_call(page).context.is_admin or fault.code != 500):
        shown["details"] = fault.details
    return shown


def _progress(server: Server, page: Page[Server]) -> Any:
    return server.progress if status_of(server) in WITH_PROGRESS else OMIT


def _zone(server: Server, page: Page[Server]) -> str:
    if server.availability_zone:
        return server.availability_zone
    return _call(page).options.default.default_availability_zone if server.host else ""


def _security_groups(server: Server, page: Page[Server]) -> Any:
    names = list(dict.fromkeys(server.security_groups))
    return [{"name": name} for name in names] if names else OMIT


def _volumes(server: Server, page: Page[Server]) -> list[dict[str, Any]]:
    devices = page.load(loaders.block_devices).get(server.uuid, [])
    return [{"id": device.volume_id} for device in devices if device.volume_id]


def _volumes_with_fate(server: Server, page: Page[Server]) -> list[dict[str, Any]]:
    devices = page.load(loaders.block_devices).get(server.uuid, [])
    return [
        {"id": device.volume_id, "delete_on_termination": device.delete_on_termination}
        for device in devices
        if device.volume_id
    ]


def _may_see_host_status(page: Page[Server]) -> bool:
    return _call(page).allows(HOST_STATUS)


def _may_see_unknown_hosts(page: Page[Server]) -> bool:
    return _call(page).allows(HOST_UNKNOWN)


def _host_status(server: Server, page: Page[Server]) -> Any:
    everything = page.load(_may_see_host_status)
    if not everything and not page.load(_may_see_unknown_hosts):
        return OMIT
    status = page.load(loaders.host_states).get(server.host, "") if server.host else ""
    return status if everything or status == "UNKNOWN" else OMIT


def _groups(server: Server, page: Page[Server]) -> list[str]:
    return page.load(loaders.groups).get(server.uuid, [])


def _hints(server: Server, page: Page[Server]) -> dict[str, list[str]]:
    return page.load(loaders.hints).get(server.uuid, {})


def _secret_of_admins(key: str, name: str, *, otherwise: object = None, since: str | None = None) -> Field:
    return field(key, attribute(name, otherwise), since=since, rule=EXTENDED, only=FULL)


SERVER = View(
    field("id", attribute("uuid")),
    field("name", attribute("name")),
    field("status", lambda server, page: status_of(server), only=FULL | {"update"}),
    field("tenant_id", attribute("project_id"), only=FULL | {"update"}),
    field("user_id", attribute("user_id"), only=FULL | {"update"}),
    field("metadata", attribute("metadata"), only=FULL | {"update"}),
    field("hostId", lambda server, page: host_id(server), only=FULL | {"update"}),
    field("image", _image, until="2.97", only=FULL | {"update"}),
    field("image", _image_with_properties, since="2.98", only=FULL | {"update"}),
    field("flavor", _flavor_link, until="2.46", only=FULL | {"update"}),
    field("flavor", _flavor, since="2.47", only=FULL | {"update"}),
    field("created", lambda server, page: second(server.created_at), only=FULL | {"update"}),
    field("updated", lambda server, page: second(server.updated_at or server.created_at), only=FULL | {"update"}),
    field("addresses", _addresses, only=FULL),
    field("addresses", _plain_addresses, only={"update"}),
    field("accessIPv4", attribute("access_ip_v4", ""), only=FULL | {"update"}),
    field("accessIPv6", attribute("access_ip_v6", ""), only=FULL | {"update"}),
    field("links", _links),
    field(
        "OS-DCF:diskConfig",
        lambda server, page: "AUTO" if server.auto_disk_config else "MANUAL",
        only=FULL | {"update"},
    ),
    field("fault", _fault, only=FULL | {"update"}),
    field("progress", _progress, only=FULL | {"update"}),
    field("OS-EXT-AZ:availability_zone", _zone, only=FULL),
    field("config_drive", lambda server, page: "True" if server.config_drive else "", only=FULL),
    field("key_name", attribute("key_name"), only=FULL),
    field("OS-SRV-USG:launched_at", lambda server, page: micro(server.launched_at), only=FULL),
    field("OS-SRV-USG:terminated_at", lambda server, page: micro(server.terminated_at), only=FULL),
    field("security_groups", _security_groups, only=FULL),
    _secret_of_admins("OS-EXT-SRV-ATTR:host", "host"),
    _secret_of_admins("OS-EXT-SRV-ATTR:instance_name", "instance_name"),
    _secret_of_admins("OS-EXT-SRV-ATTR:hypervisor_hostname", "node"),
    field("OS-EXT-SRV-ATTR:hostname", attribute("hostname"), since="2.3", until="2.89", rule=EXTENDED, only=FULL),
    field("OS-EXT-SRV-ATTR:hostname", attribute("hostname"), since="2.90", only=FULL),
    _secret_of_admins("OS-EXT-SRV-ATTR:kernel_id", "kernel_id", otherwise="", since="2.3"),
    _secret_of_admins("OS-EXT-SRV-ATTR:launch_index", "launch_index", since="2.3"),
    _secret_of_admins("OS-EXT-SRV-ATTR:ramdisk_id", "ramdisk_id", otherwise="", since="2.3"),
    _secret_of_admins("OS-EXT-SRV-ATTR:reservation_id", "reservation_id", since="2.3"),
    _secret_of_admins("OS-EXT-SRV-ATTR:root_device_name", "root_device_name", since="2.3"),
    _secret_of_admins("OS-EXT-SRV-ATTR:user_data", "user_data", since="2.3"),
    field("OS-EXT-STS:task_state", attribute("task_state"), only=FULL),
    field("OS-EXT-STS:vm_state", attribute("vm_state"), only=FULL),
    field("OS-EXT-STS:power_state", attribute("power_state"), only=FULL),
    field("os-extended-volumes:volumes_attached", _volumes, until="2.2", only=FULL),
    field("os-extended-volumes:volumes_attached", _volumes_with_fate, since="2.3", only=FULL),
    field("locked", attribute("locked"), since="2.9", only=FULL | {"update"}),
    field("host_status", _host_status, since="2.16", only=FULL),
    field("description", attribute("description"), since="2.19", only=FULL | {"update"}),
    field("tags", attribute("tags"), since="2.26", only=FULL | {"update"}),
    field("trusted_image_certificates", attribute("trusted_certs"), since="2.63", only=FULL | {"update"}),
    field("server_groups", _groups, since="2.71", only={"show", "update"}),
    field("locked_reason", attribute("locked_reason"), since="2.73", only=FULL | {"update"}),
    field("pinned_availability_zone", attribute("requested_zone"), since="2.96", only=FULL),
    field("scheduler_hints", _hints, since="2.100", only=FULL),
)


def render(call: Call[Any], found: Sequence[Server], sources: Sources, *, occasion: str) -> list[dict[str, Any]]:
    """The servers as the request's microversion shows them on the occasion."""
    return SERVER.render(page_of(call, found, sources), occasion=occasion, allows=call.allows)


def unreachable(call: Call[Any], uuid: str, project_id: str, created: str, *, occasion: str) -> dict[str, Any]:
    """What can be said in a list of a server whose cell does not answer."""
    shown: dict[str, Any] = {"id": uuid, "status": "UNKNOWN", "links": call.links("servers", uuid)}
    if occasion == "detail":
        shown |= {"tenant_id": project_id, "created": created}
    return shown
