"""Cells: where a server is, and what a cell that is down or frozen costs the others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kilonova.base.errors import BadRequest, Conflict, DatabaseUnavailable, NotFound, ServerNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.server import Server
from kilonova.store import build_requests, instance_mappings, servers
from kilonova.store.cells import CELL0_UUID, CellMapping, Cells
from kilonova.store.listing import Listing
from kilonova.store.session import Database, Tx
from tests.db.conftest import MakeUrl
from tests.db.records import NOW, active, build_request, fresh, server
from tests.db.test_session import frozen


def mapping(url: str, name: str = "cell", **more: str) -> CellMapping:
    return CellMapping(**({"uuid": fresh(), "name": name, "transport_url": "none:///", "database_url": url} | more))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def mappings(make_url: MakeUrl) -> list[CellMapping]:
    """cell0 and two cells, whose databases are made; all tests put servers of their own into them."""
    made = [mapping(make_url(), "cell0", uuid=CELL0_UUID), mapping(make_url(), "one"), mapping(make_url(), "two")]
    for each in made:
        database = Database(each.database_url, schema="cell")
        database.sync()
        database.close()
    return made


@pytest.fixture
def cells(api: Database, mappings: list[CellMapping]) -> Iterator[Cells]:
    def open_database(wanted: CellMapping) -> Database:
        return Database(wanted.database_url, schema="cell", name=wanted.name, reach=0.3)

    made = Cells(api, timeout=20, open_database=open_database)
    for each in mappings:
        made.add(each)
    yield made
    made.close()


@pytest.fixture
def one(cells: Cells) -> str:
    return next(each.uuid for each in cells.all() if each.name == "one")


def move(cells: Cells, wanted: Server, cell: str) -> None:
    """As the conductor does: the cell's row, then the mapping and the request in one transaction."""
    cells.database(cell).write(lambda tx: servers.insert(tx, wanted))

    def hand_over(tx: Tx) -> None:
        instance_mappings.set_cell(tx, wanted.uuid, cell)
        assert build_requests.delete(tx, wanted.uuid)

    cells.api.write(hand_over)


def enter(cells: Cells, wanted: Server) -> None:
    cells.api.write(lambda tx: build_requests.insert(tx, build_request(wanted)))


def test_the_cells_are_known(cells: Cells, one: str) -> None:
    assert [each.name for each in cells.all()] == ["cell0", "one", "two"]
    assert cells.cell0.uuid == CELL0_UUID
    changed = mapping("sqlite:////nowhere/x.db", "uno", uuid=one)
    changed.disabled = True
    cells.update(changed)
    assert [each.name for each in cells.all()] == ["cell0", "two"]
    assert [each.name for each in cells.all(disabled=True)] == ["cell0", "uno", "two"]
    with pytest.raises(Conflict):
        cells.add(changed)
    cells.remove(one)
    for use in (lambda: cells.database(one), lambda: cells.remove(one), lambda: cells.update(changed)):
        with pytest.raises(NotFound):
            use()


def test_a_cell_that_another_process_adds_is_found(cells: Cells, make_url: MakeUrl) -> None:
    added = mapping(make_url(), "three")
    Cells(cells.api).add(added)
    assert cells.get(added.uuid) == added


def test_hosts(cells: Cells, one: str) -> None:
    host = fresh("h")
    assert cells.host_mapping(host) is None
    cells.map_host(host, one)
    cells.map_host(host, one)
    assert cells.host_mapping(host) == one
    assert cells.host_mappings(one) == cells.host_mappings() == {host: one}
    with pytest.raises(Conflict, match="hosts"):
        cells.remove(one)
    assert cells.unmap_host(host)
    assert not cells.unmap_host(host)


def test_a_server_is_found_from_its_request_to_its_end(cells: Cells, one: str) -> None:
    wanted = server()
    with pytest.raises(ServerNotFound):
        cells.find(wanted.uuid)
    enter(cells, wanted)
    found = cells.find(wanted.uuid)
    assert (found.server, found.cell) == (wanted, "")
    assert found.request is not None
    assert cells.mapping(wanted.uuid) == instance_mappings.InstanceMapping(
        server=wanted.uuid, project_id="project", user_id="user", created_at=NOW
    )
    with cells.api.read() as tx:
        assert instance_mappings.count(tx, "project") == 1
    move(cells, wanted, one)
    found = cells.find(wanted.uuid)
    assert (found.server.uuid, found.cell, found.request) == (wanted.uuid, one, None)
    with pytest.raises(Conflict, match="servers"):
        cells.remove(one)
    cells.database(one).write(lambda tx: servers.mark_deleted(tx, wanted.uuid, NOW))
    cells.api.write(lambda tx: instance_mappings.mark_deleted(tx, wanted.uuid))
    with pytest.raises(ServerNotFound):
        cells.find(wanted.uuid)
    assert cells.find(wanted.uuid, deleted=True).server.deleted
    with cells.api.read() as tx:
        assert instance_mappings.count(tx, "project") == 0


def test_devices_come_with_the_server(cells: Cells, one: str) -> None:
    wanted = active()
    device = BlockDevice(uuid=fresh(), source_type="image", destination_type="local")
    enter(cells, wanted)
    cells.database(one).write(lambda tx: servers.insert(tx, wanted, [device]))
    cells.api.write(lambda tx: instance_mappings.set_cell(tx, wanted.uuid, one))
    assert cells.find(wanted.uuid).devices == [device]


def test_build_requests(api_shared: Database) -> None:
    project = fresh("p")
    wanted = [server(project_id=project, name=name) for name in ("b", "a", "c")]
    for each in wanted:
        api_shared.write(lambda tx, each=each: build_requests.insert(tx, build_request(each)))  # type: ignore[misc]
    with pytest.raises(Conflict):
        api_shared.write(lambda tx: build_requests.insert(tx, build_request(wanted[0])))
    wanted[0].description = "changed"
    assert api_shared.write(lambda tx: build_requests.update_server(tx, wanted[0]))
    with api_shared.read() as tx:
        found = build_requests.get(tx, wanted[0].uuid)
        assert (found.server, found.admin_password) == (wanted[0], "hunter2")
        assert [each.server.name for each in build_requests.listing(tx, project)] == ["b", "a", "c"]
        sort = Listing(sort=[("name", "asc")], filters={"name": ["a|b"]}, project_id=project)
        assert [each.server.name for each in build_requests.listing(tx, project, wanted=sort)] == ["a", "b"]
    assert api_shared.write(lambda tx: build_requests.delete(tx, wanted[0].uuid))
    assert not api_shared.write(lambda tx: build_requests.delete(tx, wanted[0].uuid))
    assert not api_shared.write(lambda tx: build_requests.update_server(tx, wanted[0]))
    with api_shared.read() as tx, pytest.raises(ServerNotFound):
        build_requests.get(tx, wanted[0].uuid)


def test_a_server_is_never_missed_while_it_moves(cells: Cells, one: str) -> None:
    moving = [server() for _ in range(40)]
    for each in moving:
        enter(cells, each)
    ended, failures = threading.Event(), []

    def look() -> None:
        while not ended.is_set():
            for each in moving:
                try:
                    cells.find(each.uuid)
                except Exception as error:
                    failures.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for each in moving:
        move(cells, each, one)
    ended.set()
    looking.join(60)
    assert failures == []


def test_who_looked_too_early_looks_once_more(cells: Cells, one: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server moves, and is marked, between the look at the API database and the one at the cell."""
    wanted = server()
    enter(cells, wanted)
    cells.api.write(lambda tx: instance_mappings.set_cell(tx, wanted.uuid, one))
    cells.api.write(lambda tx: build_requests.delete(tx, wanted.uuid))
    ask, looks = cells.ask, []

    def first_too_early(cell: str, fn: Callable[[Tx], object]) -> object:
        answer = ask(cell, fn)
        looks.append(answer)
        if len(looks) == 1:
            cells.database(one).write(lambda tx: servers.insert(tx, wanted))
        return answer

    monkeypatch.setattr(cells, "ask", first_too_early)
    assert cells.find(wanted.uuid).cell == one
    assert looks[0] is None


def test_gathering(cells: Cells, one: str) -> None:
    project = fresh("p")
    cells.database(one).write(lambda tx: servers.insert(tx, active(project_id=project)))
    gathered = cells.gather(lambda tx: len(servers.listing(tx, Listing(project_id=project))))
    assert gathered.down == {}
    assert sorted(gathered.found.values()) == [0, 0, 1]
    assert cells.gather(lambda tx: 1, cells=[one]).found == {one: 1}
    with pytest.raises(BadRequest):
        cells.gather(lambda tx: servers.listing(tx, Listing(filters={"name": ["("]})))


def test_a_cell_that_is_down_is_named_and_the_others_answer(cells: Cells) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for scheme in ("mysql", "postgresql"):
            cells.add(mapping(f"{scheme}://u:hunter2@127.0.0.1:{port}/x", f"down-{scheme}"))
        gathered = cells.gather(lambda tx: True)
        names = {cells.get(uuid).name: reason for uuid, reason in gathered.down.items()}
        assert set(names) == {"down-mysql", "down-postgresql"}
        assert "hunter2" not in str(names)
        assert len(gathered.found) == 3
        lost = server()
        enter(cells, lost)
        down = next(iter(gathered.down))
        cells.api.write(lambda tx: instance_mappings.set_cell(tx, lost.uuid, down))
        with pytest.raises(DatabaseUnavailable, match="down-"):
            cells.find(lost.uuid)
        with cells.api.read() as tx:
            assert [each.server for each in instance_mappings.listing(tx, cell=down)] == [lost.uuid]


def test_a_cell_that_never_answers_costs_no_more_than_the_limit(cells: Cells) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        port = silent.getsockname()[1]
        cells.add(mapping(f"mysql://u:p@127.0.0.1:{port}/x", "silent"))
        for _ in range(3):
            began = time.monotonic()
            gathered = cells.gather(lambda tx: True, timeout=1.0)
            assert time.monotonic() - began < 3.0
            assert len(gathered.found) == 3
            assert list(gathered.down.values()) == ["silent gave no answer in 1 s"]


def test_a_server_that_freezes_costs_no_more_than_the_limit(
    kind: str, cells: Cells, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        pytest.skip("a file does not freeze")
    path = tmp_path_factory.mktemp("local") / "local.db"
    local = Cells(Database(f"sqlite:///{path}", schema="api"), timeout=1.0)
    local.api.sync()
    for each in cells.all():
        local.add(each)
    near = mapping(f"sqlite:///{path}.cell", "near")
    local.add(near)
    local.database(near.uuid).sync()
    assert len(local.gather(lambda tx: servers.listing(tx, Listing()), timeout=20).found) == 4
    with frozen(request.getfixturevalue(f"{kind}_server")):
        began = time.monotonic()
        gathered = local.gather(lambda tx: len(servers.listing(tx, Listing(limit=1))))
        assert time.monotonic() - began < 3.0
        assert gathered.found == {near.uuid: 0}
        assert len(gathered.down) == 3
    deadline = time.monotonic() + 30
    while local.gather(lambda tx: True).down and time.monotonic() < deadline:
        time.sleep(0.05)
    assert local.gather(lambda tx: True, timeout=20).down == {}
    local.close()


def test_what_waits_for_a_silent_cell_does_not_pile_up(cells: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        port = silent.getsockname()[1]
        cells.add(mapping(f"mysql://u:p@127.0.0.1:{port}/x", "silent"))
        monkeypatch.setattr("kilonova.store.gather._AT_ONCE", 1)
        silent_first = [cells.all()[-1].uuid, *(each.uuid for each in cells.all()[:-1])]
        gathered = [cells.gather(lambda tx: True, cells=silent_first, timeout=1.5) for _ in range(2)]
        reasons = [next(iter(each.down.values())) for each in gathered]
        assert reasons == ["silent gave no answer in 1.5 s", "too many requests wait for silent"]
        assert all(len(each.found) == 3 for each in gathered)
