"""What Placement offered: by node, and how much room each provider has left while a batch is being placed."""

from __future__ import annotations

from typing import Any, TypeAlias

from kilonova.clients.placement import Candidates

Offer: TypeAlias = dict[str, Any]
"""An allocation request as Placement gave it: the body of a claim."""


class Offers:
    """The allocation requests of an answer, found by the node they use without looking at all of them."""

    def __init__(self, candidates: Candidates) -> None:
        self._by_node: dict[str, list[Offer]] = {}
        self._left = {
            provider: {name: part["capacity"] - part["used"] for name, part in summary.get("resources", {}).items()}
            for provider, summary in candidates.summaries.items()
        }
        for offer in candidates.requests:
            for node in {_root(candidates, provider): None for provider in offer["allocations"]}:
                self._by_node.setdefault(node, []).append(offer)

    def nodes(self) -> list[str]:
        """The nodes (roots of the providers' trees) in Placement's order."""
        return list(self._by_node)

    def of(self, node: str) -> list[Offer]:
        """The node's offers for which there is room, in Placement's order."""
        return [offer for offer in self._by_node.get(node, ()) if self._fits(offer)]

    def take(self, offer: Offer, *, sign: int = 1) -> None:
        """Count the offer as taken (``sign`` -1: as given back)."""
        for provider, part in offer["allocations"].items():
            left = self._left.get(provider, {})
            for name, amount in part["resources"].items():
                if name in left:
                    left[name] -= sign * amount

    def _fits(self, offer: Offer) -> bool:
        return all(
            self._left.get(provider, {}).get(name, amount) >= amount
            for provider, part in offer["allocations"].items()
            for name, amount in part["resources"].items()
        )


def _root(candidates: Candidates, provider: str) -> str:
    root: str | None = candidates.summaries.get(provider, {}).get("root_provider_uuid")
    return root or provider
