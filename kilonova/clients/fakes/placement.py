"""Placement in memory: providers with inventories, traits, generations, and claims that are checked for room."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kilonova.base.errors import BadRequest, Conflict, NotFound
from kilonova.clients.fakes.orders import Orders, ordered
from kilonova.clients.placement import Candidates, Provider
from kilonova.clients.placement_rest import below, completed, holds, merged


class _Held(msgspec.Struct):
    allocations: dict[str, Any]
    project_id: str
    user_id: str
    generation: int = 1


class _Record(msgspec.Struct):
    name: str
    parent: str | None = None
    generation: int = 0
    inventory: dict[str, dict[str, float]] = {}
    traits: set[str] = set()
    aggregates: set[str] = set()


class FakePlacement:
    """Implements ``Placement`` for flat providers: queries with ``resources``, ``required``, ``root_required`` (with
    ``!`` for forbidden), ``member_of``, ``in_tree`` and ``limit``."""

    def __init__(self) -> None:
        self.orders = Orders("placement")
        self.lock = threading.RLock()
        self.providers: dict[str, _Record] = {}
        self.held: dict[str, _Held] = {}

    @ordered
    def candidates(self, query: list[tuple[str, str]]) -> Candidates:
        parameters = dict(query)
        try:
            wanted = {name: int(n) for name, _, n in (r.partition(":") for r in parameters["resources"].split(","))}
        except (KeyError, ValueError) as error:
            raise BadRequest(f"Placement refuses the query: {error}") from None
        limit = int(parameters.get("limit", 0)) or len(self.providers)
        found = [uuid for uuid in self.providers if self._suits(uuid, wanted, query)][:limit]
        return Candidates(
            requests=[{"allocations": {u: {"resources": dict(wanted)}}, "mappings": {"": [u]}} for u in found],
            summaries={uuid: self._summary(uuid) for uuid in found},
        )

    def _suits(self, uuid: str, wanted: dict[str, int], query: list[tuple[str, str]]) -> bool:
        record = self.providers[uuid]
        for name, value in query:
            if name in ("required", "root_required"):
                for trait in value.split(","):
                    if (trait.lstrip("!") in record.traits) is trait.startswith("!"):
                        return False
            elif name == "member_of":
                ids = set(value.removeprefix("!").removeprefix("in:").split(","))
                if bool(ids & record.aggregates) is value.startswith("!"):
                    return False
            elif name == "in_tree" and value != uuid:
                return False
        return all(self._fits(uuid, resource, amount) for resource, amount in wanted.items())

    def _fits(self, uuid: str, resource: str, amount: int, *, without: str = "") -> bool:
        part = self.providers[uuid].inventory.get(resource)
        if part is None or not part["min_unit"] <= amount <= part["max_unit"]:
            return False
        used = self._used(uuid, without=without)[resource]
        return used + amount <= (part["total"] - part["reserved"]) * part["allocation_ratio"]

    def _used(self, uuid: str, *, without: str = "") -> Counter[str]:
        used: Counter[str] = Counter()
        for consumer, held in self.held.items():
            if consumer != without and uuid in held.allocations:
                used.update(held.allocations[uuid]["resources"])
        return used

    def _summary(self, uuid: str) -> dict[str, Any]:
        record, used = self.providers[uuid], self._used(uuid)
        capacity = {
            name: {"capacity": int((p["total"] - p["reserved"]) * p["allocation_ratio"]), "used": used[name]}
            for name, p in record.inventory.items()
        }
        return {
            "resources": capacity,
            "traits": sorted(record.traits),
            "parent_provider_uuid": record.parent,
            "root_provider_uuid": record.parent or uuid,
        }

    @ordered
    def claim(self, consumer: str, request: dict[str, Any], *, project_id: str, user_id: str) -> bool:
        wanted = request["allocations"]
        held = self.held.get(consumer)
        if held is not None and holds(held.allocations, wanted):
            return True
        both = merged(held.allocations if held else {}, wanted)
        for uuid, part in both.items():
            if uuid not in self.providers:
                raise BadRequest(f"Placement refuses the claim: there is no provider {uuid}")
            if not all(self._fits(uuid, name, n, without=consumer) for name, n in part["resources"].items()):
                return False
        self.held[consumer] = _Held(both, project_id, user_id, held.generation + 1 if held else 1)
        self._grow(both)
        return True

    @ordered
    def claim_many(self, claims: dict[str, dict[str, Any]], *, project_id: str, user_id: str) -> bool:
        if self.held.keys() & claims.keys():
            raise Conflict("One of the servers holds allocations already.")
        for consumer, request in claims.items():
            wanted = merged({}, request["allocations"])
            unknown = [uuid for uuid in wanted if uuid not in self.providers]
            if unknown:
                raise BadRequest(f"Placement refuses the claim: there is no provider {unknown[0]}")
            if not all(
                self._fits(uuid, name, n) for uuid, part in wanted.items() for name, n in part["resources"].items()
            ):
                for done in claims:
                    self.held.pop(done, None)
                return False
            self.held[consumer] = _Held(wanted, project_id, user_id)
        self._grow({uuid for request in claims.values() for uuid in request["allocations"]})
        return True

    def _grow(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            if uuid in self.providers:
                self.providers[uuid].generation += 1

    @ordered
    def release(self, consumer: str) -> None:
        held = self.held.pop(consumer, None)
        if held is not None:
            self._grow(held.allocations)

    @ordered
    def allocations(self, consumer: str) -> dict[str, Any]:
        held = self.held.get(consumer)
        if held is None:
            return {"allocations": {}}
        return {
            "allocations": {
                uuid: {"resources": dict(part["resources"]), "generation": self.providers[uuid].generation}
                for uuid, part in held.allocations.items()
            },
            "project_id": held.project_id,
            "user_id": held.user_id,
            "consumer_generation": held.generation,
        }

    @ordered
    def consumers(self, provider: str) -> dict[str, dict[str, Any]]:
        return {
            consumer: {"resources": dict(held.allocations[provider]["resources"])}
            for consumer, held in self.held.items()
            if provider in held.allocations
        }

    @ordered
    def usages(self, project_id: str, user_id: str | None = None) -> dict[str, int]:
        used: Counter[str] = Counter()
        for held in self.held.values():
            if held.project_id == project_id and user_id in (None, held.user_id):
                for part in held.allocations.values():
                    used.update(part["resources"])
        return dict(used)

    @ordered
    def ensure_provider(self, uuid: str, name: str, *, parent: str | None = None) -> Provider:
        if uuid not in self.providers:
            if any(record.name == name for record in self.providers.values()):
                raise Conflict(f"Placement has another resource provider named {name}.")
            self.providers[uuid] = _Record(name, parent)
        record = self.providers[uuid]
        return Provider(
            uuid=uuid, name=record.name, generation=record.generation, parent=record.parent, root=record.parent or uuid
        )

    def _record(self, uuid: str) -> _Record:
        if uuid not in self.providers:
            raise NotFound(f"Placement has no resource provider {uuid}.")
        return self.providers[uuid]

    @ordered
    def ensure_inventory(self, uuid: str, inventory: dict[str, dict[str, float]]) -> None:
        record = self._record(uuid)
        wanted = completed(inventory, record.inventory)
        if wanted == record.inventory:
            return
        lost = [name for name in self._used(uuid) if name not in wanted]
        if lost:
            raise Conflict(f"Placement refuses the inventory: {', '.join(lost)} is in use")
        record.inventory = wanted
        record.generation += 1

    @ordered
    def ensure_traits(self, uuid: str, traits: list[str]) -> None:
        record = self._record(uuid)
        if record.traits != set(traits):
            record.traits = set(traits)
            record.generation += 1

    @ordered
    def ensure_aggregates(self, uuid: str, aggregates: list[str]) -> None:
        record = self._record(uuid)
        if record.aggregates != set(aggregates):
            record.aggregates = set(aggregates)
            record.generation += 1

    @ordered
    def aggregates(self, uuid: str) -> list[str]:
        return sorted(self.providers[uuid].aggregates) if uuid in self.providers else []

    @ordered
    def delete_provider(self, uuid: str) -> None:
        tree = {one: {"parent_provider_uuid": record.parent} for one, record in self.providers.items()}
        for one in [*reversed(below(tree, uuid)), uuid]:
            if self._used(one):
                raise Conflict(f"The resource provider {one} cannot be deleted: it has allocations")
            self.providers.pop(one, None)
