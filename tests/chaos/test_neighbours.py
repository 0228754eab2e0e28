"""Neighbours down or slow: a request is answered 503, or the server's fault names who failed. Nothing leaks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos import books
from tests.functional.cloud import Cloud, User, boot_from, boot_from_new, wait_for

SHORT = "\n".join(
    f"[{name}]\ntimeout = 3\nconnect_retries = 1\n" for name in ("placement", "neutron", "cinder", "glance", "keystone")
)


@pytest.fixture(scope="module")
def cloud(make_cloud: Callable[..., Cloud]) -> Cloud:
    return make_cloud(SHORT)


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> User:
    return cloud.user()


@pytest.fixture(scope="module")
def admin(cloud: Cloud) -> User:
    return cloud.user("kilonova")


@pytest.fixture(autouse=True)
def _nothing_leaks(cloud: Cloud, demo: User, admin: User) -> Iterator[None]:
    """After every test: its servers are deleted, and then nobody holds anything."""
    yield
    left: list[str] = []

    def agree() -> bool:
        for server in admin.get("/servers?all_tenants=1")["servers"]:
            demo.call("DELETE", f"/servers/{server['id']}")
        found = books.read(cloud, admin, kept=[])
        for volume, status in found.volumes.items():
            if status == "available":
                admin.call("DELETE", f"/{admin.project}/volumes/{volume}", service="cinder")
        left[:] = [*found.servers, *books.differences(found)]
        return not left

    try:
        wait_for(agree, what="nothing is held", seconds=90, every=0.5)
    except AssertionError:
        raise AssertionError("\n".join(left)) from None


@pytest.mark.parametrize("name", ["neutron", "glance", "cinder"])
def test_a_create_is_refused_while_who_is_asked_first_is_silent(cloud: Cloud, demo: User, name: str) -> None:
    more = boot_from(demo.bootable()) if name == "cinder" else {}
    body = demo.wanted("silent", **more)
    demo.call("GET", "/servers")
    with cloud.frozen(name):
        begun = time.monotonic()
        refused = demo.call("POST", "/servers", body)
        took = time.monotonic() - begun
    assert refused.status == 503, refused
    assert name in refused.message.lower()
    assert took < 20
    assert demo.get("/servers?name=silent")["servers"] == []
    again = demo.post("/servers", body)["server"]["id"]
    demo.await_status(again, "ACTIVE")


@pytest.mark.parametrize("name", ["placement", "neutron", "cinder"])
def test_a_build_names_who_is_silent(cloud: Cloud, demo: User, admin: User, name: str) -> None:
    """Silent from the moment on that the create is taken, until something of the build has failed or it has ended."""
    more = boot_from_new(cloud.image) if name == "cinder" else {}
    server = demo.create("slow", **more)

    def settled() -> bool:
        found = demo.show(server)
        return found["OS-EXT-STS:task_state"] is None and found["status"] in ("ERROR", "ACTIVE")

    def failed() -> bool:
        return "unavailable" in json.dumps(admin.get(f"/servers/{server}/kilonova-trace"))

    with cloud.frozen(name):
        wait_for(lambda: settled() or failed(), what="a step has failed or all went well", seconds=60, every=0.2)
    wait_for(settled, what="the build ended", seconds=90, every=0.2)
    shown = demo.show(server)
    if shown["status"] == "ERROR":
        assert name in shown["fault"]["message"].lower()


def test_a_delete_waits_for_whom_it_needs(cloud: Cloud, demo: User) -> None:
    server = demo.boot("held-up")["id"]
    with cloud.frozen("neutron"):
        assert demo.call("DELETE", f"/servers/{server}").status == 204
        wait_for(lambda: demo.show(server)["OS-EXT-STS:task_state"] == "deleting", what="it is being deleted")
    demo.await_gone(server, 60)


def test_neighbours_killed_under_boots(cloud: Cloud, demo: User) -> None:
    """Each dies once while servers are built; the supervisor brings it back, and every server ends one way or other."""
    made: list[str] = []
    for name in ("neutron", "placement", "cinder"):
        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(
                lambda n, name=name: demo.call("POST", "/servers", demo.wanted(f"{name}-{n}")),  # type: ignore[misc]
                range(4),
            )
            os.kill(cloud.child(name), signal.SIGKILL)
            for answer in answers:
                assert answer.status in (202, 503), answer
                if answer.status == 202:
                    made.append(answer.body["server"]["id"])
        wait_for(
            lambda: " down " not in cloud.kilonova("status", "--state-dir", cloud.state).stdout,
            what="all neighbours are up again",
            every=0.5,
        )

    def ended() -> bool:
        return all(demo.show(server)["status"] in ("ERROR", "ACTIVE") for server in made)

    wait_for(ended, what="all builds ended", seconds=60, every=0.2)
    for server in made:
        shown = demo.show(server)
        assert shown["status"] == "ACTIVE" or shown["fault"]["message"]
