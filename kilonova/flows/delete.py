"""Delete a server. It always wins: over a build in progress, over a stuck operation, over a dead host.

Starting a delete cancels the operation that holds the server, in the same transaction. From then on the driver of that
operation can write nothing more, but it may be in the middle of a step. So the first step waits until it has let go,
and then reads afresh what the server holds. The host is told to drop what it does for the cancelled run; it serialises
work by server, so that its part of the delete comes behind. All that follows finds things by the server's id, not by
what the cancelled operation got to journal: ports carry the id, claims are held by it, attachments name it.
"""

from __future__ import annotations

import time

import msgspec

from kilonova.base import log
from kilonova.base.errors import Fault, ServerNotFound
from kilonova.base.flow import Flow, Step
from kilonova.clients import volumes
from kilonova.contracts.compute import Compute
from kilonova.core.device import BlockDevice
from kilonova.core.server import Guest
from kilonova.flows.env import PERSIST, Env
from kilonova.store import build_requests, instance_mappings, request_specs, server_groups, servers
from kilonova.store import devices as device_store
from kilonova.store.journal import DatabaseJournal
from kilonova.store.session import Tx

LOG = log.of(__name__)
LETTING_GO = 5.0


class DeleteState(msgspec.Struct, kw_only=True):
    """``cancelled``: ids of the runs that the delete took the server from."""

    guest: Guest
    host: str = ""
    devices: list[BlockDevice] = []
    cancelled: list[str] = []


def settle(env: Env, state: DeleteState) -> dict[str, object]:
    """Wait for the cancelled operation to let go, then look what there is to delete."""
    journal = DatabaseJournal(env.db)
    deadline = time.monotonic() + LETTING_GO
    for run in state.cancelled:
        while journal.leased(run, now=env.now()):
            if time.monotonic() > deadline:
                raise Fault(f"run {run} has not let go of the server yet")
            time.sleep(0.01)
    uuid = state.guest.server.uuid
    try:
        with env.db.read() as tx:
            server, held = servers.get(tx, uuid), device_store.listing(tx, uuid)
    except ServerNotFound:
        return {}
    _tell_host_to_forget(env, state, server.host or "")
    guest = msgspec.structs.replace(state.guest, server=server)
    return {"guest": guest, "host": server.host or "", "devices": held or state.devices}


def _tell_host_to_forget(env: Env, state: DeleteState, host: str) -> None:
    if not host:
        return
    for run in state.cancelled:
        try:
            env.compute(env.where, host).forget(run=run)
        except Fault as error:
            LOG.info("%s was not told to forget run %s: %s", host, run, error.message)


def release_ports(env: Env, state: DeleteState) -> None:
    """Ports that we made go, the users' own are unbound."""
    env.neutron.release_ports(state.guest.server.uuid)


def release_volumes(env: Env, state: DeleteState) -> None:
    """Attachments go; volumes that were to die with the server die."""
    volumes.ensure_released(env.cinder, state.guest.server.uuid, state.devices)


def release_claims(env: Env, state: DeleteState) -> None:
    """The room on the host is free."""
    env.placement.release(state.guest.server.uuid)


def mark_deleted(env: Env, state: DeleteState) -> None:
    """The server is gone for users; its record stays for those who ask for deleted ones."""
    uuid = state.guest.server.uuid

    def forget(tx: Tx) -> None:
        instance_mappings.mark_deleted(tx, uuid)
        request_specs.delete(tx, uuid)
        build_requests.forget(tx, uuid)
        server_groups.remove_member(tx, uuid)

    env.cells.api.write(forget)
    env.db.write(lambda tx: servers.mark_deleted(tx, uuid, env.now()))


DELETE = Flow(
    name="delete",
    action="delete",
    state=DeleteState,
    forward_only=True,
    steps=(
        Step(name="settle", do=settle, task="deleting", tries=PERSIST),
        Step(
            name="destroy_guest",
            at="host",
            do=Compute.destroy_guest,
            skip_when_down=True,
            event="compute_terminate_instance",
            tries=PERSIST,
        ),
        Step(name="release_ports", do=release_ports, event="compute_terminate_instance", tries=PERSIST),
        Step(name="release_volumes", do=release_volumes, event="compute_terminate_instance", tries=PERSIST),
        Step(name="release_claims", do=release_claims, tries=PERSIST),
        Step(name="mark_deleted", do=mark_deleted, tries=PERSIST),
    ),
    secrets=frozenset({"guest"}),
)


class DeleteUnscheduledState(msgspec.Struct, kw_only=True):
    """A server that was deleted while it was still a build request."""

    server: str
    devices: list[BlockDevice] = []


def release_reserved(env: Env, state: DeleteUnscheduledState) -> None:
    """Volumes that were reserved for it are free again."""
    volumes.ensure_released(env.cinder, state.server, state.devices)


def release_room(env: Env, state: DeleteUnscheduledState) -> None:
    """Whatever the scheduler claimed meanwhile; the request's own run looks again before it hands over."""
    env.placement.release(state.server)

    def forget(tx: Tx) -> None:
        build_requests.forget(tx, state.server)
        server_groups.remove_member(tx, state.server)

    env.cells.api.write(forget)


DELETE_UNSCHEDULED = Flow(
    name="delete_unscheduled",
    state=DeleteUnscheduledState,
    forward_only=True,
    steps=(
        Step(name="release_reserved", do=release_reserved, tries=PERSIST),
        Step(name="release_room", do=release_room, tries=PERSIST),
    ),
)
