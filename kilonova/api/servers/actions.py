"""The actions that are done at once: lock, unlock, reset of the state, console output."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.moments import now
from kilonova.api.servers import lookup
from kilonova.api.servers.bodies import ConsoleOutput, Lock, ResetState, given
from kilonova.api.servers.lookup import Located, target_of
from kilonova.base.errors import Conflict, ServerNotFound
from kilonova.base.flow import Status
from kilonova.base.operation import operation
from kilonova.core import states
from kilonova.core.server import Server
from kilonova.store import build_requests, journal, runs, servers
from kilonova.store.session import Tx

_PATH = "/servers/{server_id}/action"
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")
_LOCK = "os_compute_api:os-lock-server:"


def _set(call: Call[Any], located: Located, action: str, *, event: str = "", **changes: Any) -> None:
    """Set attributes of the server wherever it is, and record the action where it has a cell."""
    uuid = located.server.uuid

    def write_request(tx: Tx) -> bool:
        try:
            request = build_requests.get(tx, uuid)
        except ServerNotFound:
            return False
        return build_requests.update_server(tx, msgspec.structs.replace(request.server, updated_at=now(), **changes))

    if not located.cell:
        if call.services.cells.api.write(write_request):
            return
        found = call.services.cells.find(uuid)
        located = Located(found.server, found.cell)
        if not located.cell:
            raise Conflict(f"Instance {uuid} is being handed over; try again.")
    run, events = lookup.done(call, action, uuid, event=event)

    def write(tx: Tx) -> None:
        servers.update(tx, uuid, **changes)
        journal.record(tx, run, events)

    call.services.cells.database(located.cell).write(write)


def _is_owner(call: Call[Any], server: Server) -> bool:
    return server.project_id == call.context.project_id


def _lock(call: Call[Any], reason: str | None) -> None:
    located = lookup.find(call)
    owner = _is_owner(call, located.server)
    if located.server.locked and owner:
        return
    _set(
        call,
        located,
        "lock",
        event="api_lock",
        locked=True,
        locked_by="owner" if owner else "admin",
        locked_reason=reason,
    )


@operation("POST", _PATH, action="lock", rule=_LOCK + "lock", until="2.72", success=202, refuses={404})
def lock_server(call: Call[None]) -> None:
    """Refuse changes by anybody but administrators."""
    _lock(call, None)


@operation("POST", _PATH, action="lock", rule=_LOCK + "lock", since="2.73", success=202, body=Lock, refuses={400, 404})
def lock_server_with_reason(call: Call[Lock | None]) -> None:
    """As before, saying why."""
    _lock(call, given(call.body.locked_reason, None) if call.body is not None else None)


@operation("POST", _PATH, action="unlock", rule=_LOCK + "unlock", success=202, refuses={403, 404})
def unlock_server(call: Call[None]) -> None:
    """Allow changes again. What an administrator locked needs the policy to override."""
    located = lookup.find(call)
    server = located.server
    by = "owner" if _is_owner(call, server) else "admin"
    if server.locked_by is not None and server.locked_by != by:
        call.authorize(target_of(server), rule=_LOCK + "unlock:unlock_override")
    _set(call, located, "unlock", event="api_unlock", locked=False, locked_by=None, locked_reason=None)


@operation(
    "POST",
    _PATH,
    action="os-resetState",
    rule="os_compute_api:os-admin-actions:reset_state",
    body=ResetState,
    success=202,
    refuses={400, 404},
)
def reset_state(call: Call[ResetState]) -> None:
    """Say that the server is active, or in error. An operation that is stuck gives the server up."""
    located = lookup.find(call)
    _set(call, located, "resetState", vm_state=call.body.state, task_state=None)
    if located.cell:
        uuid = located.server.uuid

        def free(tx: Tx) -> None:
            for stuck, _ in journal.runs(tx, subject=uuid, status=Status.STUCK):
                runs.cancel_in(tx, stuck.id, at=now())

        call.services.cells.database(located.cell).write(free)


@operation(
    "POST",
    _PATH,
    action="os-getConsoleOutput",
    rule="os_compute_api:os-console-output",
    body=ConsoleOutput,
    refuses={400, 404, 409, 501},
)
def console_output(call: Call[ConsoleOutput]) -> dict[str, str]:
    """The last lines of the guest's console."""
    located = lookup.find(call)
    states.check(states.CONSOLE_OUTPUT, located.server)
    asked = given(call.body.length, None)
    length = None if asked is None or int(asked) < 0 else int(asked)
    compute = call.services.compute(located.cell, str(located.server.host))
    text = compute.console_output(server=located.server.uuid, length=length)
    return {"output": _UNPRINTABLE.sub("", text)}
