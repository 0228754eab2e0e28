"""How a flow that failed is recorded on its server."""

from __future__ import annotations

from kilonova.base.errors import ErrorRecord
from kilonova.core.server import fault_of_record
from kilonova.flows.env import Env
from kilonova.store import servers
from kilonova.store.session import Tx


def record_error(env: Env, server: str, error: ErrorRecord, *, vm_state: str | None = None) -> None:
    """Add the fault; with ``vm_state`` the server goes there. Its task ends. Repeating it changes nothing visible."""
    host = str(error.facts.get("host", ""))

    def write(tx: Tx) -> None:
        changes: dict[str, object] = {"task_state": None}
        if vm_state is not None:
            changes["vm_state"] = vm_state
        servers.add_fault(tx, fault_of_record(server, error, at=env.now(), host=host))
        servers.update(tx, server, **changes)

    env.db.write(write)
