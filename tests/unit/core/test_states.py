"""The tables of states, held against the reference's."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from kilonova.api.moments import now
from kilonova.base.errors import Conflict, OverQuota
from kilonova.core import states
from kilonova.core.flavor import Flavor
from kilonova.core.quota import Use, effective, exceeded, servers_that_fit
from kilonova.core.server import Server

FLAVOR = Flavor(flavorid="1", name="m", vcpus=2, memory_mb=512)


def make(**changes: object) -> Server:
    server = Server(
        uuid="u", project_id="p", user_id="x", name="n", flavor=FLAVOR, created_at=now(), vm_state="active",
        task_state=None, host="h", launched_at=now(),
    )  # fmt: skip
    return msgspec.structs.replace(server, **changes)


EXPANDED = {
    "*_hard": ["rebooting_hard", "reboot_pending_hard", "reboot_started_hard"],
    "rebuild*": ["rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"],
    "resize_*": ["resize_prep", "resize_migrating", "resize_migrated", "resize_finish"],
    "rebooting/reboot_pending/reboot_started": ["rebooting", "reboot_pending", "reboot_started"],
    "resize_prep/migrating/migrated/finish": ["resize_prep", "resize_migrating", "resize_migrated", "resize_finish"],
    "rebuilding, rebuild_block_device_mapping, rebuild_spawning": [
        "rebuilding", "rebuild_block_device_mapping", "rebuild_spawning",
    ],
}  # fmt: skip


def of_reference(reference: Path) -> list[tuple[str, str | None, str]]:
    """(vm_state, task_state, status) of every row of the reference's second table."""
    text = (reference / "states.md").read_text().partition("## 2.")[2].partition("## 3.")[0]
    found: list[tuple[str, str | None, str]] = []
    for vm_state, default, exceptions in re.findall(r"^\| ([\w-]+) \| ([A-Z_]+) \| (.*?) ?\|$", text, re.MULTILINE):
        found.append((vm_state, None, default))
        for exception in filter(None, exceptions.split("; ")):
            tasks, _, status = exception.partition("→")
            found += [(vm_state, task, status) for task in EXPANDED.get(tasks, [tasks])]
    return found


def test_statuses_are_those_of_the_reference(reference: Path) -> None:
    rows = of_reference(reference)
    assert len(rows) > 30
    for vm_state, task, status in rows:
        assert states.status_of(make(vm_state=vm_state, task_state=task)) == status, (vm_state, task)
    assert {vm_state for vm_state, _, _ in rows} == set(states.STATUS)


def test_what_is_deleted_and_what_is_unknown() -> None:
    assert states.status_of(make(vm_state="active", deleted=True)) == "DELETED"
    assert states.status_of(make(vm_state="odd")) == "UNKNOWN"
    assert states.status_of(make(vm_state="active", task_state="powering-off")) == "ACTIVE"


def test_states_of_a_status_find_its_servers() -> None:
    """Going back finds at least what going there shows."""
    for vm_state, (default, exceptions) in states.STATUS.items():
        for task, status in [(None, default), *exceptions.items()]:
            vm_states, tasks = states.states_of([status.lower()])
            assert vm_state in vm_states
            assert tasks is None or task in tasks
    assert states.states_of(["nosuch"]) == ([], None)
    assert states.states_of(["REBOOT"]) == (["active"], ["reboot_pending", "reboot_started", "rebooting"])


@pytest.mark.parametrize(
    "action, changes, text",
    [
        (states.START, {"vm_state": "stopped"}, None),
        (states.START, {}, "Cannot 'start' instance u while it is in vm_state active"),
        (states.START, {"vm_state": "stopped", "host": None}, "Instance u is not ready"),
        (states.STOP, {"task_state": "rebooting"}, "Cannot 'stop' instance u while it is in task_state rebooting"),
        (states.STOP, {"launched_at": None}, "Cannot 'stop' instance u while it is in launched_at None"),
        (states.REBOOT_HARD, {"vm_state": "error", "task_state": "rebooting"}, None),
        (states.REBOOT_SOFT, {"task_state": "rebooting"},
         "Cannot 'reboot' instance u while it is in task_state rebooting"),
        (states.DELETE, {"vm_state": "odd", "task_state": "spawning", "launched_at": None, "host": None}, None),
        (states.UPDATE_METADATA, {"task_state": "rebooting"}, None),
        (states.UPDATE_TAGS, {"vm_state": "error"}, "Cannot 'update tags' instance u while it is in vm_state error"),
    ],
)  # fmt: skip
def test_actions(action: states.Action, changes: dict[str, object], text: str | None) -> None:
    if text is None:
        states.check(action, make(**changes))
        return
    with pytest.raises(Conflict) as caught:
        states.check(action, make(**changes))
    assert caught.value.message == text


# --- quotas

EACH = Use(instances=1, cores=2, ram=512)
LIMITS = {"instances": 10, "cores": 7, "ram": -1}


def test_the_stronger_layer_counts() -> None:
    assert effective({"cores": 1, "ram": 2}, {"cores": 3}, {"ram": -1}) == {"cores": 3, "ram": -1}


@pytest.mark.parametrize("least, most, used, expected", [(1, 5, Use(), 3), (3, 3, Use(), 3), (1, 2, Use(cores=2), 2)])
def test_how_many_fit(least: int, most: int, used: Use, expected: int) -> None:
    assert servers_that_fit(LIMITS, used, EACH, least=least, most=most) == expected


def test_too_many_name_all_that_lacks() -> None:
    with pytest.raises(OverQuota) as caught:
        servers_that_fit(LIMITS | {"instances": 2}, Use(instances=1, cores=5), EACH, least=2, most=2)
    assert caught.value.message == (
        "Quota exceeded for cores, instances: Requested 4, 2, but already used 5, 1 of 7, 2 cores, instances"
    )
    assert exceeded(LIMITS, Use(cores=7), Use(ram=1)) == []
    assert servers_that_fit(dict.fromkeys(LIMITS, -1), Use(), EACH, least=1, most=99) == 99
