"""Contracts grow and do not change; and the comparison finds what breaks older peers."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import msgspec
import pytest

from kilonova.base.rpc import since
from tests.contracts.growth import complaints, contracts, described, path

CONTRACTS = contracts()


def test_there_are_contracts() -> None:
    assert {"Compute", "Conductor", "Scheduler"} <= CONTRACTS.keys()


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_a_contract_has_only_grown(name: str) -> None:
    golden = json.loads(path(name).read_text())
    now = json.loads(json.dumps(described(CONTRACTS[name])))
    assert complaints(golden, now) == []
    assert golden == now, "only additions: write the golden files anew (python -m tests.contracts.update)"


class Thing(msgspec.Struct):
    name: str
    size: int = 0


class Base:
    topic: ClassVar[str] = "t"
    version: ClassVar[str] = "1.1"

    def get(self, *, name: str, things: list[Thing] = []) -> Thing:  # noqa: B006
        raise NotImplementedError

    def tell(self, *, name: str) -> None:
        raise NotImplementedError


def _changed(**attributes: Any) -> dict[str, Any]:
    return described(type("Base", (Base,), attributes))


def _method(name: str, annotations: dict[str, Any], returns: Any, defaults: dict[str, Any] | None = None) -> Any:
    def function(self: object, **kwargs: Any) -> None:
        raise NotImplementedError

    import inspect

    empty = inspect.Parameter.empty
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] + [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=(defaults or {}).get(key, empty))
        for key in annotations
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {**annotations, "return": returns}
    function.__name__ = name
    return function


class WiderThing(msgspec.Struct):
    name: str
    size: int = 0
    colour: str = ""


class NarrowerThing(msgspec.Struct):
    name: str


class OtherThing(msgspec.Struct):
    name: str
    size: str = ""


class StricterThing(msgspec.Struct):
    name: str
    colour: str
    size: int = 0


ARGUMENTS: dict[str, Any] = {"name": str, "things": list[Thing]}


@pytest.mark.parametrize(
    "attributes, complaint",
    [
        ({}, None),
        ({"version": "1.2", "more": since("1.2")(_method("more", {}, str))}, None),
        ({"version": "2.0", "tell": None}, None),
        ({"version": "1.2", "more": _method("more", {}, str)}, "more is new and not marked"),
        ({"more": since("1.2")(_method("more", {}, str))}, "without a newer version"),
        ({"version": "1.0"}, "the version went back"),
        ({"topic": "u"}, "the topic changed"),
        ({"tell": None}, "tell is gone"),
        ({"tell": _method("tell", {"name": str}, str)}, "tell: cast changed"),
        ({"tell": _method("tell", {"name": int}, None)}, "tell, its arguments, Base_tell: name changed"),
        ({"tell": _method("tell", {"name": str, "to": str}, None)}, "to is required now"),
        ({"tell": _method("tell", {"name": str, "to": str}, None, {"to": "x"})}, None),
        ({"get": _method("get", ARGUMENTS, WiderThing, {"things": []})}, None),
        ({"get": _method("get", ARGUMENTS, NarrowerThing, {"things": []})}, "size is gone"),
        ({"get": _method("get", ARGUMENTS, OtherThing, {"things": []})}, "size changed"),
        ({"get": _method("get", ARGUMENTS, StricterThing, {"things": []})}, "colour is required now"),
        ({"get": _method("get", ARGUMENTS | {"things": list[OtherThing]}, Thing, {"things": []})}, "size changed"),
    ],
)
def test_what_is_an_addition(attributes: dict[str, Any], complaint: str | None) -> None:
    found = complaints(described(Base), _changed(**attributes))
    assert (found == []) if complaint is None else any(complaint in text for text in found), found
