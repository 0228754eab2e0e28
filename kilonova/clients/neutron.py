"""Neutron: a server's ports."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kilonova.core.network import NetworkRequest, Nic


class Network(msgspec.Struct, kw_only=True):
    """A network that a project may use."""

    id: str
    name: str
    shared: bool = False
    external: bool = False
    mtu: int | None = None
    subnets: list[str] = []
    port_security: bool = True
    project_id: str = ""


class Neutron(Protocol):
    """What we ask of Neutron, as the service (admin), for a project named."""

    def networks(self, project_id: str, *, ids: list[str] | None = None) -> list[Network]:
        """The project's own and the shared ones (external ones too when named by id); in Neutron's order."""
        ...

    def port(self, port_id: str) -> dict[str, Any]:
        """A port as Neutron shows it; PortNotFound."""
        ...

    def ports(self, **filters: str) -> list[dict[str, Any]]:
        """Ports by Neutron's own filters (device_id=…, fixed_ips=…)."""
        ...

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
        """Make the ports asked for (one per request, marked with the request's place so that a second call finds them
        again), bind all to ``host``, and describe them in the order of the requests. PortInUse, PortNotFound,
        NetworkNotFound, BadRequest (no address, binding failed)."""
        ...

    def release_ports(self, server: str) -> None:
        """Delete the ports made for the server, unbind the others that carry its id. Nothing there is fine."""
        ...

    def nics(self, server: str) -> list[Nic]:
        """The server's ports as they are now, with addresses and floating addresses; made-by-us is ``created``."""
        ...

    def security_groups(self, project_id: str) -> list[dict[str, Any]]:
        """The project's security groups."""
        ...

    def auto_network(self, project_id: str, *, dry_run: bool = False) -> str | None:
        """The id of the auto-allocated topology's network (made when needed); None when it can't be (dry run)."""
        ...

    def quota_used(self, project_id: str) -> dict[str, dict[str, int]]:
        """Quota details ({"port": {"limit": …, "used": …, "reserved": …}, …})."""
        ...
