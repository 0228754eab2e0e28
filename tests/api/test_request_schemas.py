"""The bodies of servers take and refuse exactly what the reference's schemas do, at each of their versions.

One attribute after the other gets each value of a pool that has wrong types, bounds and forms of all kinds in it.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators

from kilonova.api.servers.bodies import CreateServer, UpdateServer
from kilonova.base.body import Body
from kilonova.base.errors import BadRequest
from kilonova.base.versions import Version

UUID = "0e44cc9c-e052-415d-afbf-469b0d384170"
POOL: list[Any] = [
    None, True, False, 0, 1, -1, 2147483647, 1.5, "", "a", "1", "0", "-1", " a", "a ", "a b", "a,b", "a/b", "ab.c",
    "x" * 61, "x" * 64, "x" * 255, "x" * 256, "true", "on", "maybe", "AUTO", "auto", "none", "1.2.3.4", "::1", "1.2.3",
    "fe80::1%eth0", "::ffff:1.2.3.4", UUID, UUID.replace("-", ""), [], {}, ["a"], ["a", "a"], [1], [None], [{}],
    {"a": "b"}, {"a": 1}, {"a$": "b"}, {"": "b"}, {"k" * 256: "v"}, {"k": "v" * 256}, "a\nb", "\u00a0", "é", "!!!",
    "aGk=", "-a", "٣", "a\x00", "x" * 65536, [str(n) for n in range(50)], [str(n) for n in range(51)],
]  # fmt: skip


def _bound(sign: int) -> Any:
    """minimum and maximum, which count for digits in texts too."""

    def check(validator: Any, bound: float, value: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(value, str):
            value = int(value) if re.fullmatch(r"-?\d+", value) else bound
        if isinstance(value, int | float) and not isinstance(value, bool) and (value - bound) * sign < 0:
            yield ValidationError(f"{value} is beyond {bound}")

    return check


def _is_name(value: object) -> bool:
    if not isinstance(value, str) or value.strip() != value or not value:
        return False
    kinds = [unicodedata.category(character) for character in value]
    return not any(kind[0] == "C" or (kind[0] == "Z" and kind != "Zs") for kind in kinds)


def _is_uuid(value: object) -> bool:
    try:
        return not isinstance(value, str) or bool(uuid.UUID(value))
    except ValueError:
        return False


def _is_base64(value: object) -> bool:
    try:
        return not isinstance(value, str) or base64.decodebytes(value.encode()) is not None
    except ValueError:
        return False


def _validator(schema: Any) -> Any:
    formats = FormatChecker(["ipv4", "ipv6"])
    for name, check in (("name", _is_name), ("uuid", _is_uuid), ("base64", _is_base64)):
        formats.checks(name)(check)
    made = validators.extend(Draft202012Validator, {"minimum": _bound(1), "maximum": _bound(-1)})
    return made(schema, format_checker=formats)


def _values(schema: dict[str, Any]) -> Iterator[Any]:
    """The pool, and for lists of objects the pool as each of their attributes."""
    yield from POOL
    for form in [schema, *schema.get("oneOf", [])]:
        for inner in form.get("items", {}).get("properties", {}) if form.get("type") == "array" else ():
            for value in [*POOL[:32], UUID]:
                yield [{inner: value}]


def _schemas(folder: Path, method: str) -> list[tuple[Version, dict[str, Any]]]:
    found = []
    for file in sorted(folder.glob(f"{method}.request.*.json")):
        least = file.name.split(".request.")[1].partition("-")[0]
        if least != "2.0":
            found.append((Version.parse(least), json.loads(file.read_text())))
    return found


@pytest.mark.parametrize("folder, method, cls, smallest", [
    ("servers", "POST", CreateServer, {"name": "a", "flavorRef": "1", "networks": "auto"}),
    ("servers_id", "PUT", UpdateServer, {}),
])  # fmt: skip
def test_bodies_agree_with_the_schemas(
    reference: Path, folder: str, method: str, cls: type[Body], smallest: dict[str, Any]
) -> None:
    schemas = _schemas(reference / "schemas" / folder, method)
    assert len(schemas) >= 5
    seen: dict[str, Any] = {}
    for version, whole in schemas:
        schema = whole["properties"]["server"]
        base = {name: value for name, value in smallest.items() if name in schema.get("required", [])}
        for name in schema.get("required", []):
            without = {key: value for key, value in base.items() if key != name}
            assert not _takes(cls, {"server": without}, version)
        for name in seen.keys() - schema["properties"].keys():
            assert not _takes(cls, {"server": base | {name: POOL[9]}}, version)
        changed = {name: inner for name, inner in schema["properties"].items() if seen.get(name) != inner}
        seen |= changed
        for name, inner in {**changed, "nosuch": False}.items():
            validator = _validator(inner)
            for value in _values(inner or {}):
                body = {"server": base | {name: value}}
                assert _takes(cls, body, version) == validator.is_valid(value), (str(version), name, value)


def _takes(cls: type[Body], body: dict[str, Any], version: Version) -> bool:
    try:
        cls.decode(body, version)
    except BadRequest:
        return False
    return True
