"""Start, stop and reboot."""

from __future__ import annotations

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


START = Flow(
    name="start",
    action="start",
    state=PowerState,
    steps=(
        Step(
            name="start_guest",
            at="host",
            do=Compute.start_guest,
            no_undo=LEFT,
            pivot=True,
            event="compute_start_instance",
        ),
        Step(name="set_active", do=set_active, tries=PERSIST),
    ),
    undone=keep_state,
)
STOP = Flow(
    name="stop",
    action="stop",
    state=PowerState,
    steps=(
        Step(
            name="stop_guest",
            at="host",
            do=Compute.stop_guest,
            no_undo=LEFT,
            pivot=True,
            event="compute_stop_instance",
        ),
        Step(name="set_stopped", do=set_stopped, tries=PERSIST),
    ),
    undone=keep_state,
)
REBOOT = Flow(
    name="reboot",
    action="reboot",
    state=PowerState,
    steps=(
        Step(
            name="reboot_guest",
            at="host",
            do=Compute.reboot_guest,
            no_undo=LEFT,
            pivot=True,
            event="compute_reboot_instance",
        ),
        Step(name="set_active", do=set_active, tries=PERSIST),
    ),
    undone=keep_state,
)
