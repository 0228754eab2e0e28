"""Vendor data: the operator's file, and services that answer, fail, or fail fatally."""

from pathlib import Path

import pytest

from kilonova.clients.vendordata import Target, VendorData, VendorDataFailed, parse_targets
from tests.unit.metadata.records import FULL, PLAIN, PROJECT, UUID


class Answer:
    status_code = 200
    content = b'{"token": 1}'


class Service:
    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []

    def post(self, url: str, **options: object) -> Answer:
        if "broken" in url:
            raise ConnectionError("refused")
        self.asked.append(options)
        return Answer()


def test_targets() -> None:
    assert parse_targets(["joiner@http://127.0.0.1:999/x@y"]) == [Target("joiner", "http://127.0.0.1:999/x@y")]
    with pytest.raises(ValueError, match="nonsense"):
        parse_targets(["nonsense"])


def test_dynamic_asks_with_the_fields_of_the_reference(reference: Path) -> None:
    service = Service()
    vendor = VendorData(targets=[Target("a", "http://a"), Target("b", "http://broken")], session=service)
    assert vendor.dynamic(FULL) == {"a": {"token": 1}, "b": {}}
    question = service.asked[0]["json"]
    assert isinstance(question, dict)
    line = next(text for text in (reference / "services.md").read_text().splitlines() if "DynamicJSON" in text)
    names = line.partition("POST body ")[2].partition(";")[0].split(", ")
    assert set(question) == set(names)
    assert (question["project-id"], question["instance-id"]) == (PROJECT, UUID)
    assert vendor.dynamic(PLAIN)["a"] == {"token": 1}


def test_fatal_failure_is_raised_without_the_cause_in_its_text() -> None:
    vendor = VendorData(targets=[Target("b", "http://user:secret@broken")], session=Service(), fatal=True)
    with pytest.raises(VendorDataFailed) as caught:
        vendor.dynamic(PLAIN)
    assert "secret" not in str(caught.value)


def test_static_file(tmp_path: Path) -> None:
    file = tmp_path / "vendor.json"
    vendor = VendorData(file)
    assert vendor.static() == {}
    file.write_text('{"cloud": "x"}')
    assert vendor.static() == {"cloud": "x"}
    assert VendorData().static() == {}
    file.write_text("[1]")
    assert VendorData(file).static() == {}
