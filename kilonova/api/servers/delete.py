"""DELETE of a server. It always wins: over its own boot, over an operation under way."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.api.call import Call
from kilonova.api.servers import lookup
from kilonova.api.servers.lookup import Located
from kilonova.base.errors import ServerNotFound
from kilonova.base.flow import Run, Status
from kilonova.base.operation import operation
from kilonova.core.server import Server
from kilonova.store import build_requests, devices, instance_mappings, journal
from kilonova.store.session import Tx

SECRETS = frozenset({"admin_password", "files"})


@operation("DELETE", "/servers/{server_id}", rule="os_compute_api:servers:delete", success=204, refuses={404, 409})
def delete_server(call: Call[None]) -> None:
    """Delete a server."""
    located = lookup.find(call, unlocked=True)
    if not located.cell:
        if _delete_unscheduled(call, located.server):
            return
        # Its boot was faster: now it is in a cell, or it is gone by another delete.
        located = lookup.find(call, unlocked=True)
        if not located.cell:
            raise ServerNotFound(server=located.server.uuid)
    _delete_in_cell(call, located)


def _delete_unscheduled(call: Call[Any], server: Server) -> bool:
    """Take the build request away; False when its boot has taken it already."""
    runs: list[Run] = []

    def write(tx: Tx) -> bool:
        runs.clear()
        try:
            request = build_requests.get(tx, server.uuid)
        except ServerNotFound:
            return False
        if not build_requests.delete(tx, server.uuid):
            return False
        instance_mappings.remove(tx, server.uuid)
        state = {"server": server.uuid, "devices": msgspec.to_builtins(request.devices)}
        runs.append(lookup.run_of(call, "delete_unscheduled", server.uuid, state=state))
        journal.start_in(tx, runs[0])
        return True

    if not call.services.cells.api.write(write):
        return False
    lookup.wake(call, runs[0], "")
    return True


def _delete_in_cell(call: Call[Any], located: Located) -> None:
    uuid = located.server.uuid
    runs: list[Run] = []

    def write(tx: Tx) -> None:
        runs.clear()
        under_way = [run for run, _ in journal.runs(tx, subject=uuid, status=Status.RUNNING) if run.flow == "delete"]
        if under_way:
            runs.extend(under_way)
            return
        state = {
            "guest": {"server": msgspec.to_builtins(located.server)},
            "host": located.server.host or "",
            "devices": msgspec.to_builtins(devices.listing(tx, uuid)),
        }
        run = lookup.run_of(call, "delete", uuid, state=state, action="delete")
        journal.begin_delete(tx, run, wipe=SECRETS)
        runs.append(run)

    call.services.cells.database(located.cell).write(write)
    lookup.wake(call, runs[0], located.cell)
