"""Placement: inventories of hosts, and claims of servers."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Provider(msgspec.Struct, kw_only=True):
    """A resource provider. ``generation`` is for compare-and-swap."""

    uuid: str
    name: str
    generation: int
    parent: str | None = None
    root: str | None = None


class Candidates(msgspec.Struct, kw_only=True):
    """An answer to a query: ``requests`` are allocation requests as Placement gave them (the body of a claim's
    ``allocations`` and ``mappings``), ``summaries`` by provider uuid (resources with capacity and used, traits,
    parent_provider_uuid, root_provider_uuid)."""

    requests: list[dict[str, Any]]
    summaries: dict[str, dict[str, Any]]


class Placement(Protocol):
    """What we ask of Placement."""

    def candidates(self, query: list[tuple[str, str]]) -> Candidates:
        """GET /allocation_candidates at 1.36 with these parameters."""
        ...

    def claim(self, consumer: str, request: dict[str, Any], *, project_id: str, user_id: str) -> bool:
        """Claim for a consumer that may hold nothing yet; merged with what it holds. False: the room is gone.
        Idempotent: a consumer that holds exactly this is left so and True is answered."""
        ...

    def claim_many(self, claims: dict[str, dict[str, Any]], *, project_id: str, user_id: str) -> bool:
        """Claim for several new consumers (consumer -> request): all, or none and False, because room is gone.
        Conflict when one of them holds something already."""
        ...

    def release(self, consumer: str) -> None:
        """Drop all that the consumer holds; nothing held is fine."""
        ...

    def allocations(self, consumer: str) -> dict[str, Any]:
        """What it holds: {"allocations": {provider: {"resources": {...}}}, "consumer_generation", "project_id", …}."""
        ...

    def consumers(self, provider: str) -> dict[str, dict[str, Any]]:
        """{consumer uuid: {"resources": {...}}} on a provider."""
        ...

    def ensure_provider(self, uuid: str, name: str, *, parent: str | None = None) -> Provider:
        """Make or find it."""
        ...

    def ensure_inventory(self, uuid: str, inventory: dict[str, dict[str, float]]) -> None:
        """Make the provider's inventory equal to this (no request when it is known to be); generation conflicts are
        retried on fresh data."""
        ...

    def ensure_traits(self, uuid: str, traits: list[str]) -> None:
        """Make the provider's traits equal to these; unknown CUSTOM_ ones are made."""
        ...

    def ensure_aggregates(self, uuid: str, aggregates: list[str]) -> None:
        """Make the provider's aggregates equal to these."""
        ...

    def aggregates(self, uuid: str) -> list[str]:
        """The aggregates of a provider."""
        ...

    def delete_provider(self, uuid: str) -> None:
        """Delete it with its children; Conflict when it has allocations; nothing there is fine."""
        ...

    def usages(self, project_id: str, user_id: str | None = None) -> dict[str, int]:
        """Use by resource class of a project (of one user in it)."""
        ...
