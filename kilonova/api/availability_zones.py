"""Availability zones: names for sets of hosts, with whether anything there takes servers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kilonova.api.call import Call
from kilonova.api.inputs import NoQuery
from kilonova.api.moments import micro, now
from kilonova.base.operation import operation
from kilonova.core.host import Service
from kilonova.store import aggregates, services

_RULE = "os_compute_api:os-availability-zone:"

# nova-api and nova-metadata-api have rows too, which were never shown.
HIDDEN = ("nova-osapi_compute", "nova-metadata", "nova-api", "nova-metadata-api")


def with_zones(call: Call[Any], found: list[Service]) -> list[Service]:
    """The services, each with its zone filled in."""
    with call.services.cells.api.read() as tx:
        by_host = aggregates.zones_by_host(tx)
    options = call.options.default
    for service in found:
        if service.binary == "nova-compute":
            service.availability_zone = by_host.get(service.host, options.default_availability_zone)
        else:
            service.availability_zone = options.internal_service_availability_zone
    return found


def all_services(call: Call[Any]) -> list[Service]:
    """Every service of every cell that answers, with its zone; in order of number."""
    return reachable_services(call)[0]


def reachable_services(call: Call[Any]) -> tuple[list[Service], list[str]]:
    """All services, and the cells that do not answer."""
    gathered = call.services.cells.gather(services.listing)
    found = []
    for cell, part in gathered.found.items():
        for service in part:
            service.cell = cell
            found.append(service)
    shown = [service for service in found if service.binary not in HIDDEN]
    shown.sort(key=lambda service: (service.id, service.host, service.binary))
    return with_zones(call, shown), list(gathered.down)


@operation("GET", "/os-availability-zone", rule=_RULE + "list", query=NoQuery)
def list_zones(call: Call[None]) -> dict[str, Any]:
    """The zones that servers may be asked into."""
    call.authorize()
    internal = call.options.default.internal_service_availability_zone
    found = all_services(call)
    available = {service.availability_zone or "" for service in found if not service.disabled}
    every = {service.availability_zone or "" for service in found}
    zones = [
        {"zoneName": zone, "zoneState": {"available": zone in available}, "hosts": None}
        for zone in (*sorted(available), *sorted(every - available))
        if zone != internal
    ]
    return {"availabilityZoneInfo": zones}


@operation("GET", "/os-availability-zone/detail", rule=_RULE + "detail", query=NoQuery)
def list_zones_in_detail(call: Call[None]) -> dict[str, Any]:
    """All zones with their hosts and services."""
    call.authorize()
    found = all_services(call)
    available = {service.availability_zone or "" for service in found if not service.disabled}
    hosts: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    moment, down_time = now(), call.options.default.service_down_time
    for service in found:
        if not service.disabled:
            hosts[service.availability_zone or ""][service.host][service.binary] = {
                "available": service.is_up(now=moment, down_time=down_time),
                "active": True,
                "updated_at": micro(service.last_seen_up or service.updated_at),
            }
    zones: list[dict[str, Any]] = [
        {"zoneName": zone, "zoneState": {"available": True}, "hosts": hosts[zone]} for zone in sorted(available)
    ]
    closed = {service.availability_zone or "" for service in found} - available
    zones += [{"zoneName": zone, "zoneState": {"available": False}, "hosts": None} for zone in sorted(closed)]
    return {"availabilityZoneInfo": zones}
