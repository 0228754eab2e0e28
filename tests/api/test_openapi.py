"""The API described from its table; the fixed list of extensions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kilonova.api.application import load_operations
from kilonova.api.openapi import document, listing
from kilonova.base.operation import Table
from kilonova.base.versions import Version
from tests.api.cloud import Cloud

V = Version.parse


@pytest.fixture(scope="module")
def table() -> Table:
    return load_operations()


def body_of(found: dict[str, Any], path: str, method: str) -> Any:
    return found["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]


def test_describes_exactly_the_operations_of_a_version(table: Table) -> None:
    for version in (V("2.1"), V("2.54"), V("2.55"), V("2.104")):
        found = document(version, table=table)
        told = {(path, method.upper()) for path, methods in found["paths"].items() for method in methods}
        assert told == {(o.path, o.method) for o in table.operations if version in o.span}
    assert "put" not in document(V("2.54"), table=table)["paths"]["/flavors/{flavor_id}"]
    assert "put" in document(V("2.55"), table=table)["paths"]["/flavors/{flavor_id}"]


def test_is_a_valid_document(table: Table) -> None:
    for minor in (1, 2, 37, 53, 64, 90, 104):
        found = json.loads(json.dumps(document(Version(2, minor), table=table)))
        names = [operation["operationId"] for path in found["paths"].values() for operation in path.values()]
        assert len(names) == len(set(names)), minor
        for path, methods in found["paths"].items():
            for operation in methods.values():
                declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
                assert declared == set(re.findall(r"{(\w+)}", path))
                if "requestBody" in operation:
                    schema = operation["requestBody"]["content"]["application/json"]["schema"]
                    jsonschema.Draft202012Validator.check_schema(schema)


def test_bodies_are_those_of_the_version(table: Table) -> None:
    new = {"flavor": {"name": "a", "ram": "1", "vcpus": 1, "disk": 0}}
    for version, described in (("2.54", False), ("2.55", True)):
        schema = body_of(document(V(version), table=table), "/flavors", "post")
        validator = jsonschema.Draft202012Validator(schema)
        assert validator.is_valid(new)
        assert validator.is_valid({"flavor": new["flavor"] | {"description": "d"}}) is described
        assert not validator.is_valid({"flavor": {"name": "a"}})


def test_actions_are_alternatives(table: Table) -> None:
    schema = body_of(document(V("2.96"), table=table), "/flavors/{flavor_id}/action", "post")
    assert {alternative["title"] for alternative in schema["oneOf"]} == {"addTenantAccess", "removeTenantAccess"}
    assert jsonschema.Draft202012Validator(schema).is_valid({"addTenantAccess": {"tenant": "t"}})
    assert not jsonschema.Draft202012Validator(schema).is_valid({"addTenantAccess": {}})


def test_queries_are_those_of_the_version(table: Table) -> None:
    def names(version: str) -> set[str]:
        of = document(V(version), table=table)["paths"]["/flavors"]["get"]["parameters"]
        return {parameter["name"] for parameter in of if parameter["in"] == "query"}

    assert names("2.101") == {"limit", "marker", "is_public", "minRam", "minDisk", "sort_key", "sort_dir"}
    assert names("2.102") == names("2.101") | {"name"}


def test_listing_has_a_row_for_every_operation(table: Table) -> None:
    rows = listing(table)
    assert len(rows) == len(table.operations)
    [row] = [row for row in rows if (row.method, row.path, row.since) == ("PUT", "/flavors/{flavor_id}", "2.55")]
    assert (row.until, row.rule, row.success) == ("2.104", "os_compute_api:os-flavor-manage:update", 200)
    assert row.handler == "kilonova.api.flavors.update_flavor"


def test_every_rule_is_declared(table: Table) -> None:
    from kilonova.api.rules import RULES

    known = {rule.name for rule in RULES}
    anybody = "@"  # there never was a rule for seeing flavors: it depends on the project which ones
    assert {operation.rule for operation in table.operations} - known <= {anybody}


def test_extensions_are_those_of_the_reference(cloud: Cloud, reference: Path) -> None:
    samples = reference / "api_samples" / "extension-info"
    listed = json.loads((samples / "extensions-list-resp.json").read_text())
    assert cloud.get("/extensions", who="reader").body == listed
    one = json.loads((samples / "extensions-get-resp.json").read_text())
    assert cloud.get(f"/extensions/{one['extension']['alias']}").body == one
    assert cloud.get("/extensions/zzz").code == 404
