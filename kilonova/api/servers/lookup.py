"""The server that a request is about: found wherever it is, visible to the caller, allowed, and not locked."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from kilonova.api.call import Call
from kilonova.api.moments import now
from kilonova.api.servers.loaders import Sources
from kilonova.base import log
from kilonova.base.errors import Fault, ServerLocked, ServerNotFound
from kilonova.base.flow import Event, Run, Status, What
from kilonova.core.server import Server
from kilonova.store.build_requests import BuildRequest
from kilonova.store.cells import CELL0_UUID

LOG = log.of(__name__)


class Located(NamedTuple):
    """A server and the uuid of its cell; "" while it is a build request, which is then given too."""

    server: Server
    cell: str
    request: BuildRequest | None = None


def target_of(server: Server) -> dict[str, str]:
    """What policies judge a server by."""
    return {"project_id": server.project_id, "user_id": server.user_id}


def find(call: Call[Any], *, unlocked: bool = False) -> Located:
    """The server of the request's path, with the policy asked.

    Servers of other projects are not found, unless an administrator asks. ``unlocked``: ServerLocked where it is locked
    and the caller is no administrator.
    """
    server_id = call.params["server_id"]
    found = call.services.cells.find(server_id)
    server = found.server
    if server.project_id != call.context.project_id and not call.context.is_admin:
        raise ServerNotFound(server=server_id)
    call.authorize(target_of(server))
    if unlocked:
        check_lock(call, server)
    return Located(server, found.cell, found.request)


def check_lock(call: Call[Any], server: Server) -> None:
    """ServerLocked where the caller may not act on a locked server."""
    if server.locked and not call.context.is_admin:
        raise ServerLocked(server=server.uuid)


def sources_of(call: Call[Any], located: Located) -> Sources:
    """Where the view finds what belongs to the server."""
    requests = {located.server.uuid: located.request} if located.request is not None else {}
    return Sources(call, {located.server.uuid: located.cell}, requests)


def run_of(call: Call[Any], flow: str, server: str, *, state: dict[str, Any], action: str = "") -> Run:
    """A run on behalf of the caller."""
    return Run(
        id=str(uuid.uuid4()),
        flow=flow,
        subject=server,
        state=state,
        context=call.context,
        created_at=now(),
        action=action,
    )


def wake(call: Call[Any], run: Run, cell: str) -> None:
    """Have a committed run driven. Where no conductor hears it, one finds it by itself."""
    conductor = call.services.conductor("" if cell == CELL0_UUID else cell)
    try:
        conductor.wake(run=run.id, where=cell)
    except Fault as error:
        LOG.warning("no conductor was woken for run %s: %s", run.id, error.message)


def done(call: Call[Any], action: str, server: str, *, event: str = "") -> tuple[Run, list[Event]]:
    """What the journal records of something that is done at once: a run that has ended, and its event."""
    run = run_of(call, action, server, state={}, action=action)
    run.status, run.exclusive, run.finished_at = Status.DONE, False, run.created_at
    if not event:
        return run, []
    both = [Event(step=action, what=what, at=run.created_at, public=event) for what in (What.STARTED, What.SUCCEEDED)]
    return run, both
