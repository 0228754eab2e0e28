"""Several servers in one request: hand-overs and burials that are interrupted at every point."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kilonova.api.servers import create
from kilonova.base.errors import ServerNotFound
from kilonova.flows import delete
from kilonova.store import build_requests, runs, servers
from kilonova.store.build_requests import BuildRequest
from tests.flows.cloud import Cloud, at_every_point, crashed
from tests.flows.world import HOSTS, SERVER, WHERE, World, node_uuid, record, spec

SECOND, THIRD = (f"5f5b7c1e-7d0e-4a58-8a67-3a1f6c3b9d0{n}" for n in (3, 4))
ALL = (SERVER, SECOND, THIRD)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "LETTING_GO", 0.0)


def three(world: World) -> None:
    for server in ALL:
        world.request(server, volumes=server == SERVER)


def three_being_scheduled() -> Cloud:
    cloud = Cloud(three)
    cloud.schedule(*ALL)
    return cloud


def nowhere() -> Cloud:
    """No host has room."""
    cloud = three_being_scheduled()
    for host in HOSTS:
        inventory = cloud.neighbours.placement.providers[node_uuid(host)].inventory
        inventory["MEMORY_MB"]["reserved"] = inventory["MEMORY_MB"]["total"]
    return cloud


def second_deleted(cloud: Cloud) -> None:
    cloud.delete(SECOND)
    cloud.others_drive()


def second_deleted_and_crashed(cloud: Cloud) -> None:
    cloud.delete(SECOND)
    cloud.others_drive()
    cloud.crash()


def two_run(cloud: Cloud) -> None:
    _run(cloud, SERVER, THIRD)
    assert all(s["state"][3] for uuid, s in cloud.picture()["servers"]["cell"].items() if uuid == SECOND)


def three_run(cloud: Cloud) -> None:
    _run(cloud, *ALL)


def _run(cloud: Cloud, *living: str) -> None:
    after = cloud.picture()
    assert after["claims"].keys() == set(living)
    assert {guest for guests in after["guests"].values() for guest in guests} == set(living)
    assert {port[1] for port in after["ports"]} - {""} == set(living)
    assert {uuid for uuid, (_, deleted) in after["mappings"].items() if not deleted} == set(living)
    for uuid in living:
        assert after["servers"]["cell"][uuid]["state"] == ("active", None, 1, False)
        assert cloud.actions(uuid) == [("create", "done")]
    assert after["servers"]["cell0"] == {}
    assert after["requests"] == {}
    assert after["specs"] == sorted(living)


@pytest.mark.parametrize("when", [second_deleted, second_deleted_and_crashed])
def test_one_of_three_is_deleted_at_every_point(when: object) -> None:
    at_every_point(three_being_scheduled, when, judge=two_run, until=_second_runs)  # type: ignore[arg-type]


def _second_runs(name: str) -> bool:
    return name.startswith("spawn")


def test_three_are_handed_over_in_spite_of_a_crash_at_every_point() -> None:
    at_every_point(three_being_scheduled, crashed, judge=three_run, until=_second_runs)


def _buried(cloud: Cloud, *dead: str) -> None:
    after = cloud.picture()
    assert after["servers"]["cell"] == {}
    living = {uuid: s for uuid, s in after["servers"]["cell0"].items() if not s["state"][3]}
    assert living.keys() == set(dead)
    for uuid, found in living.items():
        assert found["state"] == ("error", None, 0, False)
        assert found["host"] == (None, None, None)
        assert found["fault"] is not None
        assert found["fault"][0] == 500
        assert found["fault"][1].startswith("No valid host was found. "), found["fault"]
        assert after["mappings"][uuid] == ("cell0", False)
        assert cloud.actions(uuid, kind="cell0") == [("create", "undone")]
        assert _events(cloud, uuid) == [("conductor_schedule_and_build_instances", "failed")]
    assert {uuid for uuid, (_, deleted) in after["mappings"].items() if not deleted} == set(dead)
    assert after["claims"] == {}
    assert after["requests"] == {}
    assert not any(after["guests"].values())
    if SERVER in dead:
        assert after["volumes"] == [("data", "reserved", [(SERVER, "reserved", None)])]


def _events(cloud: Cloud, server: str) -> list[tuple[str, str]]:
    ((_, log),) = cloud.databases["cell0"].query(lambda tx: runs.runs(tx, subject=server))
    return [(event.public, event.what.value) for event in log if event.what.value != "started"]


def test_servers_that_find_no_host_are_buried() -> None:
    cloud = nowhere()
    cloud.play()
    _buried(cloud, *ALL)
    cloud.close()


def test_a_burial_goes_on_after_a_crash_at_every_point() -> None:
    at_every_point(nowhere, crashed, judge=lambda cloud: _buried(cloud, *ALL))


@pytest.mark.parametrize("when", [second_deleted, second_deleted_and_crashed])
def test_one_of_three_is_deleted_at_every_point_of_their_burial(when: object) -> None:
    at_every_point(nowhere, when, judge=lambda cloud: _buried(cloud, SERVER, THIRD))  # type: ignore[arg-type]


def test_a_claim_for_a_server_that_was_deleted_just_before_is_given_back() -> None:
    """Its delete has released its room before the scheduler claims it, whose asker dies over the answer."""
    first = three_being_scheduled()
    first.play()
    first.close()
    asked = first.seen.index("placement.candidates") + 1
    answered = first.seen.index("before a write to api", first.seen.index("placement.claim_many")) + 1
    cloud = three_being_scheduled()
    cloud.at = {asked: second_deleted, answered: crashed}
    cloud.play()
    two_run(cloud)
    cloud.close()


def test_a_create_that_is_taken_back_at_every_point() -> None:
    """As the API does when it finds that it has let more in than the quota allows."""

    def taken_back(cloud: Cloud) -> None:
        wanted = [BuildRequest(server=record(uuid), request=spec()) for uuid in ALL]
        cloud.withdrawn = create._withdraw(SimpleNamespace(services=cloud), wanted)

    def taken_back_and_crashed(cloud: Cloud) -> None:
        taken_back(cloud)
        cloud.crash()

    def judge(cloud: Cloud) -> None:
        if not cloud.withdrawn:
            three_run(cloud)
            return
        after = cloud.picture()
        assert after["claims"] == after["mappings"] == after["requests"] == after["servers"]["cell"] == {}
        assert after["specs"] == []
        assert not any(after["guests"].values())

    at_every_point(three_being_scheduled, taken_back, taken_back_and_crashed, judge=judge, until=_second_runs)


def test_a_rename_at_every_point_is_kept() -> None:
    """As the API does it: in the build request while it waits, else in the cell."""

    def rename(cloud: Cloud) -> None:
        found = cloud.cells.find(SECOND)
        if found.request is not None and cloud.databases["api"].write(
            lambda tx: _waits(tx) and build_requests.update_server(tx, record(SECOND, name="renamed"))
        ):
            return
        cell = next(kind for kind, uuid in WHERE.items() if uuid == cloud.cells.find(SECOND).cell)
        cloud.databases[cell].write(lambda tx: servers.update(tx, SECOND, name="renamed"))

    def rename_and_crash(cloud: Cloud) -> None:
        rename(cloud)
        cloud.crash()

    def judge(cloud: Cloud) -> None:
        three_run(cloud)
        assert cloud.databases["cell"].query(lambda tx: servers.get(tx, SECOND)).name == "renamed"

    at_every_point(three_being_scheduled, rename, rename_and_crash, judge=judge, until=_second_runs)


def _waits(tx: object) -> bool:
    try:
        build_requests.get(tx, SECOND)  # type: ignore[arg-type]
    except ServerNotFound:
        return False
    return True
