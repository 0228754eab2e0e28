"""Build a server's guest on the host that was chosen for it; on failure on an alternate.

Runs in the cell's database. The host does its part (ports, volumes, guest) as one message and undoes it when any of it
fails; then the next alternate of the scheduler is claimed. No alternates left, or a failure that no other host would
mend: the server ends in ERROR with its fault.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kilonova.base.errors import ClaimLost, ErrorRecord, RetriesExhausted, record_of
from kilonova.base.flow import Flow, Step
from kilonova.contracts.compute import Compute
from kilonova.core.device import BlockDevice
from kilonova.core.network import NetworkRequest, Nic
from kilonova.core.request import Selection
from kilonova.core.server import Guest
from kilonova.flows.env import PERSIST, Env
from kilonova.flows.outcome import record_error
from kilonova.store import devices as device_store
from kilonova.store import servers
from kilonova.store.session import Tx


class BuildState(msgspec.Struct, kw_only=True):
    """``selections``: the host to try now and the alternates behind it; ``tried``: hosts that failed."""

    guest: Guest
    networks: list[NetworkRequest] | None
    devices: list[BlockDevice]
    selections: list[Selection]
    tried: list[str] = []
    host: str = ""
    nics: list[Nic] = []
    power_state: int = 0
    root_device_name: str | None = None
    admin_password: str | None = None
    files: list[tuple[str, str]] = []


def claim_host(env: Env, state: BuildState) -> dict[str, object]:
    """The scheduler claimed the first host; an alternate is claimed here. The server shows its host from now on."""
    here, server = state.selections[0], state.guest.server
    if state.tried and not env.placement.claim(
        server.uuid, here.allocations, project_id=server.project_id, user_id=server.user_id
    ):
        raise ClaimLost()
    placed = {"host": here.host, "node": here.node, "node_uuid": here.node_uuid}
    zone = here.availability_zone or server.availability_zone

    def write(tx: Tx) -> None:
        servers.update(tx, server.uuid, launched_on=here.host, availability_zone=zone, **placed)

    env.db.write(write)
    guest = msgspec.structs.replace(
        state.guest,
        server=msgspec.structs.replace(server, availability_zone=zone, **placed),
    )
    return {"host": here.host, "guest": guest}


def release_host(env: Env, state: BuildState) -> None:
    """Nobody's room, nobody's host."""
    server = state.guest.server.uuid
    env.placement.release(server)
    env.db.write(lambda tx: servers.update(tx, server, host=None, node=None, node_uuid=None))


def set_active(env: Env, state: BuildState) -> None:
    """The guest runs: say so."""
    server = state.guest.server.uuid

    def write(tx: Tx) -> None:
        now = env.now()
        servers.set_nics(tx, server, state.nics)
        device_store.replace(tx, server, state.devices)
        servers.update(
            tx,
            server,
            vm_state="active",
            task_state=None,
            power_state=state.power_state,
            launched_at=now,
            terminated_at=None,
            progress=100,
            root_device_name=state.root_device_name,
        )

    env.db.write(write)


def next_alternate(state: BuildState, error: ErrorRecord) -> Mapping[str, object] | None:
    """The list starts again on the next host, unless no other host would do better."""
    if error.kind == "BuildAborted" or len(state.selections) < 2:
        return None
    return {"selections": state.selections[1:], "tried": [*state.tried, state.selections[0].host], "nics": []}


def give_up(env: Env, state: BuildState, error: ErrorRecord) -> None:
    """ERROR, with a fault that says why."""
    server = state.guest.server.uuid
    shown = error
    if error.kind != "BuildAborted":
        exhausted = record_of(RetriesExhausted(server=server))
        away = f" {error.message}" if error.facts.get("neighbour") else ""
        shown = msgspec.structs.replace(
            exhausted, message=exhausted.message + away, details=f"{error.kind}: {error.message}\n{error.details}"
        )
    record_error(env, server, shown, vm_state="error")


BUILD = Flow(
    name="build",
    action="create",
    state=BuildState,
    steps=(
        Step(name="claim_host", do=claim_host, undo=release_host, task="scheduling"),
        Step(
            name="plug_ports",
            at="host",
            do=Compute.plug_ports,
            undo=Compute.unplug_ports,
            task="networking",
            event="compute__do_build_and_run_instance",
        ),
        Step(
            name="attach_volumes",
            at="host",
            do=Compute.attach_volumes,
            undo=Compute.detach_volumes,
            task="block_device_mapping",
            wait=3600,
            event="compute__do_build_and_run_instance",
        ),
        Step(
            name="spawn_guest",
            at="host",
            do=Compute.spawn_guest,
            undo=Compute.destroy_guest,
            task="spawning",
            wait=3600,
            pivot=True,
            event="compute__do_build_and_run_instance",
        ),
        Step(name="set_active", do=set_active, tries=PERSIST),
    ),
    again=next_alternate,
    undone=give_up,
    secrets=frozenset({"admin_password", "files", "guest"}),
)
