"""The RPC contracts as they are, against the golden files in git: a change must be an addition.

An older peer must understand a newer one. So within a major version no method may go or change its kind, no argument
may be added without a default, no field of a record may go, change its type, or come without a default, and whatever is
new must be marked with a newer minor version. ``python -m tests.contracts.update`` rewrites the files.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kilonova.contracts
from kilonova.base.rpc import describe, order

FOLDER = Path(__file__).parent / "golden"
NOTES = ("title", "description")


def contracts() -> dict[str, type]:
    """Every Protocol of ``kilonova.contracts`` that has a topic and a version, by name."""
    names = [found.name for found in pkgutil.iter_modules(kilonova.contracts.__path__, "kilonova.contracts.")]
    return {
        name: value
        for module in names
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, type) and hasattr(value, "topic") and value.__module__ == module
    }


def described(contract: type) -> dict[str, Any]:
    """The contract as its golden file has it: without texts for people, each record once."""
    bare: dict[str, Any] = _bare(describe(contract))
    bare["parts"] = {}
    for method in bare["methods"].values():
        bare["parts"].update(method.pop("parts"))
    return bare


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key not in NOTES or not isinstance(item, str)}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def path(name: str) -> Path:
    return FOLDER / f"{name.lower()}.json"


def write(name: str, contract: type) -> None:
    path(name).write_text(json.dumps(described(contract), indent=1, sort_keys=True) + "\n")


def complaints(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Why ``new`` is more than an addition to ``old``; empty when it is not."""
    if order(old["version"])[0] != order(new["version"])[0]:
        return [] if order(new["version"]) > order(old["version"]) else ["the major version went back"]
    found = [*_of_methods(old, new)]
    if old["topic"] != new["topic"]:
        found.append("the topic changed")
    if order(new["version"]) < order(old["version"]):
        found.append("the version went back")
    if order(new["version"]) == order(old["version"]) and old["methods"].keys() != new["methods"].keys():
        found.append("methods were added without a newer version")
    return found


def _of_methods(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    parts = (old["parts"], new["parts"])
    for name, before in old["methods"].items():
        after = new["methods"].get(name)
        if after is None:
            yield f"{name} is gone"
            continue
        for key in ("cast", "since"):
            if before[key] != after[key]:
                yield f"{name}: {key} changed from {before[key]} to {after[key]}"
        for number, what in enumerate(("arguments", "result")):
            pair = (before["schemas"][number], after["schemas"][number])
            yield from _of_schemas(pair, parts, f"{name}, its {what}", set())
    for name in new["methods"].keys() - old["methods"].keys():
        if order(new["methods"][name]["since"]) <= order(old["version"]):
            yield f"{name} is new and not marked with a version after {old['version']}"


def _of_schemas(
    pair: tuple[Any, Any], parts: tuple[Mapping[str, Any], Mapping[str, Any]], where: str, seen: set[str]
) -> Iterator[str]:
    old, new = pair
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield f"{where} changed"
        return
    if "$ref" in old and "$ref" in new:
        key = old["$ref"]
        if key not in seen:
            names = (old["$ref"].rsplit("/", 1)[-1], new["$ref"].rsplit("/", 1)[-1])
            yield from _of_schemas(
                (parts[0][names[0]], parts[1][names[1]]), parts, f"{where}, {names[0]}", seen | {key}
            )
        return
    if "properties" in old and "properties" in new:
        yield from _of_records((old, new), parts, where, seen)
        return
    for key in sorted((old.keys() | new.keys()) - {"default", "examples"}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            for one, other in zip(before, after, strict=True):
                yield from _of_schemas((one, other), parts, where, seen)
        elif key == "enum" and set(map(str, before or ())) <= set(map(str, after or ())):
            continue
        else:
            yield from _of_schemas((before, after), parts, where, seen)


def _of_records(
    pair: tuple[dict[str, Any], dict[str, Any]],
    parts: tuple[Mapping[str, Any], Mapping[str, Any]],
    where: str,
    seen: set[str],
) -> Iterator[str]:
    old, new = pair
    for name, before in old["properties"].items():
        if name not in new["properties"]:
            yield f"{where}: {name} is gone"
        else:
            yield from _of_schemas((before, new["properties"][name]), parts, f"{where}: {name}", seen)
    for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{where}: {name} is required now"
