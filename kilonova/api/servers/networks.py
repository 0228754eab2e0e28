"""The networks of a new server: what was asked for, resolved to networks and ports that are there and free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kilonova.api.call import Call
from kilonova.api.servers.bodies import NetworkEntry, NewServer, given
from kilonova.base.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NetworkAmbiguous,
    NotFound,
    PortInUse,
)
from kilonova.clients.neutron import Network
from kilonova.core.network import NetworkRequest

EXTERNAL = "network:attach_external_network"


def resolve_networks(call: Call[Any], server: NewServer) -> list[NetworkRequest]:
    """One entry per NIC that each server gets. BadRequest, Conflict, Forbidden as clients know them."""
    asked = given(server.networks, given(server.listed_networks, "default"))
    if asked == "none":
        return []
    if not isinstance(asked, list) or not asked:
        return _by_default(call, auto=asked == "auto")
    call.authorize(rule="os_compute_api:servers:create:attach_network")
    requests = [_request(entry) for entry in asked]
    _check_ports(call, requests)
    _check_networks(call, requests)
    return requests


def _request(entry: NetworkEntry) -> NetworkRequest:
    port = given(entry.port, None)
    network = given(entry.uuid, given(entry.loose_uuid, ""))
    address = given(entry.fixed_ip, None)
    tag = given(entry.tag, given(entry.early_tag, "")) or None
    if port is not None:
        if address is not None:
            raise BadRequest(f"Specified Fixed IP '{address}' cannot be used with port '{port}': the two cannot be "
                             "specified together.")  # fmt: skip
        return NetworkRequest(port_id=str(port), tag=tag)
    if not network:
        raise BadRequest("Bad networks format: network uuid is not in proper format ()")
    return NetworkRequest(network_id=network, fixed_ip=address, tag=tag)


def _by_default(call: Call[Any], *, auto: bool) -> list[NetworkRequest]:
    """The project's only network; none without one, unless a topology is to be made (``auto``)."""
    project_id = call.context.project_id
    known = [network for network in call.services.neutron.networks(project_id) if not network.external]
    if len(known) > 1:
        raise NetworkAmbiguous()
    if known:
        _check_subnet(known[0])
        return [NetworkRequest(network_id=known[0].id)]
    if not auto:
        return []
    made = call.services.neutron.auto_network(project_id)
    if made is None:
        raise BadRequest(f"Unable to automatically allocate a network for project {project_id}")
    return [NetworkRequest(network_id=made)]


def _check_ports(call: Call[Any], requests: Sequence[NetworkRequest]) -> None:
    ports = [request.port_id for request in requests if request.port_id]
    for port_id in ports:
        if ports.count(port_id) > 1:
            raise BadRequest(f"Duplicate ports: port {port_id} is asked for more than once.")
    for request in requests:
        if request.port_id:
            _check_port(call, request.port_id)


def _check_port(call: Call[Any], port_id: str) -> None:
    try:
        port = call.services.neutron.port(port_id)
    except NotFound as error:
        raise BadRequest(error.message) from None
    owner = port.get("project_id") or port.get("tenant_id")
    if owner and owner != call.context.project_id and not call.context.is_admin:
        raise BadRequest(f"Port id {port_id} could not be found.")
    if port.get("device_id"):
        raise PortInUse(port=port_id)
    if not port.get("fixed_ips") and port.get("ip_allocation") != "deferred":
        raise BadRequest(f"Port {port_id} requires a FixedIP in order to be used.")


def _check_networks(call: Call[Any], requests: Sequence[NetworkRequest]) -> None:
    ids = list(dict.fromkeys(request.network_id for request in requests if request.network_id))
    if not ids:
        return
    known = {network.id: network for network in call.services.neutron.networks(call.context.project_id, ids=ids)}
    for network_id in ids:
        network = known.get(network_id)
        if network is None:
            raise BadRequest(f"Network {network_id} could not be found.")
        if network.external and not network.shared and not call.allows(EXTERNAL):
            raise Forbidden(f"It is not allowed to create an interface on external network {network_id}")
        _check_subnet(network)
    for request in requests:
        if request.fixed_ip and request.network_id:
            _check_address(call, request.network_id, request.fixed_ip)


def _check_subnet(network: Network) -> None:
    if not network.subnets and network.port_security:
        raise BadRequest(f"Network {network.id} requires a subnet in order to boot instances on.")


def _check_address(call: Call[Any], network_id: str, address: str) -> None:
    taken = call.services.neutron.ports(network_id=network_id, fixed_ips=f"ip_address={address}")
    if taken:
        raise BadRequest(f"Fixed IP address {address} is already in use on instance {taken[0].get('device_id')}.")


def check_count(requests: Sequence[NetworkRequest], *, most: int) -> None:
    """BadRequest where several servers would have to share one port or address."""
    if most < 2:
        return
    if any(request.fixed_ip for request in requests):
        raise BadRequest("Failed to launch instances: max_count cannot be greater than 1 if an fixed_ip is specified.")
    if any(request.port_id for request in requests):
        raise BadRequest("Unable to launch multiple instances with a single configured port ID. Please launch your "
                         "instance one by one with different ports.")  # fmt: skip


def servers_with_ports(call: Call[Any], requests: Sequence[NetworkRequest], *, least: int, most: int) -> int:
    """How many servers the network service's quota has ports for; Forbidden where not even ``least``."""
    each = sum(request.port_id is None for request in requests)
    if not each:
        return most
    quota = call.services.neutron.quota_used(call.context.project_id).get("port", {})
    limit = quota.get("limit", -1)
    if limit < 0:
        return most
    fitting = max(limit - quota.get("used", 0) - quota.get("reserved", 0), 0) // each
    if fitting < least:
        raise Forbidden("Maximum number of ports exceeded")
    return min(most, fitting)


def check_security_groups(call: Call[Any], names: Sequence[str]) -> None:
    """BadRequest for a group that is none of the project's, Conflict for a name of several."""
    if not names or list(names) == ["default"]:
        return
    known = call.services.neutron.security_groups(call.context.project_id)
    for name in names:
        found = [group for group in known if name in (group["id"], group["name"])]
        if not found:
            raise BadRequest(f"Security group {name} not found for project {call.context.project_id}.")
        if len(found) > 1:
            raise Conflict(f"Multiple security groups found matching '{name}'. Use an ID to be more specific.")
