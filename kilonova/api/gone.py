"""Resources that once were: they answer 410 at every microversion."""

from __future__ import annotations

GONE: dict[str, frozenset[str]] = {
    path: frozenset(methods.split())
    for path, methods in {
        "/os-agents": "GET POST",
        "/os-agents/{id}": "PUT DELETE",
        "/os-cells": "GET POST",
        "/os-cells/capacities": "GET",
        "/os-cells/detail": "GET",
        "/os-cells/info": "GET",
        "/os-cells/sync_instances": "POST",
        "/os-cells/{id}": "GET PUT DELETE",
        "/os-cells/{id}/capacities": "GET",
        "/os-certificates": "POST",
        "/os-certificates/{id}": "GET",
        "/os-cloudpipe": "GET POST",
        "/os-cloudpipe/{id}": "PUT",
        "/os-fixed-ips/{id}": "GET",
        "/os-fixed-ips/{id}/action": "POST",
        "/os-floating-ip-dns": "GET",
        "/os-floating-ip-dns/{id}": "PUT DELETE",
        "/os-floating-ip-dns/{id}/entries/{name}": "GET PUT DELETE",
        "/os-floating-ips-bulk": "GET POST",
        "/os-floating-ips-bulk/{id}": "GET PUT",
        "/os-fping": "GET",
        "/os-fping/{id}": "GET",
        "/os-networks": "POST",
        "/os-networks/add": "POST",
        "/os-networks/{id}": "DELETE",
        "/os-networks/{id}/action": "POST",
        "/os-security-group-default-rules": "GET POST",
        "/os-security-group-default-rules/{id}": "GET DELETE",
        "/os-tenant-networks": "POST",
        "/os-tenant-networks/{id}": "DELETE",
        "/servers/{server_id}/consoles": "GET POST",
        "/servers/{server_id}/consoles/{id}": "GET DELETE",
        "/servers/{server_id}/os-virtual-interfaces": "GET",
    }.items()
}
"""Paths and their methods."""

GONE_ACTIONS = frozenset({"resetNetwork"})
"""Keys of POST /servers/{server_id}/action that answer 410."""
