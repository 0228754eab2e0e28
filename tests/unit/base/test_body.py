"""Bodies and queries: what is known where, what is required where, and that complaints name the field."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from kilonova.base.body import Body, Query, wire
from kilonova.base.errors import BadRequest, ValidationFailed
from kilonova.base.versions import Version, supported


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value // 2


class File(Body):
    path: Annotated[str, Meta(max_length=5)]
    contents: str = ""


class Network(Body):
    uuid: str | None = None
    tag: Annotated[str | UnsetType | None, wire(since="2.32", until="2.36")] = UNSET


class NewServer(Body):
    name: Annotated[str, Meta(min_length=1, max_length=10)]
    flavor: Annotated[str, wire("flavorRef")]
    networks: Annotated[list[Network] | Literal["auto", "none"] | UnsetType, wire(required_since="2.37")] = UNSET
    personality: Annotated[list[File], wire(until="2.56")] = []  # noqa: RUF012 a struct copies it
    description: Annotated[str | UnsetType | None, wire(since="2.19")] = UNSET
    count: Annotated[int, wire("min_count", check=even)] = 0
    files: dict[str, File] = {}  # noqa: RUF012


class Lenient(Body):
    forbid_unknown = False
    name: str


BODY: dict[str, object] = {"name": "x", "flavorRef": "1"}


def read(version: str, **more: object) -> NewServer:
    return NewServer.decode(BODY | more, Version.parse(version))


def test_attributes_are_known_within_their_span_only() -> None:
    assert read("2.19", description="d").description == "d"
    assert read("2.56", networks="auto", personality=[{"path": "/a"}]).personality == [File(path="/a")]
    with pytest.raises(BadRequest, match="description"):
        read("2.18", description="d")
    with pytest.raises(BadRequest, match="personality"):
        read("2.57", networks="auto", personality=[])


def test_what_is_absent_has_its_default() -> None:
    server = read("2.1")
    assert (server.networks, server.description, server.personality, server.count) == (UNSET, UNSET, [], 0)
    assert read("2.19", description=None).description is None


def test_required_from_a_version_on() -> None:
    assert read("2.36").networks is UNSET
    with pytest.raises(BadRequest, match="networks"):
        read("2.37")
    assert read("2.37", networks="none").networks == "none"


def test_nested_bodies_have_their_own_spans_also_in_unions() -> None:
    assert read("2.36", networks=[{"tag": "t"}]).networks == [Network(tag="t")]
    assert isinstance(read("2.40", networks=[{"uuid": "u"}]).networks, list)
    for version in ("2.31", "2.37"):
        with pytest.raises(BadRequest, match="tag"):
            read(version, networks=[{"tag": "t"}])


@pytest.mark.parametrize(
    "more, field",
    [
        ({"name": 5}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 11}, "name"),
        ({"flavorRef": None}, "flavorRef"),
        ({"min_count": "2"}, "min_count"),
        ({"min_count": 3}, "min_count"),
        ({"personality": [{"path": "/a"}, {"path": 5}]}, "path"),
        ({"personality": {}}, "personality"),
        ({"files": {"a": {"path": "too long"}}}, "path"),
        ({"networks": "other"}, "networks"),
    ],
)
def test_a_complaint_names_the_field(more: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationFailed) as raised:
        read("2.1", **more)
    assert raised.value.code == 400
    assert raised.value.message.startswith(f"Invalid input for field/attribute {field}. Value: ")


def test_unknown_and_missing_attributes_are_named() -> None:
    with pytest.raises(BadRequest, match="other"):
        read("2.1", other=1)
    with pytest.raises(BadRequest, match="flavorRef"):
        NewServer.decode({"name": "x"}, Version(2, 1))
    not_objects: list[object] = [None, [], "text", 5]
    for raw in not_objects:
        with pytest.raises(BadRequest):
            NewServer.decode(raw, Version(2, 1))


def test_a_check_may_mend_the_value() -> None:
    assert read("2.1", min_count=4).count == 2


def test_a_lenient_body_drops_what_it_does_not_know() -> None:
    assert Lenient.decode({"name": "x", "other": 1}, Version(2, 1)) == Lenient(name="x")


def test_values_that_are_long_are_shortened() -> None:
    with pytest.raises(ValidationFailed) as raised:
        read("2.1", name="y" * 9999)
    assert len(raised.value.message) < 1000


def test_the_schema_is_that_of_the_version() -> None:
    for version in supported():
        schema = NewServer.json_schema(version)
        record = schema["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        assert ("description" in record["properties"]) == (version >= Version(2, 19))
        assert ("networks" in record["required"]) == (version >= Version(2, 37))
        assert record["additionalProperties"] is False


class Listing(Query):
    strict_since = "2.75"
    limit: Annotated[int, Meta(ge=0)] | None = None
    status: list[str] = []  # noqa: RUF012
    name: str | None = None
    tags: Annotated[str | None, wire(since="2.26")] = None


def test_the_last_value_counts_unless_all_do() -> None:
    query = Listing.read({"limit": ["1", "2"], "status": ["a", "b"], "name": ["x", "y"]}, Version(2, 1))
    assert (query.limit, query.status, query.name) == (2, ["a", "b"], "y")


def test_unknown_parameters_are_dropped_and_later_refused() -> None:
    assert Listing.read({"other": ["1"]}, Version(2, 74)) == Listing()
    with pytest.raises(BadRequest, match=r"Additional properties are not allowed \('other' was unexpected\)"):
        Listing.read({"other": ["1"]}, Version(2, 75))
    with pytest.raises(BadRequest, match=r"\('a', 'b' were unexpected\)"):
        Listing.read({"b": ["1"], "a": ["1"]}, Version(2, 80))


def test_parameters_outside_their_span_are_unknown() -> None:
    assert Listing.read({"tags": ["x"]}, Version(2, 25)).tags is None
    assert Listing.read({"tags": ["x"]}, Version(2, 26)).tags == "x"


@pytest.mark.parametrize("value", ["-1", "x", "1.5", ""])
def test_a_bad_parameter_is_named(value: str) -> None:
    with pytest.raises(BadRequest, match="limit"):
        Listing.read({"limit": [value]}, Version(2, 1))


def test_bodies_are_structs() -> None:
    assert msgspec.structs.asdict(Network(uuid="u"))["uuid"] == "u"
