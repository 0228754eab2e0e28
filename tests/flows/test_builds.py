"""Builds with alternates: one host fails, all fail, and failures that no other host would mend."""

from __future__ import annotations

import pytest

from kilonova.base.errors import BuildAborted
from kilonova.flows import delete
from kilonova.virt.fake.orders import Order
from tests.flows.cloud import Cloud, at_every_point, crashed, deleted_at_once
from tests.flows.test_deletes import it_runs, nothing_is_left
from tests.flows.world import SERVER, World


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "LETTING_GO", 0.0)


def failing(*, times: int, error: Exception | None = None) -> Cloud:
    """The first ``times`` hosts that are to make the guest fail at it."""
    cloud = Cloud(World.request)
    if times:
        cloud.orders.give(Order(method="spawn", fail=True, times=times, error=error))
    cloud.schedule(SERVER)
    return cloud


def it_failed(cloud: Cloud) -> None:
    """In ERROR with the fault; it holds its volumes for its delete, and nothing else."""
    after = cloud.picture()
    mine = after["servers"]["cell"][SERVER]
    assert mine["state"] == ("error", None, 0, False)
    assert mine["host"] == (None, None, None)
    assert after["claims"] == {}
    assert after["ports"] == [("None", "", "", "unbound", True)]
    assert not any(after["guests"].values())
    assert ("data", "reserved", [(SERVER, "reserved", None)]) in after["volumes"]
    assert after["requests"] == {}
    assert cloud.actions() == [("create", "undone")]


def test_an_alternate_takes_over() -> None:
    cloud = failing(times=1)
    cloud.play()
    it_runs(cloud)
    cloud.close()


def test_all_hosts_fail() -> None:
    cloud = failing(times=-1)
    cloud.play()
    it_failed(cloud)
    code, message = cloud.picture()["servers"]["cell"][SERVER]["fault"]
    assert code == 500
    assert message.startswith(
        "Exceeded maximum number of retries. Exhausted all hosts available for retrying build "
    ), message
    assert sum(name.startswith("spawn on") for name in cloud.seen) == 3
    cloud.close()


def test_what_no_host_would_mend_is_not_tried_again() -> None:
    cloud = failing(times=-1, error=BuildAborted(server=SERVER, reason="the image is no image"))
    cloud.play()
    it_failed(cloud)
    assert sum(name.startswith("spawn on") for name in cloud.seen) == 1
    code, message = cloud.picture()["servers"]["cell"][SERVER]["fault"]
    assert (code, message) == (500, f"Build of instance {SERVER} aborted: the image is no image")
    cloud.close()


def test_a_host_that_dies_over_a_build_is_followed_by_another() -> None:
    """At every point of the first host's work; whatever it left there goes when it joins again."""

    def its_host_dies(cloud: Cloud) -> None:
        host = next(iter(cloud.picture()["claims"].get(SERVER, {"h3": None})))
        cloud.go_down(host)

    def judge(cloud: Cloud) -> None:
        for host in list(cloud.down):
            cloud.join(host)
        it_runs(cloud) if cloud.picture()["servers"]["cell"][SERVER]["state"][0] == "active" else it_failed(cloud)

    at_every_point(lambda: failing(times=0), its_host_dies, judge=judge)


def test_a_retried_build_goes_on_after_a_crash_at_every_point() -> None:
    at_every_point(lambda: failing(times=1), crashed, judge=it_runs)


def test_delete_at_every_point_of_a_build_that_fails_everywhere() -> None:
    at_every_point(lambda: failing(times=-1), deleted_at_once, judge=nothing_is_left)
