"""The actions start, stop and reboot."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.servers import lookup
from kilonova.api.servers.bodies import Reboot
from kilonova.base.flow import Run
from kilonova.base.operation import operation
from kilonova.core import states
from kilonova.core.states import Action
from kilonova.store import devices, journal
from kilonova.store.session import Tx

_PATH = "/servers/{server_id}/action"
_RULE = "os_compute_api:servers:"


def begin(call: Call[Any], action: Action, *, hard: bool = False) -> None:
    """Start the flow of the action's name, if the server's state allows it."""
    located = lookup.find(call, unlocked=True)
    server = located.server
    states.check(action, server)
    runs: list[Run] = []

    def write(tx: Tx) -> None:
        state: dict[str, Any] = {
            "guest": {"server": msgspec.to_builtins(server)},
            "host": server.host,
            "nics": msgspec.to_builtins(server.nics),
            "devices": msgspec.to_builtins(devices.listing(tx, server.uuid)),
            "hard": hard,
        }
        run = lookup.run_of(call, action.word, server.uuid, state=state, action=action.word)
        journal.begin(
            tx,
            run,
            vm_states=set(action.vm_states) if action.vm_states is not None else None,
            task_states=set(action.task_states) if action.task_states is not None else None,
            task=action.task,
            must_be_launched=action.launched,
            over={states.REBOOT_SOFT.word} if hard else (),
        )
        runs[:] = [run]

    call.services.cells.database(located.cell).write(write)
    lookup.wake(call, runs[0], located.cell)


@operation("POST", _PATH, action="os-start", rule=_RULE + "start", success=202, refuses={404, 409})
def start_server(call: Call[None]) -> None:
    """Power on."""
    begin(call, states.START)


@operation("POST", _PATH, action="os-stop", rule=_RULE + "stop", success=202, refuses={404, 409})
def stop_server(call: Call[None]) -> None:
    """Shut down, and power off when the guest does not in time."""
    begin(call, states.STOP)


@operation("POST", _PATH, action="reboot", rule=_RULE + "reboot", body=Reboot, success=202, refuses={400, 404, 409})
def reboot_server(call: Call[Reboot]) -> None:
    """Reboot, by the guest itself or by its power."""
    hard = call.body.type.upper() == "HARD"
    begin(call, states.REBOOT_HARD if hard else states.REBOOT_SOFT, hard=hard)
