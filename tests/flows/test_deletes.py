"""A delete wins wherever it comes, and nothing is left; what crashes goes on."""

from __future__ import annotations

import pytest

from kilonova.base.errors import ServerNotFound
from kilonova.flows import delete
from kilonova.store import servers
from kilonova.virt.fake.orders import Order
from tests.flows.cloud import (
    Cloud,
    at_every_point,
    crashed,
    crashed_and_deleted,
    crashed_and_deleted_at_once,
    deleted_at_once,
    deleted_later,
)
from tests.flows.world import SERVER, World, record


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "LETTING_GO", 0.0)


def nothing_is_left(cloud: Cloud) -> None:
    """No server, room, port, attachment or guest; the mapping is marked or gone; nothing is kept of the request."""
    after = cloud.picture()
    assert after["claims"] == {}
    assert after["ports"] == [("None", "", "", "unbound", True)]
    assert after["volumes"] == [("data", "available", [])]
    assert not any(after["guests"].values()), after["guests"]
    assert after["requests"] == {}
    assert after["specs"] == []
    assert all(deleted for _, deleted in after["mappings"].values()), after["mappings"]
    shown = {kind: found for kind, found in after["servers"].items() if found}
    assert all(s["state"][0] == "deleted" and s["state"][3] for found in shown.values() for s in found.values()), shown
    # A server whose mapping names its cell is shown there to those who ask for deleted ones, with its delete.
    cell = after["mappings"].get(SERVER, (None,))[0]
    assert list(shown) == ([cell] if cell else [])
    if cell:
        assert ("delete", "done") in cloud.actions(kind=cell)
    assert not cloud.stories()


def it_runs(cloud: Cloud) -> None:
    """Active, once, on its host, with all that it holds and nothing more."""
    after = cloud.picture()
    (host,) = after["claims"][SERVER]
    assert after["guests"] == {h: {SERVER: 1} if h == host else {} for h in ("h1", "h2", "h3")}
    assert after["servers"]["cell"][SERVER]["state"] == ("active", None, 1, False)
    assert after["servers"]["cell"][SERVER]["host"][0] == host
    assert after["ports"] == [("0", SERVER, host, "bridge", False), ("None", SERVER, host, "bridge", True)]
    assert [(status, held) for _, status, held in after["volumes"]] == [("in-use", [(SERVER, "attached", host)])] * 2
    assert after["servers"]["cell0"] == {}
    assert after["requests"] == {}
    assert after["specs"] == [SERVER]
    assert cloud.actions() == [("create", "done")]


def being_scheduled() -> Cloud:
    cloud = Cloud(World.request)
    cloud.schedule(SERVER)
    return cloud


@pytest.mark.parametrize("when", [deleted_later, deleted_at_once, crashed_and_deleted, crashed_and_deleted_at_once])
def test_delete_at_every_point_of_a_boot(when: object) -> None:
    at_every_point(being_scheduled, when, judge=nothing_is_left)  # type: ignore[arg-type]


def test_a_boot_goes_on_after_a_crash_at_every_point() -> None:
    at_every_point(being_scheduled, crashed, judge=it_runs)


def running() -> Cloud:
    cloud = Cloud(World.build)
    cloud.delete()
    return cloud


def test_a_delete_goes_on_after_a_crash_at_every_point() -> None:
    at_every_point(running, crashed, judge=nothing_is_left)


def test_a_second_delete_at_every_point_of_the_first() -> None:
    def again(cloud: Cloud) -> None:
        try:
            cloud.delete()
        except ServerNotFound:
            assert cloud.databases["cell"].query(lambda tx: SERVER not in servers.many(tx, [SERVER]))

    at_every_point(running, again, judge=nothing_is_left)


def test_delete_with_the_host_down() -> None:
    """The server is gone at once; the guest, when the host is back."""
    cloud = Cloud(World.build)
    cloud.go_down("h1")
    cloud.delete()
    cloud.play()
    assert list(cloud.drivers["h1"].guests()) == [SERVER]
    cloud.join("h1")
    nothing_is_left(cloud)
    cloud.close()


def test_the_host_goes_down_at_every_point_of_a_delete() -> None:
    def host_goes_down(cloud: Cloud) -> None:
        cloud.go_down("h1")

    def judge(cloud: Cloud) -> None:
        cloud.join("h1")
        nothing_is_left(cloud)

    at_every_point(running, host_goes_down, judge=judge)


def in_cell0(world: World) -> None:
    world.enter(record(vm_state="error", task_state=None, volume_backed=True), world.reserve(), "cell0")


def test_delete_of_a_server_in_cell0_gives_its_volume_back() -> None:
    def make() -> Cloud:
        cloud = Cloud(in_cell0)
        cloud.delete()
        return cloud

    at_every_point(make, crashed, judge=nothing_is_left)


def test_a_delete_over_a_failed_build_finds_its_volumes() -> None:
    cloud = being_scheduled()
    cloud.orders.give(Order(method="spawn", fail=True, times=-1))
    cloud.play()
    assert cloud.picture()["servers"]["cell"][SERVER]["state"][0] == "error"
    cloud.delete()
    cloud.play()
    nothing_is_left(cloud)
    cloud.close()
