"""The life of a host: joining, standing in Placement, power, many hosts, leaving."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.compute.service import compute_service, wait_ready
from kilonova.virt.roles import RUNNING, SHUTDOWN, GuestPlan
from tests.contracts.driver_suite import a_guest
from tests.unit.compute.scene import Scene, until


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    yield scene
    scene.close()


def provider(scene: Scene) -> object:
    node = scene.host.standing.node()
    return scene.neighbours.placement.providers[node.uuid]


def test_a_host_that_is_ready_can_be_chosen(scene: Scene) -> None:
    assert scene.conductor.joins == ["sim-0001"]
    assert scene.conductor.asked_for_runs == ["sim-0001"]
    node = scene.conductor.nodes[0]
    record = scene.neighbours.placement.providers[node.uuid]
    assert record.name == "sim-0001"
    assert {"COMPUTE_NODE", "OWNER_NOVA"} <= record.traits
    assert record.inventory["VCPU"]["allocation_ratio"] == 4.0
    assert record.inventory["MEMORY_MB"]["reserved"] == 512
    found = scene.neighbours.placement.candidates([("resources", "VCPU:256,MEMORY_MB:1024,DISK_GB:1")])
    assert found.requests == []
    found = scene.neighbours.placement.candidates([("resources", "VCPU:64,MEMORY_MB:1024,DISK_GB:1")])
    assert list(found.summaries) == [node.uuid]


def test_an_operators_ratio_in_placement_stays(scene: Scene) -> None:
    record = provider(scene)
    record.inventory["VCPU"]["allocation_ratio"] = 16.0  # type: ignore[attr-defined]
    scene.host.standing.report()
    assert record.inventory["VCPU"]["allocation_ratio"] == 16.0  # type: ignore[attr-defined]


def test_a_configured_ratio_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path, cpu_allocation_ratio=1.5)
    assert scene.host.ready.wait(10)
    assert provider(scene).inventory["VCPU"]["allocation_ratio"] == 1.5  # type: ignore[attr-defined]
    assert scene.conductor.nodes[0].cpu_allocation_ratio == 1.5
    scene.close()


def test_a_disabled_host_says_so_in_placement(scene: Scene) -> None:
    scene.conductor.disabled = True
    scene.host._beat()
    assert "COMPUTE_STATUS_DISABLED" in provider(scene).traits  # type: ignore[attr-defined]
    scene.conductor.disabled = False
    scene.host._beat()
    assert "COMPUTE_STATUS_DISABLED" not in provider(scene).traits  # type: ignore[attr-defined]


def test_a_forgotten_host_joins_again(scene: Scene) -> None:
    scene.conductor.known = False
    scene.host._beat()
    assert scene.conductor.joins == ["sim-0001", "sim-0001"]


def test_it_waits_for_its_conductor_and_for_placement(tmp_path: Path) -> None:
    scene = Scene(tmp_path, serve_conductor=False)
    scene.neighbours.placement.orders.down = True
    assert not scene.host.ready.wait(0.3)
    scene.serve_conductor()
    until(lambda: scene.conductor.joins)
    assert not scene.host.ready.wait(0.1)
    scene.neighbours.placement.orders.down = False
    assert scene.host.ready.wait(10)
    assert scene.conductor.joins == ["sim-0001"]
    scene.close()


def test_changes_of_many_guests_are_told_at_once(scene: Scene) -> None:
    before = len(scene.conductor.nodes)
    for _ in range(10):
        scene.finish(scene.work(a_guest(project_id="project")))
    until(lambda: scene.conductor.nodes[-1].running_vms == 10)
    assert len(scene.conductor.nodes) - before < 5
    assert scene.conductor.nodes[-1].vcpus_used == 10


def test_guests_nobody_expects_are_removed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    kept, lost = a_guest(project_id="project"), a_guest(project_id="project")
    for guest in (kept, lost):
        scene.finish(scene.work(guest))
    scene.kill()
    scene.conductor.expected = {kept.server.uuid: "active"}
    scene.open()
    assert scene.host.ready.wait(10)
    assert scene.host.driver.guests() == {kept.server.uuid: RUNNING}
    assert scene.conductor.powers == []
    scene.close()


def test_guests_that_went_while_the_host_was_taken_for_dead_are_removed(scene: Scene) -> None:
    kept, lost = a_guest(project_id="project"), a_guest(project_id="project")
    for guest in (kept, lost):
        scene.finish(scene.work(guest))
    scene.conductor.forced_down = True
    scene.host._beat()
    scene.conductor.expected = {kept.server.uuid: "active"}
    scene.host._beat()
    assert scene.host.driver.guests().keys() == {kept.server.uuid, lost.server.uuid}
    scene.conductor.forced_down = False
    scene.host._beat()
    assert scene.host.driver.guests() == {kept.server.uuid: RUNNING}
    assert scene.conductor.asked_for_runs == ["sim-0001", "sim-0001"]


def test_powers_that_contradict_are_told_at_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    guest, other = a_guest(project_id="project"), a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.finish(scene.work(other))
    scene.host.driver.power_off(guest.server.uuid, grace=0)  # type: ignore[attr-defined]
    scene.kill()
    scene.conductor.expected = {guest.server.uuid: "active", other.server.uuid: "active"}
    scene.open()
    assert scene.host.ready.wait(10)
    until(lambda: scene.conductor.powers)
    assert scene.conductor.powers == [(guest.server.uuid, SHUTDOWN)]
    scene.close()


def test_a_guest_that_ends_of_itself(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.host.driver.happen(guest.server.uuid, SHUTDOWN)  # type: ignore[attr-defined]
    until(lambda: scene.conductor.powers == [(guest.server.uuid, SHUTDOWN)])
    scene.host.sync_powers()
    assert scene.conductor.powers == [(guest.server.uuid, SHUTDOWN)]


def test_the_power_sync_sees_what_no_event_told(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.host.driver.power_off(guest.server.uuid, grace=0)  # type: ignore[attr-defined]
    scene.host.sync_powers()
    until(lambda: scene.conductor.powers == [(guest.server.uuid, SHUTDOWN)])
    scene.host.driver.remove_guest(guest.server.uuid)
    scene.host.sync_powers()
    assert scene.conductor.powers == [(guest.server.uuid, SHUTDOWN)]


def test_a_stop_of_ours_is_no_event(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.finish(scene.work(guest, ("stop_guest",)))
    scene.host.sync_powers()
    assert scene.conductor.powers == []


def test_a_thousand_hosts_in_one_process(tmp_path: Path) -> None:
    before = threading.active_count()
    began = time.monotonic()
    scene = Scene(tmp_path, hosts=1000)
    assert wait_ready(scene.hosts, seconds=60) == []
    assert time.monotonic() - began < 30
    assert len(scene.neighbours.placement.providers) == 1000
    assert sorted(scene.conductor.joins) == sorted(host.host for host in scene.hosts)
    assert threading.active_count() - before < 60
    scene.close()


def test_a_service_of_hosts_leaves_in_good_order(tmp_path: Path) -> None:
    scene = Scene(tmp_path, hosts=3, start=False)
    service = compute_service(scene.hosts, scene.shared, drain_seconds=5)
    service.start()
    assert wait_ready(scene.hosts, seconds=10) == []
    guest = a_guest(project_id="project")
    scene.host.driver.ensure_guest(GuestPlan(guest=guest, nics=[], devices=[]))
    service.stop()
    until(lambda: sorted(scene.conductor.left) == ["sim-0001", "sim-0002", "sim-0003"])
    assert scene.host.driver.guests() == {guest.server.uuid: RUNNING}
    scene.close()


def test_an_unchanged_host_is_quiet(scene: Scene) -> None:
    scene.host.standing.report()
    told, asked = len(scene.conductor.nodes), list(scene.neighbours.placement.orders.calls)
    for _ in range(5):
        scene.host.standing.report()
    assert len(scene.conductor.nodes) == told
    assert scene.neighbours.placement.orders.calls[len(asked) :] == ["ensure_inventory", "ensure_traits"] * 5
    for _ in range(5):
        scene.host.standing.report()
    until(lambda: len(scene.conductor.nodes) == told + 1)


def test_strangers_may_be_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, running_deleted_instance_action="log")
    assert scene.host.ready.wait(10)
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.kill()
    scene.open()
    assert scene.host.ready.wait(10)
    assert scene.host.driver.guests() == {guest.server.uuid: RUNNING}
    scene.close()


def test_work_does_not_wait_behind_hosts_that_come_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    go_on = scene.neighbours.placement.orders.hang("ensure_inventory")
    late = [scene.late_host(f"late-{number}") for number in range(30)]
    assert scene.finish(scene.work(a_guest(project_id="project")))[-1] == ("spawn", True)
    assert not any(host.ready.is_set() for host in late)
    go_on.set()
    assert wait_ready(late, seconds=10) == []
    scene.close()
