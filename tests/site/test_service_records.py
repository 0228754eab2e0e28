"""The services tables: who stands where, who is up, and what may be asked of the oldest."""

from __future__ import annotations

import time
from typing import ClassVar, Protocol

import pytest
from sqlalchemy import create_engine, text

from kilonova.base.bus_local import LocalBus
from kilonova.base.errors import NewerPeerNeeded
from kilonova.base.rpc import client, since
from kilonova.conductor import caps
from kilonova.contracts import GENERATION
from kilonova.store.session import Database
from tests.site.site import DOWN_SECONDS, Site, wait_for


def rows(site: Site, name: str) -> set[tuple[str, str, int]]:
    engine = create_engine(site.urls[name])
    with engine.connect() as connection:
        found = connection.execute(text("SELECT s.binary, s.host, s.version FROM services s WHERE s.deleted = 0"))
        answer = {(row[0], row[1], row[2]) for row in found}
    engine.dispose()
    return answer


def test_every_program_stands_in_the_table_of_its_cell(site: Site) -> None:
    expected = {
        "nova_cell0": {
            ("nova-osapi_compute", "api"),
            ("nova-metadata", "metadata"),
            ("nova-scheduler", "scheduler"),
            ("nova-conductor", "super-a"),
            ("nova-conductor", "super-b"),
        },
        "nova_cell1": {
            ("nova-conductor", "cell1-a"),
            ("nova-conductor", "cell1-b"),
            ("nova-compute", "compute-1"),
            ("nova-compute", "compute-2"),
        },
        "nova_cell2": {("nova-conductor", "cell2-a"), ("nova-compute", "compute-3")},
    }
    for name, programs in expected.items():
        assert rows(site, name) == {(*program, GENERATION) for program in programs}, name


def test_the_list_shows_all_but_the_api(site: Site) -> None:
    shown = site.services()
    assert {key for key, found in shown.items() if found.state == "up"} == {
        *((("nova-conductor", host)) for host in ("super-a", "super-b", "cell1-a", "cell1-b", "cell2-a")),
        *((("nova-compute", host)) for host in ("compute-1", "compute-2", "compute-3")),
        ("nova-scheduler", "scheduler"),
    }
    zones = {found.availability_zone for (binary, _), found in shown.items() if binary == "nova-compute"}
    assert zones == {"nova"}
    assert shown["nova-scheduler", "scheduler"].availability_zone == "internal"


@pytest.mark.parametrize("name", ["compute-2", "cell1-b", "super-b", "scheduler"])
def test_who_ends_in_good_order_is_down_at_once(whole: Site, name: str) -> None:
    program = whole.programs[name]
    binary = {"compute-2": "nova-compute", "scheduler": "nova-scheduler"}.get(name, "nova-conductor")
    assert program.end() == 0, program.text[-2000:]
    begun = time.monotonic()
    wait_for(lambda: whole.services()[binary, name].state == "down", what=f"{name} is down", seconds=DOWN_SECONDS)
    assert time.monotonic() - begun < DOWN_SECONDS / 2


def test_who_is_killed_is_down_after_the_down_time(whole: Site) -> None:
    whole.programs["compute-2"].kill()
    begun = time.monotonic()
    assert whole.services()["nova-compute", "compute-2"].state == "up"
    wait_for(lambda: whole.services()["nova-compute", "compute-2"].state == "down", what="it is down", seconds=30)
    assert time.monotonic() - begun > DOWN_SECONDS - 1.5


class Newer(Protocol):
    """A contract that has grown."""

    topic: ClassVar[str] = "compute"
    version: ClassVar[str] = "1.1"

    def old(self) -> int: ...

    @since("1.1")
    def new(self) -> int: ...


def test_the_oldest_host_of_a_cell_decides_what_may_be_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caps, "COMPUTE_VERSIONS", {GENERATION: "1.0", GENERATION + 1: "1.1"})
    databases = {name: Database(site.urls[f"nova_{name}"], schema="cell") for name in site.cells}
    try:
        cap = caps.Caps(databases.__getitem__).compute("cell1")
        assert cap == "1.0"
        with pytest.raises(NewerPeerNeeded):
            client(Newer, LocalBus(), host="compute-1", cap=cap).new()
        assert caps.Caps(databases.__getitem__, fixed="1.1").compute("cell1") == "1.1"
        assert (caps.version_of(GENERATION + 5), caps.version_of(1)) == ("1.1", "1.0")
    finally:
        for database in databases.values():
            database.close()
