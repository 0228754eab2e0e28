"""Programs and servers that die in the middle of work: others go on with it, or it ends cleanly."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from openstack.connection import Connection

from tests.services import RabbitMQ
from tests.site.people import User
from tests.site.site import Site, wait_for
from tests.site.test_ends import slow

TAKEOVER = 25.0
"""A lease of ten seconds, and what a busy machine needs for the work itself."""


def test_conductors_that_are_killed_are_followed_within_seconds(whole: Site, demo: User) -> None:
    servers = [demo.create(f"orphan-{number}", metadata=slow(1.5)) for number in range(6)]
    begun = time.monotonic()
    whole.programs["super-a"].kill()
    wait_for(lambda: [s for s in servers if demo.show(s).task_state == "spawning"], what="a host builds", seconds=30)
    whole.programs["cell1-a"].kill()
    for server in servers:
        demo.active(server, seconds=TAKEOVER + 30)
    assert time.monotonic() - begun < TAKEOVER + 15
    demo.delete(*servers)


def test_a_host_that_is_killed_while_it_builds_goes_on_when_it_is_back(
    whole: Site, demo: User, admin: Connection
) -> None:
    servers = [demo.create(f"interrupted-{number}", metadata=slow(3)) for number in range(4)]
    victim = whole.programs[demo.building(servers[0])]
    victim.kill()
    victim.start()
    found = [demo.settled(server, seconds=90) for server in servers]
    assert {server.status for server in found} <= {"ACTIVE", "ERROR"}
    assert [server.status for server in found].count("ACTIVE") >= 3
    demo.delete(*servers)
    assert_nothing_left(admin, servers)


@pytest.fixture
def patient(whole: Site) -> Iterator[Site]:
    """The site with conductors that take no host for dead while the broker is away for half a minute."""
    conductors = [program for program in whole.programs.values() if program.binary == "nova-conductor"]
    usual = [program.command for program in conductors]
    for program in conductors:
        program.command = [*program.command, *whole.conf("patient.conf")]
    whole.restart(conductors)
    yield whole
    for program, command in zip(conductors, usual, strict=True):
        program.command = command
    whole.restart(conductors)


def test_a_broker_that_is_restarted_ends_no_boot(patient: Site, demo: User, rabbitmq_server: RabbitMQ) -> None:
    servers = [demo.create(f"cut-off-{number}", metadata=slow(1)) for number in range(3)]
    rabbitmq_server.restart()
    servers += [demo.create(f"cut-off-{number}", metadata=slow(1)) for number in range(3, 5)]
    for server in servers:
        demo.active(server, seconds=120)
    demo.delete(*servers, seconds=120)


def assert_nothing_left(admin: Connection, servers: list[str]) -> None:
    """Placement holds no claim of theirs."""
    for server in servers:
        answer = admin.placement.get(f"/allocations/{server}")
        assert answer.json()["allocations"] == {}, server
