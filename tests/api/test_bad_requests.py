"""No request to a resource beside servers ends in a 500, whatever its path, query and body are made of."""

from __future__ import annotations

import urllib.parse
from typing import Any

import pytest

from kilonova.api.application import load_operations
from kilonova.base.operation import Operation
from kilonova.base.versions import Version
from tests.api.cloud import PROJECT, Cloud

ODD = ("abc", "a\u0000b", "1", "²", "99999999999999999999", "a b", "%", "é\u2603", "0" * 36, "'; --", PROJECT)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "x" * 300,
    "²",
    "a\u0000b",
    "'; --",
    [],
    [None],
    {},
    {"a": {}},
)
VERSIONS = ("2.1", "2.53", "2.104")


def operations() -> list[Operation]:
    return [found for found in load_operations().operations if not found.path.startswith("/servers")]


def keys_of(schema: Any) -> list[str]:
    """The names of the attributes that a JSON Schema knows, at any depth."""
    if isinstance(schema, list):
        return [key for part in schema for key in keys_of(part)]
    if not isinstance(schema, dict):
        return []
    return [*schema.get("properties", {}), *(key for part in schema.values() for key in keys_of(part))]


def bodies(operation: Operation, version: Version) -> list[Any]:
    """Bodies that are wrong as a whole, and ones in which each attribute is wrong."""
    if operation.body is None:
        return [None]
    schema = operation.body.json_schema(version)
    names = keys_of(schema)
    outer = next(iter(names), "x")
    found: list[Any] = [*VALUES]
    found += [{outer: value} for value in VALUES]
    found += [{outer: {name: value}} for name in names for value in VALUES]
    found += [dict.fromkeys(names, value) for value in VALUES]
    return found if operation.action is None else [{operation.action: body} for body in found]


@pytest.mark.parametrize("version", VERSIONS)
def test_never_500(cloud: Cloud, version: str) -> None:
    at = Version.parse(version)
    asked = 0
    for operation in operations():
        if at not in operation.span:
            continue
        for odd in ODD[:3] if operation.body is not None else ODD:
            path = operation.path
            for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
                path = path.replace(f"{{{name}}}", urllib.parse.quote(odd, safe=""))
            for body in bodies(operation, at):
                answer = cloud.ask(operation.method, path, version, body)
                assert answer.code < 500 or answer.code == 501, (operation.method, path, body, answer.body)
                asked += 1
    assert asked > 1000


@pytest.mark.parametrize("version", VERSIONS)
def test_odd_queries(cloud: Cloud, version: str) -> None:
    at = Version.parse(version)
    for operation in operations():
        if operation.method != "GET" or operation.query is None or "{" in operation.path or at not in operation.span:
            continue
        names = list(operation.query.json_schema(at).get("properties", {})) or keys_of(operation.query.json_schema(at))
        for name in [*names, "bogus"]:
            for odd in (*ODD, ""):
                answer = cloud.get(f"{operation.path}?{name}={urllib.parse.quote(odd)}", version)
                assert answer.code < 500, (operation.path, name, odd, answer.body)
