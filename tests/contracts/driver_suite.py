"""What every hypervisor driver must do, by role. A driver's test module imports the suite and gives a fixture::

    from tests.contracts.driver_suite import *  # noqa: F403

    @pytest.fixture
    def hypervisor() -> Iterator[Hypervisor]: ...

Roles that a driver does not have are skipped; the ones it has are tested in full.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kilonova.core.flavor import Flavor
from kilonova.core.network import FixedIP, Nic
from kilonova.core.server import Guest, Server
from kilonova.virt.roles import RUNNING, SHUTDOWN, Driver, GuestPlan, Interrupts, Logs, Powers, StagesImages, Watches

__all__ = ["TestDriver", "TestLogs", "TestPowers", "TestWatches", "a_guest", "a_nic"]


@dataclasses.dataclass
class Hypervisor:
    """What the suite needs of a driver's test module.

    ``driver``: started. ``plan``: fills in what this driver's guests need (an image file) and may make them small.
    ``restarted``: a second driver on the same hypervisor, as after a restart of the service. ``turn_off``: make a guest
    end of itself, as its own shutdown does. ``seconds``: how long anything may take at most.
    """

    driver: Any
    restarted: Callable[[], Any]
    plan: Callable[[GuestPlan], GuestPlan] = lambda plan: plan
    turn_off: Callable[[str], None] | None = None
    seconds: float = 10.0


def a_guest(name: str = "one", **more: Any) -> Guest:
    """A small guest."""
    flavor = Flavor(flavorid="42", name="m1.nano", vcpus=1, memory_mb=128, root_gb=1)
    server = Server(
        uuid=str(uuid.uuid4()),
        project_id="project",
        user_id="user",
        name=name,
        hostname=name,
        flavor=flavor,
        created_at=datetime.datetime.now(datetime.UTC),
    )
    return Guest(server=msgspec.structs.replace(server, **more))


def a_nic(address: str = "10.0.0.5") -> Nic:
    """A bound port."""
    port = str(uuid.uuid4())
    return Nic(
        port_id=port,
        network_id=str(uuid.uuid4()),
        mac=f"fa:16:3e:{port[0:2]}:{port[2:4]}:{port[4:6]}",
        vif_type="bridge",
        fixed_ips=[FixedIP(address=address, version=4, cidr="10.0.0.0/24", dhcp=True)],
    )


def made(hypervisor: Hypervisor, guest: Guest | None = None) -> GuestPlan:
    """The plan of a guest that runs."""
    plan = hypervisor.plan(GuestPlan(guest=guest or a_guest(), nics=[a_nic()], devices=[]))
    assert hypervisor.driver.ensure_guest(plan) == RUNNING
    return plan


def until(check: Callable[[], object], seconds: float) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def need(hypervisor: Hypervisor, role: type) -> None:
    if not isinstance(hypervisor.driver, role):
        pytest.skip(f"the driver does not have the role {role.__name__}")


class TestDriver:
    def test_it_has_the_base_role(self, hypervisor: Hypervisor) -> None:
        assert isinstance(hypervisor.driver, Driver)

    def test_a_node_says_what_there_is(self, hypervisor: Hypervisor) -> None:
        node = hypervisor.driver.node()
        uuid.UUID(node.uuid)
        assert node.vcpus > 0
        assert node.memory_mb > 0
        assert node.inventory["VCPU"]["total"] == node.vcpus
        assert node.inventory["MEMORY_MB"]["total"] == node.memory_mb
        assert node.supported
        assert any(trait.startswith("COMPUTE_IMAGE_TYPE_") for trait in node.traits)

    def test_a_node_is_the_same_after_a_restart(self, hypervisor: Hypervisor) -> None:
        before = hypervisor.driver.node()
        after = hypervisor.restarted().node()
        assert (after.uuid, after.name, after.inventory) == (before.uuid, before.name, before.inventory)

    def test_a_guest_is_made_counted_and_removed(self, hypervisor: Hypervisor) -> None:
        driver = hypervisor.driver
        before = driver.node()
        server = made(hypervisor).guest.server.uuid
        assert driver.guests()[server] == RUNNING
        during = driver.node()
        assert during.running_vms == before.running_vms + 1
        assert during.vcpus_used == before.vcpus_used + 1
        assert during.memory_mb_used >= before.memory_mb_used + 64
        driver.remove_guest(server)
        assert server not in driver.guests()
        assert driver.node().vcpus_used == before.vcpus_used

    def test_making_a_guest_twice_changes_nothing(self, hypervisor: Hypervisor) -> None:
        plan = made(hypervisor)
        assert hypervisor.driver.ensure_guest(plan) == RUNNING
        assert list(hypervisor.driver.guests()) == [plan.guest.server.uuid]

    def test_removing_what_is_not_there_changes_nothing(self, hypervisor: Hypervisor) -> None:
        hypervisor.driver.remove_guest(str(uuid.uuid4()))
        server = made(hypervisor).guest.server.uuid
        hypervisor.driver.remove_guest(server)
        hypervisor.driver.remove_guest(server)
        assert hypervisor.driver.guests() == {}

    def test_guests_outlive_a_restart(self, hypervisor: Hypervisor) -> None:
        plan = made(hypervisor)
        again = hypervisor.restarted()
        assert again.guests() == {plan.guest.server.uuid: RUNNING}
        assert again.ensure_guest(plan) == RUNNING

    def test_guests_do_not_mix(self, hypervisor: Hypervisor) -> None:
        one, two = made(hypervisor, a_guest("one")), made(hypervisor, a_guest("two"))
        hypervisor.driver.remove_guest(one.guest.server.uuid)
        assert hypervisor.driver.guests() == {two.guest.server.uuid: RUNNING}

    def test_images_are_staged_in_a_folder(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, StagesImages)
        assert hypervisor.driver.image_folder().is_absolute()

    def test_an_interrupt_of_nothing_is_fine(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Interrupts)
        hypervisor.driver.interrupt(str(uuid.uuid4()))
        plan = made(hypervisor)
        hypervisor.driver.interrupt(plan.guest.server.uuid)
        assert hypervisor.driver.guests() == {plan.guest.server.uuid: RUNNING}


class TestPowers:
    def test_off_and_on(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Powers)
        plan = made(hypervisor)
        server = plan.guest.server.uuid
        assert hypervisor.driver.power_off(server, grace=0) == SHUTDOWN
        assert hypervisor.driver.guests() == {server: SHUTDOWN}
        assert hypervisor.driver.power_off(server, grace=0) == SHUTDOWN
        assert hypervisor.driver.power_on(plan) == RUNNING
        assert hypervisor.driver.power_on(plan) == RUNNING
        assert hypervisor.driver.guests() == {server: RUNNING}

    def test_a_stopped_guest_still_takes_its_room(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Powers)
        before = hypervisor.driver.node().vcpus_used
        hypervisor.driver.power_off(made(hypervisor).guest.server.uuid, grace=0)
        assert hypervisor.driver.node().vcpus_used == before + 1

    @pytest.mark.parametrize("hard", [False, True])
    def test_reboot(self, hypervisor: Hypervisor, hard: bool) -> None:
        need(hypervisor, Powers)
        plan = made(hypervisor)
        assert hypervisor.driver.reboot(plan, hard=hard, grace=1) == RUNNING
        assert hypervisor.driver.guests() == {plan.guest.server.uuid: RUNNING}

    def test_a_hard_reboot_brings_back_a_guest_that_is_off(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Powers)
        plan = made(hypervisor)
        hypervisor.driver.power_off(plan.guest.server.uuid, grace=0)
        assert hypervisor.driver.reboot(plan, hard=True, grace=0) == RUNNING

    def test_power_on_makes_a_guest_that_is_lost(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Powers)
        plan = hypervisor.plan(GuestPlan(guest=a_guest(), nics=[a_nic()], devices=[]))
        assert hypervisor.driver.power_on(plan) == RUNNING


class TestLogs:
    def test_a_console_that_grows(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Logs)
        server = made(hypervisor).guest.server.uuid
        until(lambda: hypervisor.driver.console_output(server), hypervisor.seconds)
        first = hypervisor.driver.console_output(server)
        until(lambda: len(hypervisor.driver.console_output(server)) > len(first), hypervisor.seconds)


class TestWatches:
    def test_a_guest_that_ends_of_itself_is_told(self, hypervisor: Hypervisor) -> None:
        need(hypervisor, Watches)
        if hypervisor.turn_off is None:
            pytest.skip("guests of this driver cannot be made to end of themselves")
        heard: list[tuple[str, int]] = []
        hypervisor.driver.watch(lambda server, power: heard.append((server, power)))
        server = made(hypervisor).guest.server.uuid
        hypervisor.turn_off(server)
        until(lambda: (server, SHUTDOWN) in heard, hypervisor.seconds)
        assert hypervisor.driver.guests() == {server: SHUTDOWN}
