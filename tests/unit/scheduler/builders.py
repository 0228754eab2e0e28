"""Hosts, requests and a scheduler in memory, for the scheduler's tests."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from kilonova.clients.fakes.placement import FakePlacement
from kilonova.contracts.conductor import HostStates
from kilonova.core.flavor import Flavor
from kilonova.core.host import Aggregate, HostState
from kilonova.core.request import Decision, GroupMembers, RequestSpec
from kilonova.scheduler.hosts import HostStore
from kilonova.scheduler.options import FilterOptions, SchedulerOptions
from kilonova.scheduler.service import SchedulerService

Room = tuple[int, int, int]
_NUMBERS = itertools.count(1)


def host(name: str = "h1", **changes: Any) -> HostState:
    fields: dict[str, Any] = {
        "node_uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "node": name,
        "host": name,
        "cell": "cell1",
        "free_ram_mb": 65536,
        "free_disk_mb": 1024 * 1024,
        "vcpus_total": 32,
        "hypervisor_type": "qemu",
        "hypervisor_version": 8_002_000,
        "supported": [("x86_64", "kvm", "hvm"), ("aarch64", "qemu", "hvm")],
        "generation": 1,
    }
    return HostState(**(fields | changes))


def flavor(**changes: Any) -> Flavor:
    return Flavor(**({"flavorid": "1", "name": "m1", "vcpus": 1, "memory_mb": 512, "root_gb": 1} | changes))


def request(*, specs: dict[str, str] | None = None, **changes: Any) -> RequestSpec:
    fields = {"project_id": "p", "user_id": "u", "flavor": flavor(extra_specs=specs or {}), "request_id": "req-1"}
    return RequestSpec(**(fields | changes))


def group(policy: str, members: dict[str, str] | None = None, **rules: str) -> GroupMembers:
    return GroupMembers(uuid="g", policy=policy, members=dict(members or {}), rules=rules)


def aggregate(name: str, hosts: Iterable[str] = (), **metadata: str) -> Aggregate:
    return Aggregate(
        id=next(_NUMBERS),
        uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"agg-{name}")),
        name=name,
        hosts=list(hosts),
        metadata=metadata,
    )


class Conductor:
    """Tells host states as the conductor does, and counts how often it is asked."""

    def __init__(self, hosts: list[HostState]) -> None:
        self.states = {state.node_uuid: state for state in hosts}
        self.living = set(self.states)
        self.changed = set(self.states)
        self.asked: list[str] = []
        self.error: Exception | None = None

    def report(self, state: HostState) -> None:
        self.states[state.node_uuid] = state
        self.changed.add(state.node_uuid)
        self.living.add(state.node_uuid)

    def host_states(self, *, marker: str) -> HostStates:
        self.asked.append(marker)
        if self.error is not None:
            raise self.error
        told = self.living if marker == "" else self.changed & self.living
        answer = [msgspec.json.decode(msgspec.json.encode(self.states[u]), type=HostState) for u in sorted(told)]
        self.changed = set()
        return HostStates(changed=answer, all=sorted(self.living), marker=str(len(self.asked)))


class World:
    """A scheduler over hosts whose room Placement has as ``room``: VCPU, MEMORY_MB, DISK_GB."""

    def __init__(
        self, hosts: list[HostState], *, room: tuple[int, int, int] = (128, 65536, 1000), **filters: Any
    ) -> None:
        self.now = 0.0
        self.placement = FakePlacement()
        self.conductor = Conductor(hosts)
        for state in hosts:
            self.add_room(state, room)
        self.hosts = HostStore(self.conductor, clock=lambda: self.now)  # type: ignore[arg-type]
        self.service = SchedulerService(
            self.hosts, self.placement, options=SchedulerOptions(), filters=FilterOptions(**filters)
        )

    def add_room(self, state: HostState, room: Room) -> None:
        self.placement.ensure_provider(state.node_uuid, state.node)
        names = ("VCPU", "MEMORY_MB", "DISK_GB")
        self.placement.ensure_inventory(state.node_uuid, {n: {"total": t} for n, t in zip(names, room, strict=True)})
        self.placement.ensure_aggregates(state.node_uuid, [a.uuid for a in state.aggregates])
        self.placement.orders.calls.clear()

    def select(self, spec: RequestSpec | None = None, count: int = 1, **more: Any) -> Decision:
        servers = [str(uuid.uuid4()) for _ in range(count)]
        return self.select_for(servers, spec, **more)

    def select_for(self, servers: list[str], spec: RequestSpec | None = None, **more: Any) -> Decision:
        spec = msgspec.json.decode(msgspec.json.encode(spec or request()), type=RequestSpec)
        return self.service.select(request=spec, servers=servers, **({"alternates": 2} | more))


def chosen(decision: Decision) -> list[str]:
    return [selections[0].host for selections in decision.selections]
