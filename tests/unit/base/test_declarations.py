"""Versions, views, operations, errors and contracts: the small tables that the rest stands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import msgspec
import pytest

from kilonova.base.context import Context, acting, current
from kilonova.base.errors import (
    ErrorRecord,
    Fault,
    RemoteError,
    ServerBusy,
    fault_of,
    public_text,
    record_of,
)
from kilonova.base.operation import Table, operation
from kilonova.base.rpc import client, handler, methods
from kilonova.base.versions import MAX, MIN, Version, span, supported
from kilonova.base.view import OMIT, Page, View, field


@pytest.mark.parametrize("text", ["2", "2.", "2.01", "02.1", "2.1.1", "2.x", "", " 2.1", "latest", "-2.1", "2.1\n"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="invalid format"):
        Version.parse(text)


def test_versions_compare_by_number() -> None:
    assert Version.parse("2.9") < Version.parse("2.10") < Version(3, 0)
    assert str(Version(2, 96)) == "2.96"
    assert (supported()[0], supported()[-1], len(supported())) == (MIN, MAX, 104)


def test_spans() -> None:
    assert Version(2, 5) in span("2.5", "2.5")
    assert Version(2, 6) not in span("2.5", "2.5")
    assert span(None, "2.5").meets(span("2.5", None))
    assert not span(None, "2.5").meets(span("2.6", None))


class Counted:
    """A loader that says how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, page: Page[int]) -> dict[int, list[str]]:
        self.runs += 1
        return {n: [f"tag{n}"] for n in page.objects}


TAGS = Counted()
VIEW = View(
    field("id", lambda n, page: n),
    field("flavor", lambda n, page: "old", until="2.46"),
    field("flavor", lambda n, page: "new", since="2.47"),
    field("host", lambda n, page: "h", rule="admin"),
    field("fault", lambda n, page: "f" if n == 2 else OMIT),
    field("tags", lambda n, page: page.load(TAGS)[n], since="2.26", only={"detail"}),
)


def test_a_view_shows_what_its_version_occasion_and_rules_allow() -> None:
    page = Page([1, 2], version=Version(2, 46))
    assert VIEW.render(page, allows=lambda rule: False) == [
        {"id": 1, "flavor": "old"},
        {"id": 2, "flavor": "old", "fault": "f"},
    ]
    assert VIEW.render(Page([1], version=Version(2, 47)))[0] == {"id": 1, "flavor": "new", "host": "h"}
    assert VIEW.keys(Version(2, 26), "detail") == ["id", "flavor", "host", "fault", "tags"]


def test_a_loader_runs_once_for_a_page_and_not_at_all_when_nobody_asks() -> None:
    TAGS.runs = 0
    page = Page([1, 2, 3], version=Version(2, 26))
    VIEW.render(page)
    assert TAGS.runs == 0
    assert [one["tags"] for one in VIEW.render(page, occasion="detail")] == [["tag1"], ["tag2"], ["tag3"]]
    assert TAGS.runs == 1


def test_a_rule_is_asked_once() -> None:
    asked: list[str] = []

    def allows(rule: str) -> bool:
        asked.append(rule)
        return True

    VIEW.render(Page([1, 2, 3], version=Version(2, 1)), allows=allows)
    assert asked == ["admin"]


def declared(table: Table, **more: Any) -> Callable[..., None]:
    @operation("GET", "/things", table=table, **({"rule": "things:list"} | more))
    def things() -> None:
        """List."""

    return things


def test_operations_are_found_by_version() -> None:
    table = Table()
    old = declared(table, until="2.9")
    new = declared(table, since="2.10", success=202, refuses=[409])
    assert table.find("GET", "/things", action=None, version=Version(2, 9)).handler is old  # type: ignore[union-attr]
    found = table.find("GET", "/things", action=None, version=Version(2, 10))
    assert found is not None
    assert (found.handler, found.success, found.refuses, found.name) == (new, 202, frozenset({409}), "things")
    assert table.find("GET", "/things", action="x", version=Version(2, 1)) is None
    assert table.knows("GET", "/things")
    assert not table.knows("POST", "/things")
    assert table.paths() == {"/things": {"GET"}}


def test_two_operations_for_one_request_are_refused() -> None:
    table = Table()
    declared(table, until="2.10")
    with pytest.raises(ValueError, match="both answer GET /things"):
        declared(table, since="2.10")


def test_an_operation_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="declares no policy rule"):
        declared(Table(), rule="")


def test_faults_travel_as_records() -> None:
    fault = ServerBusy(action="stop", server="s", attribute="task_state", state="spawning")
    record = msgspec.json.decode(msgspec.json.encode(record_of(fault)), type=ErrorRecord)
    again = fault_of(record)
    assert (type(again), again.message, again.code, again.facts) == (ServerBusy, fault.message, 409, fault.facts)
    assert public_text(record) == "Cannot 'stop' instance s while it is in task_state spawning"


def test_what_is_no_fault_shows_its_class_only() -> None:
    try:
        raise OSError("/etc/nova/secret")
    except OSError as error:
        record = record_of(error)
    assert public_text(record) == "OSError"
    assert "secret" in record.details
    again = fault_of(record)
    assert (type(again), again.code) == (RemoteError, 500)
    assert "secret" not in again.message


@pytest.mark.parametrize("kind", sorted(Fault.kinds))
def test_every_kind_has_a_code_and_a_text(kind: str) -> None:
    cls = Fault.kinds[kind]
    assert 400 <= cls.code < 600
    assert cls.text
    assert fault_of(ErrorRecord(kind=kind, message="m", facts={"message_id": 1})).message == "m"


def test_the_context_of_the_work() -> None:
    assert current() == Context()
    with acting(Context(user_id="u")):
        assert current().user_id == "u"
        with acting(Context(user_id="v")):
            assert current().user_id == "v"
        assert current().user_id == "u"
    assert current().user_id == ""


class Positional(Protocol):
    topic: ClassVar[str] = "t"
    version: ClassVar[str] = "1.0"

    def bad(self, name: str) -> str: ...


def test_a_contract_takes_keywords_only() -> None:
    with pytest.raises(TypeError, match="name must be keyword-only"):
        methods(Positional)
    with pytest.raises(AttributeError):
        client(type("Empty", (), {"topic": "t", "version": "1.0"}), None).absent()  # type: ignore[arg-type]


@pytest.mark.parametrize("message", [b"", b"{}", b"nonsense", b'{"method":"absent","args":{}}', b"\xff\xfe"])
def test_a_handler_answers_whatever_it_is_sent(message: bytes) -> None:
    contract = type("Empty", (), {"topic": "t", "version": "1.0"})
    assert b'"error"' in handler(contract, object())(message)
