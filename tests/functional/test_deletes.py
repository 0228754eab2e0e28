"""A delete wins in every phase, and a server that was promised is always to be found until it is deleted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.functional.cloud import Cloud, User, boot_from, boot_from_new, wait_for

BOOTS = 50


def _nothing_is_held(admin: User, server: str) -> None:
    def held() -> list[Any]:
        placement = admin.get(f"/allocations/{server}", service="placement")["allocations"]
        ports = admin.ports(server)
        path = f"/{admin.project}/attachments?all_tenants=1&instance_id={server}"
        attachments = admin.get(path, service="cinder")["attachments"]
        return [held for held in (placement, ports, attachments) if held]

    wait_for(lambda: not held(), what=f"nothing is held for {server}: {held()}", seconds=30)


@pytest.mark.parametrize("task", [None, "scheduling", "networking", "block_device_mapping", "spawning"])
def test_delete_while_building(cloud: Cloud, admin: User, demo: User, task: str | None) -> None:
    """Deleted as soon as it is seen in a phase (or, where that is over already, in the last one)."""
    more: dict[str, Any] = {"metadata": {"kilonova:delay": "spawn=60"}}
    if task == "block_device_mapping":
        more |= boot_from_new(cloud.image)
    server = demo.create(f"going-{task}", **more)
    if task is not None:
        wait_for(
            lambda: demo.show(server)["OS-EXT-STS:task_state"] in (task, "spawning"), what=f"it is {task}", every=0.01
        )
    demo.delete(server, 40)  # it does not wait for the guest to be made
    _nothing_is_held(admin, server)


def test_delete_of_a_server_in_error(demo: User, admin: User) -> None:
    server = demo.create("failed", metadata={"kilonova:fail": "spawn-abort"})
    demo.await_status(server, "ERROR")
    demo.delete(server)
    _nothing_is_held(admin, server)


def test_delete_over_a_stop_under_way(demo: User, admin: User) -> None:
    server = demo.boot("stopping", metadata={"kilonova:delay": "stop=4"})["id"]
    assert demo.act(server, "os-stop").status == 202
    wait_for(lambda: demo.show(server)["OS-EXT-STS:task_state"] == "powering-off", what="it stops")
    demo.delete(server)
    _nothing_is_held(admin, server)


def test_delete_twice_and_at_once(demo: User, admin: User) -> None:
    server = demo.boot("twice")["id"]
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda _: demo.call("DELETE", f"/servers/{server}").status, range(4)))
    assert set(codes) <= {204, 404}
    assert 204 in codes
    demo.await_gone(server)
    _nothing_is_held(admin, server)


@pytest.mark.timeout(180)
def test_a_server_is_never_missing_between_its_creation_and_its_delete(demo: User) -> None:
    """C-38: 50 boots side by side, each looked at as often as can be, on its own and in the list."""
    missing: list[str] = []
    stop = threading.Event()
    known: list[str] = []

    def watch(part: int) -> None:
        watcher = 0
        while not stop.is_set():
            for server in known[part::4]:
                answer = demo.call("GET", f"/servers/{server}")
                if answer.status != 200:
                    missing.append(f"{server}: {answer.status} {answer.message}")
            watcher += 1

    def boot(number: int) -> str:
        server = demo.create(f"many-{number}", networks="none")
        known.append(server)
        return server

    with ThreadPoolExecutor(12) as pool:
        watchers = [pool.submit(watch, part) for part in range(4)]
        made = list(pool.map(boot, range(BOOTS)))
        waiting = set(made)
        deadline = time.monotonic() + 120
        while waiting and time.monotonic() < deadline:
            listed = {s["id"]: s["status"] for s in demo.get("/servers/detail?name=many-")["servers"]}
            missing += [f"{server}: not in the list" for server in made if server not in listed]
            waiting -= {server for server, status in listed.items() if status == "ACTIVE"}
        stop.set()
        for watcher in watchers:
            watcher.result()
    assert missing == []
    assert waiting == set()
    for server in made:
        assert demo.call("DELETE", f"/servers/{server}").status == 204
    for server in made:
        demo.await_gone(server)


def test_delete_while_the_volume_is_still_reserved(demo: User) -> None:
    """N-17 (a): before it is scheduled, or just after."""
    volume = demo.bootable()
    server = demo.create("reserved", **boot_from(volume))
    demo.delete(server)
    demo.await_volume(volume, "available")
    assert demo.attachments(volume) == []
    demo.delete_volume(volume)
