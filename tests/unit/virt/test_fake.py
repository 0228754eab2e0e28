"""The simulated host: the drivers' contract, and what only a simulated one does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kilonova.base.errors import BuildAborted, BuildFailed
from kilonova.virt.fake.driver import FakeDriver, FakeHypervisors
from kilonova.virt.fake.options import FakeOptions
from kilonova.virt.fake.orders import Order
from kilonova.virt.roles import NOSTATE, RUNNING, SHUTDOWN, GuestPlan
from tests.contracts.driver_suite import *  # noqa: F403
from tests.contracts.driver_suite import Hypervisor, a_guest, a_nic, until

OPTIONS = FakeOptions(boot_seconds=0.3)


def one_host(folder: Path, options: FakeOptions = OPTIONS) -> FakeDriver:
    _, driver = next(FakeHypervisors(folder, options=options, names=["cmp-1"]).drivers())
    driver.start()
    return driver


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return one_host(tmp_path)


@pytest.fixture
def hypervisor(tmp_path: Path, driver: FakeDriver) -> Hypervisor:
    return Hypervisor(
        driver, restarted=lambda: one_host(tmp_path), turn_off=lambda server: driver.happen(server, SHUTDOWN)
    )


def plan_of(**more: object) -> GuestPlan:
    return GuestPlan(guest=a_guest(**more), nics=[a_nic()], devices=[])


def test_many_hosts_have_stable_and_different_identities(tmp_path: Path) -> None:
    options = FakeOptions(hosts=1000)
    first = {name: driver.node().uuid for name, driver in FakeHypervisors(tmp_path, options=options).drivers()}
    again = {name: driver.node().uuid for name, driver in FakeHypervisors(tmp_path, options=options).drivers()}
    elsewhere = {name: d.node().uuid for name, d in FakeHypervisors(tmp_path / "other", options=options).drivers()}
    assert first == again
    assert len(set(first.values())) == 1000
    assert not set(first.values()) & set(elsewhere.values())


def test_a_guest_cut_off_while_it_is_made_is_half_there_and_mended(tmp_path: Path, driver: FakeDriver) -> None:
    plan, never = plan_of(), threading.Event()
    driver.orders.give(Order(method="spawn", until=never))

    def make() -> None:
        with pytest.raises(BuildAborted):
            driver.ensure_guest(plan)

    making = threading.Thread(target=make)
    making.start()
    until(driver.guests, 5)
    killed_and_back = one_host(tmp_path)
    assert killed_and_back.guests() == {plan.guest.server.uuid: NOSTATE}
    assert killed_and_back.ensure_guest(plan) == RUNNING
    driver.interrupt(plan.guest.server.uuid)
    making.join(5)
    assert not making.is_alive()


def test_removing_interrupts_making(driver: FakeDriver) -> None:
    plan = plan_of(metadata={"kilonova:delay": "spawn=60"})
    failures: list[BaseException] = []

    def make() -> None:
        try:
            driver.ensure_guest(plan)
        except BuildAborted as error:
            failures.append(error)

    making = threading.Thread(target=make)
    making.start()
    until(driver.guests, 5)
    driver.remove_guest(plan.guest.server.uuid)
    making.join(5)
    assert len(failures) == 1
    assert driver.guests() == {}


def test_failures_by_metadata(driver: FakeDriver) -> None:
    with pytest.raises(BuildFailed):
        driver.ensure_guest(plan_of(metadata={"kilonova:fail": "spawn"}))
    with pytest.raises(BuildAborted):
        driver.ensure_guest(plan_of(metadata={"kilonova:fail": "spawn-abort"}))
    assert driver.guests() == {}


def test_an_order_counts_as_often_as_it_says(driver: FakeDriver) -> None:
    driver.orders.give(Order(method="spawn", fail=True, times=2))
    plan = plan_of()
    for _ in range(2):
        with pytest.raises(BuildFailed):
            driver.ensure_guest(plan)
    assert driver.ensure_guest(plan) == RUNNING


def test_a_full_host_refuses(tmp_path: Path) -> None:
    driver = one_host(tmp_path, FakeOptions(memory_mb=300))
    driver.ensure_guest(plan_of())
    driver.ensure_guest(plan_of())
    with pytest.raises(BuildFailed, match="MiB of memory"):
        driver.ensure_guest(plan_of())
    assert len(driver.guests()) == 2


def test_the_console_holds_a_boot_and_a_login(tmp_path: Path) -> None:
    now = [1000.0]
    _, driver = next(FakeHypervisors(tmp_path, options=FakeOptions(boot_seconds=10), clock=lambda: now[0]).drivers())
    plan = plan_of(name="web")
    driver.ensure_guest(plan)
    server = plan.guest.server.uuid
    now[0] += 5
    half = driver.console_output(server).decode().split("\n")
    now[0] += 6
    whole = driver.console_output(server).decode().split("\n")
    assert 20 < len(half) < len(whole)
    assert len(whole) > 100
    assert whole[-1] == "web login: "
    assert "10.0.0.5" in "\n".join(whole)
