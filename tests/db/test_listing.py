"""Lists of servers: every database and the records in Python give the same answer, page by page."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilonova.base.errors import BadRequest
from kilonova.core.flavor import Flavor
from kilonova.core.server import Server
from kilonova.store import servers
from kilonova.store.listing import Listing, merge, selected
from kilonova.store.session import Database
from tests.db.conftest import MakeUrl
from tests.db.records import FLAVOR, after, nic, server

BIG = Flavor(flavorid="big", name="m1.big", vcpus=8, memory_mb=8192)


def _population() -> list[Server]:
    """Servers with much in common, so that ties, nulls and differences in case all occur."""
    names = ["web1", "Web1", "web-2", "wéb", "db_1", "a.b", "web1 ", ""]
    states = [("active", None), ("active", "rebooting"), ("stopped", None), ("error", None)]
    hosts = [None, "h1", "H1", "h2"]
    found = []
    for number, (name, (vm_state, task_state), host) in enumerate(itertools.product(names, states, hosts)):
        found.append(
            server(
                uuid=f"{number:08x}-0000-4000-8000-{number:012x}",
                name=name,
                hostname=name.strip().lower(),
                project_id="p1" if number % 3 else "p2",
                user_id="u1" if number % 5 else "U1",
                vm_state=vm_state,
                task_state=task_state,
                host=host,
                power_state=number % 4,
                locked=number % 7 == 0,
                flavor=BIG if number % 4 == 0 else FLAVOR,
                key_name=None if number % 2 else f"key{number % 3}",
                created_at=after(number // 5),
                updated_at=after(number // 3 + 100) if number % 2 else None,
                launched_at=after(number // 4) if number % 3 else None,
                tags=[tag for tag, each in (("a", 2), ("b", 3), ("A", 5)) if number % each == 0],
                nics=[nic(f"10.0.0.{number % 40}", f"fd00::{number % 16:x}")] if number % 6 else [],
                hidden=number % 31 == 0,
            )
        )
    return found


POPULATION = _population()


@pytest.fixture(scope="module")
def populated(make_url: MakeUrl) -> Iterator[Database]:
    database = Database(make_url(), schema="cell")
    database.sync()
    database.write(lambda tx: [servers.insert(tx, each) for each in POPULATION])
    yield database
    database.close()


def found(database: Database, wanted: Listing) -> list[str]:
    with database.read() as tx:
        listed = servers.listing(tx, wanted)
        assert servers.uuids(tx, wanted) == [each.uuid for each in listed]
    return [each.uuid for each in listed]


def in_python(wanted: Listing) -> list[str]:
    return [each.uuid for each in selected(POPULATION, wanted)]


SORTS = ["name", "display_name", "created_at", "updated_at", "launched_at", "host", "task_state", "locked", "key_name"]
FILTERS: dict[str, list[list[str]]] = {
    "name": [["web"], ["^web1$"], ["WEB"], ["b.1"], ["1|2"], ["W[ée]b"], [""]],
    "hostname": [["^web1$"], ["nothing"]],
    "ip": [["10.0.0.1"], ["^10\\.0\\.0\\.1$"], ["\\.3$"]],
    "ip6": [["fd00::f"]],
    "key_name": [["key1"], ["KEY"]],
    "host": [["h1"], [""], ["h1", "h2"]],
    "vm_state": [["active"], ["active", "error"], ["Active"]],
    "task_state": [[""], ["rebooting"], ["", "rebooting"]],
    "user_id": [["u1"], ["U1"]],
    "flavor": [["big"], ["BIG"]],
    "power_state": [["1"], ["1", "3"], ["x"], ["99999999999"]],
    "locked": [["true"], ["False"], ["maybe"]],
    "launched_at": [[str(after(4))], ["2026-08-01T12:00:08Z"], ["yesterday"]],
    "tags": [["a"], ["a", "b"], ["A"]],
    "tags-any": [["a", "b"], ["A", "none"]],
    "not-tags": [["a", "b"], ["b"]],
    "not-tags-any": [["a", "b"], ["A"]],
}
filters = st.dictionaries(st.sampled_from(sorted(FILTERS)), st.integers(0, 6), max_size=3).map(
    lambda chosen: {name: FILTERS[name][number % len(FILTERS[name])] for name, number in chosen.items()}
)
sorts: Any = st.lists(
    st.tuples(st.sampled_from(SORTS), st.sampled_from(["asc", "desc"])), max_size=3, unique_by=lambda each: each[0]
)
moments = st.none() | st.integers(90, 160).map(after)
listings = st.builds(
    Listing,
    project_id=st.sampled_from([None, "p1", "P1"]),
    filters=filters,
    changes_since=moments,
    changes_before=moments,
    sort=sorts,
    limit=st.none() | st.integers(0, 20),
    marker=st.none() | st.sampled_from(POPULATION),
)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(wanted=listings)
def test_every_list_is_the_same_in_sql_and_in_python(populated: Database, wanted: Listing) -> None:
    assert found(populated, wanted) == in_python(wanted)


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_each_filter_finds_some_and_not_all(populated: Database, name: str) -> None:
    everything = found(populated, Listing())
    assert len(everything) == len([each for each in POPULATION if not each.hidden])
    for values in FILTERS[name]:
        wanted = Listing(filters={name: values})
        assert found(populated, wanted) == in_python(wanted), values
    some = found(populated, Listing(filters={name: FILTERS[name][0]}))
    assert 0 < len(some) < len(everything)


def test_regular_expressions_ignore_case_and_other_filters_do_not(populated: Database) -> None:
    def names(pattern: str) -> set[str]:
        with populated.read() as tx:
            return {each.name for each in servers.listing(tx, Listing(filters={"name": [pattern]}))}

    assert names("^WEB1$") == {"web1", "Web1"}
    assert names("EB-") == {"web-2"}
    assert names("^$") == {""}
    one, other, both = (found(populated, Listing(filters={"host": hosts})) for hosts in (["H1"], ["h1"], ["h1", "H1"]))
    assert one
    assert other
    assert sorted(one + other) == sorted(both)


@pytest.mark.parametrize("pattern", ["(", "*", "[a", "a{2,1}", "(?P<x>a)(?P=x)(?P>y)"])
def test_what_is_no_regular_expression_is_a_bad_request(populated: Database, pattern: str) -> None:
    with pytest.raises(BadRequest), populated.read() as tx:
        servers.listing(tx, Listing(filters={"name": [pattern]}))
    with populated.read() as tx:
        assert servers.listing(tx, Listing(limit=1))


@pytest.mark.parametrize(
    "sort", [[], [("host", "asc"), ("name", "desc")], [("task_state", "desc")], [("host", "desc")]]
)
def test_pages_of_two_cells_add_up_to_the_whole(populated: Database, sort: list[Any]) -> None:
    """The markers of one cell are used in the other: here the second is the records."""
    half = [each for number, each in enumerate(POPULATION) if number % 2]
    rest = {each.uuid for each in POPULATION} - {each.uuid for each in half}
    pages: list[str] = []
    marker = None
    while True:
        wanted = Listing(sort=sort, limit=7, marker=marker)
        with populated.read() as tx:
            one = [each for each in servers.listing(tx, Listing(sort=sort, marker=marker)) if each.uuid in rest][:7]
        page = merge([one, selected(half, wanted)], wanted)
        if not page:
            break
        pages += [each.uuid for each in page]
        marker = page[-1]
    assert pages == in_python(Listing(sort=sort))


def test_a_server_in_two_sources_counts_once() -> None:
    one = POPULATION[5]
    assert merge([[one], [one, POPULATION[6]]], Listing()) == selected([one, POPULATION[6]], Listing())


def test_the_deleted_do_not_slow_lists(populated: Database) -> None:
    """A list of the living begins in an index whose first column is ``deleted``."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "mysql": "EXPLAIN ", "postgresql": "EXPLAIN "}
    statement = (
        "SELECT uuid FROM instances WHERE hidden = {false} AND deleted = 0 AND project_id = 'p1' "
        "ORDER BY created_at DESC, uuid DESC LIMIT 10"
    )
    with populated.read() as tx:
        if tx.dialect == "postgresql":
            # A table this small is sorted sooner than its index is read, if nobody minds.
            tx.connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            tx.connection.exec_driver_sql("SET LOCAL enable_sort = off")
        false = "false" if tx.dialect == "postgresql" else "0"
        plan = tx.connection.exec_driver_sql(explain[tx.dialect] + statement.format(false=false)).all()
    assert "instances_deleted_" in str(plan), plan
    assert "TEMP B-TREE" not in str(plan)
    assert "filesort" not in str(plan)


def test_times_are_compared_as_utc(populated: Database) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=5))
    wanted = Listing(changes_since=after(130).astimezone(zone))
    assert found(populated, wanted) == in_python(Listing(changes_since=after(130))) != []
