"""Quotas, decided on plain numbers: which limit holds, and how many servers still fit.

Use is counted, never kept. A limit of -1 is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kilonova.base.errors import OverQuota

UNLIMITED: Final = -1

COUNTED: Final = ("instances", "cores", "ram")
"""Resources whose use is summed over a project's servers."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How much is taken. ``ram`` is MiB."""

    instances: int = 0
    cores: int = 0
    ram: int = 0

    def plus(self, other: Use, times: int = 1) -> Use:
        """The sum with ``other`` taken ``times`` times."""
        return Use(
            instances=self.instances + other.instances * times,
            cores=self.cores + other.cores * times,
            ram=self.ram + other.ram * times,
        )

    def minus(self, other: Use) -> Use:
        """What is left without ``other``."""
        return self.plus(other, -1)


def effective(*layers: Mapping[str, int]) -> dict[str, int]:
    """The limits that hold, of layers from the weakest (the options) to the strongest (the user's own)."""
    found: dict[str, int] = {}
    for layer in layers:
        found.update(layer)
    return found


def room(limit: int, used: int, each: int) -> int | None:
    """How many times ``each`` still fits; None for any number."""
    if limit == UNLIMITED or each <= 0:
        return None
    return max(limit - used, 0) // each


def exceeded(limits: Mapping[str, int], used: Use, asked: Use) -> list[str]:
    """The resources of which there would be too much, in the order of their names."""
    return sorted(
        resource
        for resource in COUNTED
        if getattr(asked, resource) > 0
        and limits[resource] != UNLIMITED
        and getattr(used, resource) + getattr(asked, resource) > limits[resource]
    )


def servers_that_fit(limits: Mapping[str, int], used: Use, each: Use, *, least: int, most: int) -> int:
    """How many of ``most`` servers the limits allow; OverQuota, with all resources that lack, below ``least``."""
    rooms = [room(limits[r], getattr(used, r), getattr(each, r)) for r in COUNTED]
    fitting = min([most, *(r for r in rooms if r is not None)])
    if fitting >= least:
        return fitting
    raise over_quota(limits, used, Use().plus(each, least))


def over_quota(limits: Mapping[str, int], used: Use, asked: Use) -> OverQuota:
    """The refusal that names every resource lacking."""
    over = exceeded(limits, used, asked)

    def listed(values: list[int]) -> str:
        return ", ".join(map(str, values))

    return OverQuota(
        resource=", ".join(over),
        requested=listed([getattr(asked, r) for r in over]),
        used=listed([getattr(used, r) for r in over]),
        limit=listed([limits[r] for r in over]),
    )
