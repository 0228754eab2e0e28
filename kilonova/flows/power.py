"""Start, stop and reboot."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kilonova.base.errors import ErrorRecord
from kilonova.base.flow import Flow, Step
from kilonova.contracts.compute import Compute
from kilonova.core.device import BlockDevice
from kilonova.core.network import Nic
from kilonova.core.server import Guest
from kilonova.flows.env import PERSIST, Env
from kilonova.flows.outcome import record_error
from kilonova.store import servers

LEFT = "a change of power is not taken back: what failed half way is shown, and the power sync tells what is"


class PowerState(msgspec.Struct, kw_only=True):
    """A server whose power is changed."""

    guest: Guest
    host: str
    nics: list[Nic] = []
    devices: list[BlockDevice] = []
    hard: bool = False
    power_state: int = 0


def set_active(env: Env, state: PowerState) -> None:
    """The guest runs."""
    _set(env, state, "active")


def set_stopped(env: Env, state: PowerState) -> None:
    """The guest is off."""
    _set(env, state, "stopped")


def _set(env: Env, state: PowerState, vm_state: str) -> None:
    uuid = state.guest.server.uuid
    env.db.write(lambda tx: servers.update(tx, uuid, vm_state=vm_state, power_state=state.power_state, task_state=None))


def keep_state(env: Env, state: PowerState, error: ErrorRecord) -> None:
    """The server stays as it was, with a fault."""
    record_error(env, state.guest.server.uuid, error)


def _flow(action: str, do: Callable[..., object], end: Step) -> Flow:
    """One change at the host; once it has come off, it is only to be recorded."""
    change = Step(
        name=f"{action}_guest",
        at="host",
        do=do,
        no_undo=LEFT,
        pivot=True,
        event=f"compute_{action}_instance",
    )
    return Flow(name=action, action=action, state=PowerState, steps=(change, end), undone=keep_state)


ACTIVE = Step(name="set_active", do=set_active, tries=PERSIST)
STOPPED = Step(name="set_stopped", do=set_stopped, tries=PERSIST)

START = _flow("start", Compute.start_guest, ACTIVE)
STOP = _flow("stop", Compute.stop_guest, STOPPED)
REBOOT = _flow("reboot", Compute.reboot_guest, ACTIVE)
