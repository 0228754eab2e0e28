"""The table of extra specs says what the reference says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kilonova.core.extra_specs import validate

_IN_NAMES = {"{group}": "_1", "{num}": "0", "{key}": "k", "{resource}": "A", "{trait}": "A", "{filter}": ":a:b"}
_FITTING = {"hw:pmem": "a,b", "pci_passthrough:alias": "a1:2, b:1", "hw:mem_page_size": "2MiB"}


def known(reference: Path) -> list[tuple[str, dict[str, Any]]]:
    specs = json.loads((reference / "data" / "extra_specs.json").read_text())
    found = []
    for spec in specs:
        name = spec["name"]
        for variable, value in _IN_NAMES.items():
            name = name.replace(variable, value)
        found.append((name, spec["value"] | {"at": spec["name"]}))
    assert len(found) > 500
    return found


def good(value: dict[str, Any]) -> list[str]:
    if "enum" in value:
        return list(value["enum"])
    if "bool" in value["type"]:
        return ["true", "No", "1", "off"]
    if "int" in value["type"]:
        return [str(bound) for bound in (value.get("min", -5), value.get("max", 7))]
    if "pattern" in value:
        return [_FITTING.get(value["at"], "0-3,^1")]
    return ["anything"]


def bad(value: dict[str, Any]) -> list[str]:
    if "enum" in value:
        return ["no-such-value", ""]
    if "bool" in value["type"]:
        return ["maybe", ""]
    if "int" in value["type"]:
        beyond = [str(value[bound] + step) for bound, step in (("min", -1), ("max", 1)) if bound in value]
        return ["a", "", "1.5", *beyond]
    return ["!"] if "pattern" in value else []


def test_every_spec_takes_what_it_may(reference: Path) -> None:
    for name, value in known(reference):
        for text in good(value):
            validate(name, text)


def test_every_spec_refuses_what_it_may_not(reference: Path) -> None:
    for name, value in known(reference):
        for text in bad(value):
            with pytest.raises(ValueError, match=r"is not|is less|is greater|does not match"):
                validate(name, text)


@pytest.mark.parametrize(
    "name", ["hw:bad", "trait:HW_NO_SUCH", "resources1:NO_SUCH", "powervm:x", "os:x", "capabilities:x", "accel:x"]
)
def test_unknown_names_in_known_spaces_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"extra spec '{name}' does not appear to be a valid extra spec."):
        validate(name, "1")


@pytest.mark.parametrize("name", ["mine", "mine:own", "hwx:cpu_policy"])
def test_other_name_spaces_are_the_operators_own(name: str) -> None:
    validate(name, "whatever")


def test_refusal_names_what_is_allowed() -> None:
    with pytest.raises(ValueError, match=r"^'x' is not one of: dedicated, shared, mixed.$"):
        validate("hw:cpu_policy", "x")
