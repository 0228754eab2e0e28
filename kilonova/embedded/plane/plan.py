"""The pure heart of the plane: from what should be and what is to an ordered list of changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kilonova.embedded.plane.parts import Dhcp, Key, Part, Veth


@dataclass(frozen=True)
class Ensure:
    """Make it so; harmless when it is so already."""

    part: Part


@dataclass(frozen=True)
class Remove:
    """Make it gone; harmless when it is."""

    part: Part


Change = Ensure | Remove


def plan(desired: Iterable[Part], present: Iterable[Part]) -> list[Change]:
    """Removals first, the dependent before what it stands on; then what is missing, foundations first.

    What vanishes together with a removed thing is not removed by itself, and is made again where it is wanted. A
    process does not vanish with its namespace, and devices do so only some time later: DHCP servers and devices are
    always removed by themselves.
    """
    wanted = {part.key: part for part in desired}
    there = {part.key: part for part in present}
    removed = {
        key: part for key, part in there.items() if key not in wanted or (part != wanted[key] and not part.in_place)
    }
    lost = _lost(there, set(removed))
    removals = [
        part
        for key, part in there.items()
        if (key in removed and not _carried(part, lost)) or (isinstance(part, Dhcp | Veth) and key in lost)
    ]
    missing = [part for key, part in wanted.items() if key in lost or there.get(key) != part]
    return [
        *(Remove(part) for part in sorted(removals, key=lambda part: (-part.rank, part.key))),
        *(Ensure(part) for part in sorted(missing, key=lambda part: (part.rank, part.key))),
    ]


def _lost(there: dict[Key, Part], gone: set[Key]) -> set[Key]:
    """The keys that are gone, with all that stands on them."""
    lost = set(gone)
    # A thing stands only on things of a lower rank: one pass upwards finds all.
    for key, part in sorted(there.items(), key=lambda item: item[1].rank):
        if _carried(part, lost):
            lost.add(key)
    return lost


def _carried(part: Part, lost: set[Key]) -> bool:
    return any(key in lost for key in part.inside)
