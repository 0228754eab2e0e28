"""Neutron over HTTP: few requests, however many ports a server has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import requests

from kilonova.base.errors import (
    BadRequest,
    BuildFailed,
    Conflict,
    Fault,
    Forbidden,
    NeighbourUnavailable,
    NetworkNotFound,
    OverQuota,
    PortInUse,
    PortNotFound,
)
from kilonova.clients import nics as ports_to_nics
from kilonova.clients.memo import Memo
from kilonova.clients.neutron import Network
from kilonova.clients.nics import FAILED, MARK
from kilonova.clients.session import Neighbour, Params, code_of, text_of
from kilonova.core.network import NetworkRequest, Nic

Port = dict[str, Any]

_IDS_PER_REQUEST = 100


class _Wanted(NamedTuple):
    """What the ports of one server have in common."""

    project_id: str
    groups: list[str]
    hostname: str


class RestNeutron:
    """Implements ``Neutron``. ``facts_seconds``: how long networks, subnets and security groups are believed."""

    def __init__(self, http: Neighbour, *, facts_seconds: float = 15.0, extension_seconds: float = 600.0) -> None:
        self._http = http
        self._networks: Memo[dict[str, Any]] = Memo(lambda ids: self._by_id("networks", ids), seconds=facts_seconds)
        self._subnets: Memo[dict[str, Any]] = Memo(lambda ids: self._by_id("subnets", ids), seconds=facts_seconds)
        self._groups: Memo[list[dict[str, Any]]] = Memo(
            lambda projects: {p: self.security_groups(p) for p in projects}, seconds=facts_seconds
        )
        self._grants: Memo[list[str]] = Memo(
            lambda projects: {p: self._granted(p) for p in projects}, seconds=facts_seconds
        )
        self._extensions: Memo[set[str]] = Memo(
            lambda keys: {key: self._aliases() for key in keys}, seconds=extension_seconds
        )

    # --- networks

    def networks(self, project_id: str, *, ids: list[str] | None = None) -> list[Network]:
        if ids is not None:
            found = self._networks.get(ids)
            wanted = [found[one] for one in dict.fromkeys(ids) if one in found]
            mine = [n for n in wanted if n["project_id"] == project_id or n["shared"] or n.get("router:external")]
            if len(mine) < len(wanted):
                granted = set(self._grants.get([project_id])[project_id])
                mine = [n for n in wanted if n in mine or n["id"] in granted]
            return [_network(n) for n in mine]
        own = self._list("networks", {"project_id": project_id, "shared": "false"})
        shared = self._list("networks", {"shared": "true"})
        lent = list(self._networks.get(self._grants.get([project_id])[project_id]).values())
        by_id = {n["id"]: n for n in [*own, *shared, *lent] if n.get("admin_state_up", True)}
        return [_network(n) for n in by_id.values()]

    def _granted(self, project_id: str) -> list[str]:
        """Networks that their owners share with this project alone."""
        if "rbac-policies" not in self._aliased():
            return []
        params = {"object_type": "network", "action": "access_as_shared", "target_tenant": project_id}
        answer = self._http.get("/v2.0/rbac-policies", params=params)
        if answer.status_code != 200:
            return []
        return [policy["object_id"] for policy in self._http.read(answer)["rbac_policies"]]

    def auto_network(self, project_id: str, *, dry_run: bool = False) -> str | None:
        if "auto-allocated-topology" not in self._aliased():
            return None
        params = {"fields": "dry-run"} if dry_run else None
        answer = self._http.get(f"/v2.0/auto-allocated-topology/{project_id}", params=params)
        if answer.status_code == 200:
            return str(self._http.read(answer)["auto_allocated_topology"]["id"])
        if dry_run and answer.status_code in (400, 404, 409):
            return None
        raise BadRequest(f"Unable to automatically allocate a network for project {project_id}: {text_of(answer)}")

    # --- ports

    def port(self, port_id: str) -> Port:
        answer = self._http.get(f"/v2.0/ports/{port_id}")
        if answer.status_code in (400, 404):
            raise PortNotFound(port=port_id)
        found: Port = self._expect(answer, 200)["port"]
        return found

    def ports(self, **filters: str) -> list[Port]:
        return self._list("ports", filters)

    def ensure_ports(
        self,
        server: str,
        requests: list[NetworkRequest],
        *,
        project_id: str,
        host: str,
        security_groups: list[str],
        zone: str,
        hostname: str = "",
    ) -> list[Nic]:
        if not requests:
            return []
        wanted = _Wanted(project_id, security_groups, hostname)
        binding = {"device_id": server, "device_owner": f"compute:{zone}", "binding:host_id": host}
        ports = self._ensure(server, requests, binding, wanted)
        for port in ports:
            if port.get("binding:vif_type") == FAILED:
                raise BuildFailed(server=server, reason=f"Binding failed for port {port['id']}, see Neutron's logs.")
        return self._described(ports, tags=[request.tag for request in requests])

    def _ensure(
        self,
        server: str,
        requests: Sequence[NetworkRequest],
        binding: Mapping[str, str],
        wanted: _Wanted,
    ) -> list[Port]:
        present = ports_to_nics.match(requests, self.ports(device_id=server))
        users = {r.port_id: r for r, port in zip(requests, present, strict=True) if r.port_id and port is None}
        claimed = self._claim(list(users), server, binding) if users else {}
        made = self._create(requests, present, binding, wanted)
        result: list[Port] = []
        for place, (request, port) in enumerate(zip(requests, present, strict=True)):
            if port is None:
                result.append(claimed[request.port_id] if request.port_id else made[place])
            elif port.get("binding:host_id") != binding["binding:host_id"]:
                result.append(self._update(port["id"], binding))
            else:
                result.append(dict(port))
        return result

    def _claim(self, ids: list[str], server: str, binding: Mapping[str, str]) -> dict[str | None, Port]:
        """Give users' ports to the server. All are looked at before any is changed."""
        found = {port["id"]: port for port in self._many("ports", ids)}
        for one in ids:
            if one not in found:
                raise PortNotFound(port=one)
            if found[one].get("device_id") not in ("", None, server):
                raise PortInUse(port=one)
        return {one: self._update(one, binding) for one in ids}

    def _create(
        self,
        requests: Sequence[NetworkRequest],
        present: Sequence[Mapping[str, Any] | None],
        binding: Mapping[str, str],
        wanted: _Wanted,
    ) -> dict[int, Port]:
        """Make what is missing, in one request, by the place of its network request."""
        places = [n for n, r in enumerate(requests) if r.port_id is None and present[n] is None]
        if not places:
            return {}
        networks = self._networks.get([str(requests[n].network_id) for n in places])
        bodies = []
        for place in places:
            request = requests[place]
            network = networks.get(str(request.network_id))
            if network is None:
                raise NetworkNotFound(network=request.network_id)
            body: Port = {
                **binding,
                "network_id": network["id"],
                "project_id": wanted.project_id,
                "admin_state_up": True,
            }
            body["binding:profile"] = {MARK: place}
            if request.fixed_ip:
                body["fixed_ips"] = [{"ip_address": request.fixed_ip}]
            if wanted.groups not in ([], ["default"]) and network.get("port_security_enabled", True):
                body["security_groups"] = self._group_ids(wanted.project_id, wanted.groups)
            if wanted.hostname and "dns-integration" in self._aliased():
                body["dns_name"] = wanted.hostname
            bodies.append(body)
        try:
            answer = self._http.send(
                "POST", "/v2.0/ports", body={"port": bodies[0]} if len(bodies) == 1 else {"ports": bodies}
            )
        except NeighbourUnavailable:
            # The answer may have been lost on its way; then the ports are there, all of them or none.
            found = ports_to_nics.match(requests, self.ports(device_id=binding["device_id"]))
            if any(found[place] is None for place in places):
                raise
            return {place: dict(found[place] or {}) for place in places}
        if answer.status_code != 201:
            self._networks.forget(bodies[0]["network_id"])
            raise self._refusal(answer, bodies[0])
        data = self._http.read(answer)
        made = data["ports"] if "ports" in data else [data["port"]]
        return dict(zip(places, made, strict=True))

    def _update(self, port_id: str, binding: Mapping[str, Any]) -> Port:
        answer = self._http.send("PUT", f"/v2.0/ports/{port_id}", body={"port": binding})
        if answer.status_code == 404:
            raise PortNotFound(port=port_id)
        found: Port = self._expect(answer, 200)["port"]
        return found

    def release_ports(self, server: str) -> None:
        unbound = {"device_id": "", "device_owner": "", "binding:host_id": "", "binding:profile": {}}
        for port in self.ports(device_id=server):
            if ports_to_nics.mark_of(port) is not None:
                answer = self._http.send("DELETE", f"/v2.0/ports/{port['id']}")
                if answer.status_code not in (204, 404):
                    raise self._http.unexpected(answer)
            else:
                try:
                    self._update(port["id"], unbound)
                except PortNotFound:
                    continue

    def nics(self, server: str) -> list[Nic]:
        return self._described(ports_to_nics.ordered(self.ports(device_id=server)), floating=True)

    def _described(
        self, ports: Sequence[Mapping[str, Any]], *, tags: Sequence[str | None] = (), floating: bool = False
    ) -> list[Nic]:
        networks = self._networks.get(port["network_id"] for port in ports)
        subnets = self._subnets.get(f["subnet_id"] for port in ports for f in port.get("fixed_ips", []))
        addresses: dict[str, dict[str, list[str]]] = {}
        if floating and ports and "router" in self._aliased():
            records = self._list("floatingips", [("port_id", port["id"]) for port in ports])
            addresses = ports_to_nics.floating_by_fixed(records)
        return [
            ports_to_nics.nic_of(
                port,
                network=networks.get(port["network_id"]),
                subnets=subnets,
                floating=addresses.get(port["id"], {}),
                tag=tags[n] if n < len(tags) else None,
            )
            for n, port in enumerate(ports)
        ]

    # --- facts of a project

    def security_groups(self, project_id: str) -> list[dict[str, Any]]:
        return self._list("security-groups", {"project_id": project_id}, key="security_groups")

    def _group_ids(self, project_id: str, names: Sequence[str]) -> list[str]:
        """Ids of security groups given by name or id; ids of groups shared by others are believed."""
        ids, asked_again = [], False
        for name in dict.fromkeys(names):
            groups = self._groups.get([project_id])[project_id]
            found = _named(groups, name)
            if not found and not asked_again:
                self._groups.forget(project_id)
                asked_again = True
                found = _named(self._groups.get([project_id])[project_id], name)
            if not found:
                raise BadRequest(f"Security group {name} not found for project {project_id}.")
            if len(found) > 1:
                raise Conflict(f"Multiple security groups found matching '{name}'. Use an ID to be more specific.")
            ids.append(found[0])
        return ids

    def quota_used(self, project_id: str) -> dict[str, dict[str, int]]:
        answer = self._http.get(f"/v2.0/quotas/{project_id}/details.json")
        found: dict[str, dict[str, int]] = self._expect(answer, 200)["quota"]
        return found

    def _aliased(self) -> set[str]:
        return self._extensions.get(["all"])["all"]

    def _aliases(self) -> set[str]:
        return {extension["alias"] for extension in self._list("extensions", None)}

    # --- plumbing

    def _by_id(self, kind: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        return {record["id"]: record for record in self._many(kind, list(ids))}

    def _many(self, kind: str, ids: Sequence[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for first in range(0, len(ids), _IDS_PER_REQUEST):
            found += self._list(kind, [("id", one) for one in ids[first : first + _IDS_PER_REQUEST]])
        return found

    def _list(self, kind: str, params: Params | None, *, key: str = "") -> list[dict[str, Any]]:
        answer = self._http.get(f"/v2.0/{kind}", params=params)
        found: list[dict[str, Any]] = self._expect(answer, 200)[key or kind]
        return found

    def _expect(self, answer: requests.Response, status: int) -> Any:
        if answer.status_code != status:
            raise self._refusal(answer, {})
        return self._http.read(answer)

    def _refusal(self, answer: requests.Response, body: Mapping[str, Any]) -> Fault:  # noqa: PLR0911 - a table
        """Neutron's refusals as kinds of ours."""
        kind, text = code_of(answer), text_of(answer)
        if kind in ("IpAddressGenerationFailure", "NoMoreNetworks"):
            return BadRequest(f"No fixed IP addresses available for network: {body.get('network_id', '')}".rstrip(": "))
        if kind in ("IpAddressAlreadyAllocated", "IpAddressInUse"):
            address = body.get("fixed_ips", [{}])[0].get("ip_address", "")
            return BadRequest(f"Fixed IP address {address} is already in use.")
        if kind == "OverQuota":
            return OverQuota(f"Maximum number of ports exceeded: {text}")
        if kind == "NetworkNotFound":
            return NetworkNotFound(network=body.get("network_id", ""))
        if answer.status_code == 403:
            return Forbidden(f"Neutron forbids this: {text}")
        if answer.status_code == 409:
            return Conflict(f"Neutron refuses: {text}")
        if answer.status_code == 400:
            return BadRequest(f"Neutron refuses: {text}")
        return self._http.unexpected(answer)


def _network(record: Mapping[str, Any]) -> Network:
    return Network(
        id=record["id"],
        name=record.get("name", ""),
        shared=bool(record.get("shared")),
        external=bool(record.get("router:external")),
        mtu=record.get("mtu"),
        subnets=list(record.get("subnets", [])),
        port_security=bool(record.get("port_security_enabled", True)),
        project_id=record.get("project_id", ""),
    )


def _named(groups: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    by_id = [group["id"] for group in groups if group["id"] == name]
    return by_id or [group["id"] for group in groups if group["name"] == name]
