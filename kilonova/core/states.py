"""A server's states: what the API shows of them, and which actions they allow.

The status that users see follows from ``vm_state`` and ``task_state`` by one table; an action is one row of another.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kilonova.base.errors import Conflict, ServerBusy, ServerNotReady
from kilonova.core.server import Server

_REBUILD = dict.fromkeys(("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"), "REBUILD")
_RESIZE = dict.fromkeys(("resize_prep", "resize_migrating", "resize_migrated", "resize_finish"), "RESIZE")

STATUS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "active": (
        "ACTIVE",
        {
            **dict.fromkeys(("rebooting", "reboot_pending", "reboot_started"), "REBOOT"),
            **dict.fromkeys(("rebooting_hard", "reboot_pending_hard", "reboot_started_hard"), "HARD_REBOOT"),
            "updating_password": "PASSWORD",
            **_REBUILD,
            "migrating": "MIGRATING",
            **_RESIZE,
        },
    ),
    "building": ("BUILD", {}),
    "stopped": ("SHUTOFF", {**_RESIZE, **_REBUILD}),
    "resized": ("VERIFY_RESIZE", {"resize_reverting": "REVERT_RESIZE"}),
    "paused": ("PAUSED", {"migrating": "MIGRATING"}),
    "suspended": ("SUSPENDED", {}),
    "rescued": ("RESCUE", {}),
    "error": ("ERROR", dict(_REBUILD)),
    "deleted": ("DELETED", {}),
    "soft-delete": ("SOFT_DELETED", {}),
    "shelved": ("SHELVED", {}),
    "shelved_offloaded": ("SHELVED_OFFLOADED", {}),
}
"""For each vm_state the status, and the task_states that make it another one."""

UNKNOWN: Final = "UNKNOWN"
WITH_PROGRESS: Final = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})
WITH_FAULT: Final = frozenset({"ERROR", "DELETED"})


def status_of(server: Server) -> str:
    """The status that users see."""
    if server.deleted:
        return "DELETED"
    default, exceptions = STATUS.get(server.vm_state, (UNKNOWN, {}))
    return exceptions.get(server.task_state or "", default)


def states_of(statuses: list[str]) -> tuple[list[str], list[str] | None]:
    """The vm_states and task_states that make one of the ``statuses`` (in any case); no task_states: any.

    No vm_states at all: no status of these is known.
    """
    wanted = {status.upper() for status in statuses}
    vm_states: list[str] = []
    tasks: list[str] = []
    any_task = False
    for vm_state, (default, exceptions) in STATUS.items():
        found = [task for task, status in exceptions.items() if status in wanted]
        if default in wanted:
            any_task = True
        if default in wanted or found:
            vm_states.append(vm_state)
            tasks += found
    return vm_states, None if any_task or not tasks else sorted(set(tasks))


class Action(NamedTuple):
    """Which states allow an action. ``vm_states`` and ``task_states`` None: any; a None among task_states: no task.

    ``word`` stands in refusals; ``task`` is the task_state that begins with it; ``needs_host``: of no use without one.
    """

    word: str
    vm_states: frozenset[str] | None = None
    task_states: frozenset[str | None] | None = frozenset({None})
    task: str | None = None
    launched: bool = True
    needs_host: bool = False


_HARD_TASKS: Final = frozenset(
    {
        None,
        "rebooting",
        "reboot_pending",
        "reboot_started",
        "rebooting_hard",
        "resuming",
        "unpausing",
        "pausing",
        "suspending",
    }
)
_LIVING: Final = frozenset({"active", "paused", "suspended", "stopped"})

START: Final = Action("start", frozenset({"stopped"}), task="powering-on", needs_host=True)
STOP: Final = Action("stop", frozenset({"active", "error"}), task="powering-off", needs_host=True)
REBOOT_SOFT: Final = Action("reboot", frozenset({"active"}), task="rebooting")
REBOOT_HARD: Final = Action(
    "reboot", frozenset({"active", "stopped", "paused", "suspended", "error"}), _HARD_TASKS, task="rebooting_hard"
)
DELETE: Final = Action("delete", task_states=None, task="deleting", launched=False)
CREATE_METADATA: Final = Action("create metadata", _LIVING, task_states=None)
UPDATE_METADATA: Final = Action("update metadata", _LIVING, task_states=None)
DELETE_METADATA: Final = Action("delete metadata", _LIVING, task_states=None)
UPDATE_TAGS: Final = Action("update tags", _LIVING, task_states=None, launched=False)
UPDATE_TAG: Final = Action("update tag", _LIVING, task_states=None, launched=False)
DELETE_TAGS: Final = Action("delete tags", _LIVING, task_states=None, launched=False)
DELETE_TAG: Final = Action("delete tag", _LIVING, task_states=None, launched=False)
CONSOLE_OUTPUT: Final = Action("get_console_output", task_states=None, launched=False, needs_host=True)


def check(action: Action, server: Server) -> None:
    """ServerNotReady or ServerBusy, whose text names the attribute that does not fit, where the action is refused."""
    if action.needs_host and not server.host:
        raise ServerNotReady(server=server.uuid)
    if action.vm_states is not None and server.vm_state not in action.vm_states:
        raise busy(action.word, server.uuid, "vm_state", server.vm_state)
    if action.task_states is not None and server.task_state not in action.task_states:
        raise busy(action.word, server.uuid, "task_state", server.task_state)
    if action.launched and server.launched_at is None:
        raise busy(action.word, server.uuid, "launched_at", None)


def busy(word: str, server: str, attribute: str, state: object) -> Conflict:
    """The refusal of an action by a state."""
    if state is None and attribute != "launched_at":
        return Conflict(f"Instance {server} is in an invalid state for '{word}'")
    return ServerBusy(action=word, server=server, attribute=attribute, state=str(state))
