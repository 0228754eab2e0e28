"""The book-keeper can fail: each leak, planted, is found."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.chaos.books import Books, Living, differences

SIZE = {"VCPU": 1, "MEMORY_MB": 128, "DISK_GB": 1}
BALANCED = Books(
    servers={"s1": Living(name="one", status="ACTIVE", host="h1", resources=SIZE, volumes=["v1"])},
    allocations={"s1": {"h1": SIZE}},
    ports={"s1": ["p1"]},
    attachments={"s1": ["v1"]},
    guests={"s1": ["h1"]},
    volumes={"v1": "in-use", "v2": "available"},
    kept=["v2"],
)
LEAKS: dict[str, Callable[[Books], object]] = {
    "an allocation of nobody": lambda b: b.allocations.update(s9={"h1": SIZE}),
    "an allocation on a second host": lambda b: b.allocations["s1"].update(h2=SIZE),
    "no allocation": lambda b: b.allocations.clear(),
    "an allocation of the wrong size": lambda b: b.allocations["s1"].update(h1={"VCPU": 2}),
    "a port of nobody": lambda b: b.ports.update({"": ["p9"]}),
    "a second port": lambda b: b.ports["s1"].append("p9"),
    "no port": lambda b: b.ports.clear(),
    "an attachment of nobody": lambda b: b.attachments.update(s9=["v2"]),
    "an attachment twice": lambda b: b.attachments["s1"].append("v1"),
    "no attachment": lambda b: b.attachments.clear(),
    "a volume left reserved": lambda b: b.volumes.update(v2="reserved"),
    "a volume that went too far": lambda b: b.volumes.pop("v2"),
    "a volume that should have gone": lambda b: b.volumes.update(v9="available"),
    "a guest of nobody": lambda b: b.guests.update(s9=["h1"]),
    "a guest twice": lambda b: b.guests["s1"].append("h2"),
    "a guest half made": lambda b: b.guests.update(s1=["h1, half made"]),
    "a server stuck": lambda b: setattr(b.servers["s1"], "status", "BUILD"),
    "a run that goes on": lambda b: b.unfinished.append("run x is running"),
}


def test_balanced_books_show_no_difference() -> None:
    assert differences(BALANCED) == []


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(leak: str) -> None:
    books = copy.deepcopy(BALANCED)
    LEAKS[leak](books)
    assert differences(books) != []
