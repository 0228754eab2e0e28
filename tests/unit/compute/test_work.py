"""A host and its work: order, failures, duplicates, reports that get lost, deletes in the middle, restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.base.errors import BadRequest
from kilonova.base.flow import Report
from kilonova.virt.fake.orders import Order
from kilonova.virt.roles import RUNNING, SHUTDOWN
from tests.contracts.driver_suite import a_guest
from tests.unit.compute.scene import UNDO, Scene, until


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    assert scene.host.ready.wait(10)
    yield scene
    scene.close()


def test_a_build_in_order(scene: Scene) -> None:
    guest = a_guest(project_id="project", availability_zone="zone-1")
    work = scene.work(guest)
    assert scene.finish(work) == [("plug_ports", True), ("attach_volumes", True), ("spawn", True)]
    server = guest.server.uuid
    reports = {report.step: report for report in scene.conductor.reports}
    assert reports["plug_ports"].output["nics"][0]["created"] is True
    assert reports["spawn"].output == {"power_state": RUNNING, "root_device_name": "/dev/vda"}
    assert {(r.host, r.where, r.attempt, r.undo) for r in reports.values()} == {("sim-0001", "cell-1", 0, False)}
    assert scene.host.driver.guests() == {server: RUNNING}
    ports = scene.neighbours.neutron.ports(device_id=server)
    assert [(p["device_owner"], p["binding:host_id"]) for p in ports] == [("compute:zone-1", "sim-0001")]


def test_a_build_asks_the_neighbours_once_each(scene: Scene) -> None:
    before = list(scene.neighbours.placement.orders.calls)
    scene.finish(scene.work(a_guest(project_id="project")))
    assert scene.neighbours.neutron.orders.calls == ["ensure_ports"]
    assert scene.neighbours.cinder.orders.calls == []
    assert scene.neighbours.glance.orders.calls == []
    assert scene.neighbours.placement.orders.calls == before


def test_no_networks(scene: Scene) -> None:
    assert scene.finish(scene.work(a_guest(), networks=False))[-1] == ("spawn", True)
    assert scene.neighbours.neutron.orders.calls == []


def test_the_first_failure_stops_it_and_the_way_back_clears_up(scene: Scene) -> None:
    guest = a_guest(project_id="project", metadata={"kilonova:fail": "spawn"})
    work = scene.work(guest)
    assert scene.finish(work) == [("plug_ports", True), ("attach_volumes", True), ("spawn", False)]
    error = scene.conductor.reports[-1].error
    assert error is not None
    assert (error.kind, error.facts["server"]) == ("BuildFailed", guest.server.uuid)
    scene.finish(scene.work(guest, UNDO, run=work.run, undo=True))
    until(lambda: len(scene.conductor.told(work.run)) == 6)
    assert scene.host.driver.guests() == {}
    assert scene.neighbours.neutron.records == {}
    until(lambda: scene.conductor.nodes[-1].failed_builds == 1)


@pytest.mark.parametrize(
    "error, kind", [(None, "BuildFailed"), (BadRequest("No fixed IP addresses available"), "BuildAborted")]
)
def test_whether_another_host_would_do(scene: Scene, error: BadRequest | None, kind: str) -> None:
    scene.neighbours.neutron.orders.fail("ensure_ports", error=error)
    assert scene.finish(scene.work(a_guest(project_id="project"))) == [("plug_ports", False)]
    found = scene.conductor.reports[-1].error
    assert found is not None
    assert found.kind == kind
    assert ("neutron" in found.message) or ("No fixed IP" in found.message)


def test_an_unknown_step_and_a_state_that_does_not_suit(scene: Scene) -> None:
    guest = a_guest()
    assert scene.finish(scene.work(guest, ("perform",))) == [("perform", False)]
    assert scene.finish(scene.work(guest, ("explode",))) == [("explode", False)]
    odd = scene.work(guest, ("stop_guest",))
    odd.state["guest"] = "none"
    assert scene.finish(odd) == [("stop", False)]
    error = scene.conductor.reports[-1].error
    assert error is not None
    assert (error.kind, error.code) == ("BadRequest", 400)


def test_work_under_way_is_not_begun_twice(scene: Scene) -> None:
    go_on = threading.Event()
    scene.orders.give(Order(method="spawn", until=go_on))
    work = scene.work(a_guest(project_id="project"))
    scene.perform(work)
    until(lambda: len(scene.conductor.told(work.run)) == 2)
    for steps in (work.steps, work.steps[2:]):
        scene.compute().perform(work=type(work)(**{**_fields(work), "steps": steps}))
    go_on.set()
    until(lambda: not scene.host.desk.open)
    assert scene.conductor.told(work.run) == [("plug_ports", True), ("attach_volumes", True), ("spawn", True)]
    assert scene.neighbours.neutron.orders.calls == ["ensure_ports"]


def test_done_work_that_comes_again_ends_the_same(scene: Scene) -> None:
    work = scene.work(a_guest(project_id="project"))
    first = scene.finish(work)
    scene.perform(work)
    until(lambda: scene.conductor.told(work.run) == first * 2)
    assert len(scene.neighbours.neutron.records) == 1
    assert len(scene.host.driver.guests()) == 1


def test_a_failed_step_may_come_again_at_once(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    scene.orders.give(Order(method="destroy", fail=True))
    delete = scene.work(guest, ("destroy_guest",))
    heard = scene.conductor.report

    def report_and_send_again(*, report: Report) -> bool:
        if report.error is not None:
            scene.perform(delete)
        return heard(report=report)

    scene.conductor.report = report_and_send_again  # type: ignore[method-assign]
    scene.perform(delete)
    until(lambda: scene.conductor.told(delete.run) == [("destroy", False), ("destroy", True)])
    assert scene.host.driver.guests() == {}


def test_reports_outlive_a_silent_conductor(scene: Scene) -> None:
    scene.conductor.deaf = 3
    work = scene.work(a_guest(project_id="project"))
    assert scene.finish(work) == [("plug_ports", True), ("attach_volumes", True), ("spawn", True)]
    assert scene.neighbours.neutron.orders.calls == ["ensure_ports"]


def test_a_report_nobody_waits_for_stops_the_work(scene: Scene) -> None:
    work = scene.work(a_guest(project_id="project"))
    scene.conductor.refused.add(work.run)
    assert scene.finish(work) == [("plug_ports", True)]
    assert scene.host.driver.guests() == {}


def test_a_delete_interrupts_a_build(scene: Scene) -> None:
    guest = a_guest(project_id="project", metadata={"kilonova:delay": "spawn=300"})
    build = scene.work(guest)
    scene.perform(build)
    until(scene.host.driver.guests)
    delete = scene.work(guest, ("destroy_guest",))
    scene.compute().forget(run=build.run)
    assert scene.finish(delete) == [("destroy", True)]
    assert scene.host.driver.guests() == {}
    assert ("spawn", True) not in scene.conductor.told(build.run)


def test_late_work_of_a_run_that_is_over_does_nothing(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    build = scene.work(guest)
    scene.finish(build)
    scene.finish(scene.work(guest, ("destroy_guest",)))
    scene.perform(build)
    scene.finish(scene.work(a_guest(), networks=False))
    assert guest.server.uuid not in scene.host.driver.guests()
    assert len(scene.conductor.told(build.run)) == 3


def test_the_way_back_gives_up_the_way_forth(scene: Scene) -> None:
    guest = a_guest(project_id="project", metadata={"kilonova:delay": "spawn=300"})
    build = scene.work(guest)
    scene.perform(build)
    until(scene.host.driver.guests)
    scene.perform(scene.work(guest, UNDO, run=build.run, undo=True))
    until(lambda: len(scene.conductor.told(build.run)) == 5)
    scene.perform(build)
    until(lambda: not scene.host.desk.open)
    assert scene.host.driver.guests() == {}
    assert scene.neighbours.neutron.records == {}


def test_servers_do_not_wait_for_each_other(scene: Scene) -> None:
    slow = scene.work(a_guest(project_id="project", metadata={"kilonova:delay": "spawn=300"}))
    scene.perform(slow)
    assert scene.finish(scene.work(a_guest(project_id="project")))[-1] == ("spawn", True)
    scene.compute().forget(run=slow.run)
    until(lambda: not scene.host.desk.open)


def test_a_kill_in_the_middle_of_a_spawn_is_mended(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    never = threading.Event()
    scene.orders.give(Order(method="spawn", until=never))
    build = scene.work(guest)
    scene.perform(build)
    until(scene.host.driver.guests)
    killed = scene.host
    scene.kill()
    scene.conductor.expected = {guest.server.uuid: "building"}
    scene.open()
    assert scene.host.ready.wait(10)
    scene.perform(build)
    until(lambda: ("spawn", True) in scene.conductor.told(build.run))
    assert scene.host.driver.guests() == {guest.server.uuid: RUNNING}
    assert len(scene.neighbours.neutron.records) == 1
    killed.desk.forget(build.run)


def test_power(scene: Scene) -> None:
    guest = a_guest(project_id="project")
    scene.finish(scene.work(guest))
    for method, power in (("stop_guest", SHUTDOWN), ("start_guest", RUNNING), ("reboot_guest", RUNNING)):
        scene.finish(scene.work(guest, (method,), hard=True))
        assert scene.conductor.reports[-1].output == {"power_state": power}
    assert scene.conductor.powers == []


def test_console(scene: Scene) -> None:
    guest = a_guest("web", project_id="project")
    scene.finish(scene.work(guest))
    until(lambda: "login" in scene.compute().console_output(server=guest.server.uuid, length=None))
    whole = scene.compute().console_output(server=guest.server.uuid, length=None)
    assert scene.compute().console_output(server=guest.server.uuid, length=3) == "\n".join(whole.split("\n")[-3:])
    assert scene.compute().console_output(server=guest.server.uuid, length=0) == ""


def _fields(work: object) -> dict[str, object]:
    return {name: getattr(work, name) for name in work.__struct_fields__}  # type: ignore[attr-defined]


def test_stopping_what_is_not_there(scene: Scene) -> None:
    assert scene.finish(scene.work(a_guest(), ("stop_guest",))) == [("stop", True)]
    assert scene.conductor.reports[-1].output == {"power_state": SHUTDOWN}
