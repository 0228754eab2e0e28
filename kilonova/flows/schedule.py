"""From a request to servers in a cell: choose hosts for a batch, then hand each server to its host's cell.

Runs in the API database, one run for all servers of a request. Until it is handed over, a server is a build request.
Where no host is found, the servers go to cell0 in ERROR, with the reason.

Deleting a server that is still a build request races with handing it over. Both take the build request, and the API
database tells who came first: when the user did, what was begun in the cell is taken back; when the hand-over did, the
user's delete finds the server in its cell. A build never starts on a server that is deleted:
its run is entered in the transaction that finds the server alive.
"""

from __future__ import annotations

import uuid

import msgspec

from kilonova.base import log
from kilonova.base.errors import Conflict, ErrorRecord, NotFound, ServerNotFound
from kilonova.base.flow import Event, Flow, Run, Status, Step, What
from kilonova.core.request import Decision, RequestSpec, Selection, Why
from kilonova.core.server import Guest, Server, fault_of_record
from kilonova.flows.env import PERSIST, Env
from kilonova.store import build_requests, decisions, instance_mappings, request_specs, runs, server_groups, servers
from kilonova.store.build_requests import BuildRequest
from kilonova.store.cells import CELL0_UUID
from kilonova.store.session import Tx

LOG = log.of(__name__)

ANSWERS_LOST = 10
"""How often a question to the schedulers may get lost: each time costs a minute or so."""


class ScheduleState(msgspec.Struct, kw_only=True):
    """``servers``: uuids of one request; ``decision``: the hosts, in the same order as ``placed``."""

    servers: list[str]
    request: RequestSpec
    reservation_id: str = ""
    placed: list[str] = []
    decision: Decision | None = None
    unanswered: int = 0


def choose_hosts(env: Env, state: ScheduleState) -> dict[str, object]:
    """Claim room for every server that is still wanted: all or none."""
    wanted = [s for s in state.servers if _build_request(env, s) is not None]
    if not wanted:
        return {"placed": [], "decision": None}
    request = _with_group_of_now(env, state.request)
    try:
        decision = env.scheduler.select(request=request, servers=wanted, alternates=env.max_attempts - 1)
    except NotFound:
        raise
    except Exception as error:
        _remember_refusal(env, wanted, error)
        raise
    _remember(env, wanted, decision.why)
    return {"placed": wanted, "decision": decision}


def _with_group_of_now(env: Env, request: RequestSpec) -> RequestSpec:
    """With the hosts that the group's members have by now: others may have been placed since the request was taken."""
    if request.group is None:
        return request
    try:
        with env.cells.api.read() as tx:
            members = server_groups.get(tx, request.group.uuid).members
            unplaced = dict.fromkeys(build_requests.waiting(tx, members), "")
    except NotFound:
        return request
    found = env.cells.gather(lambda tx: servers.many(tx, members)).found.values() if members else ()
    placed = {member.uuid: member.host or "" for part in found for member in part.values()}
    return msgspec.structs.replace(request, group=msgspec.structs.replace(request.group, members=unplaced | placed))


def _remember_refusal(env: Env, wanted: list[str], error: Exception) -> None:
    why = getattr(error, "facts", {}).get("why")
    if why is not None:
        _remember(env, wanted, msgspec.convert(why, Why))


def _remember(env: Env, wanted: list[str], why: Why) -> None:
    def put(tx: Tx) -> None:
        for server in wanted:
            decisions.put(tx, server, env.run.context.request_id, why)

    env.cells.api.write(put)


def release_claims(env: Env, state: ScheduleState) -> None:
    """Nothing that was not handed over keeps room."""
    for server in state.servers:
        env.placement.release(server)


def hand_over(env: Env, state: ScheduleState) -> None:
    """Each server becomes an instance of its host's cell, and its build begins there."""
    if state.decision is None:
        return
    for server, selections in zip(state.placed, state.decision.selections, strict=True):
        _hand_over_one(env, state, server, selections)


def _hand_over_one(env: Env, state: ScheduleState, server: str, selections: list[Selection]) -> None:
    cell = selections[0].cell
    db = env.cells.database(cell)
    request = _build_request(env, server)
    if request is not None:
        request = _enter(env, request, selections[0])
    if request is None and not _belongs_to(env, server, cell):
        db.write(lambda tx: servers.hard_delete(tx, server))
        env.placement.release(server)
        return
    _begin_build(env, server, cell, selections, request)


def _enter(env: Env, request: BuildRequest, selection: Selection) -> BuildRequest | None:
    """Enter the server in the cell and take its request; None when a delete has taken it first."""
    record = _in_cell(request.server, selection)
    cell = env.cells.database(selection.cell)
    cell.write(lambda tx: servers.insert(tx, record, request.devices))
    if not env.cells.api.write(lambda tx: _take(tx, request, selection.cell)):
        return None
    with env.cells.api.read() as tx:
        newest = build_requests.kept(tx, request.server.uuid) or request
    if newest.server != request.server:  # renamed, say, after it was read above and before it was taken
        cell.write(lambda tx: _catch_up(tx, request.server, newest.server))
    return newest


def _catch_up(tx: Tx, entered: Server, newest: Server) -> None:
    beside = {"metadata", "tags"}
    names = [name for name in Server.__struct_fields__ if getattr(entered, name) != getattr(newest, name)]
    changes = {name: getattr(newest, name) for name in names if name not in beside}
    if changes:
        servers.update(tx, newest.uuid, **changes)
    if "metadata" in names:
        servers.replace_metadata(tx, newest.uuid, newest.metadata)
    if "tags" in names:
        servers.replace_tags(tx, newest.uuid, newest.tags)


def _in_cell(server: Server, selection: Selection) -> Server:
    return msgspec.structs.replace(server, availability_zone=selection.availability_zone or server.availability_zone)


def _take(tx: Tx, request: BuildRequest, cell: str) -> bool:
    """Whether the build request was there to be taken; then the mapping points to the cell."""
    if not build_requests.delete(tx, request.server.uuid):
        return False
    instance_mappings.set_cell(tx, request.server.uuid, cell)
    return True


def _belongs_to(env: Env, server: str, cell: str) -> bool:
    mapping = env.cells.mapping(server)
    return mapping is not None and mapping.cell == cell and not mapping.queued_for_delete


def _begin_build(env: Env, server: str, cell: str, selections: list[Selection], request: BuildRequest | None) -> None:
    """Start the cell's run. Its parameters stand in this run's journal too: a repeat after a crash finds them there."""
    if request is None:
        with env.cells.api.read() as tx:
            request = build_requests.kept(tx, server)
        if request is None:
            return  # the run was begun before, and what it needed is forgotten
    run_id = str(uuid.uuid5(uuid.UUID(env.run.id), server))
    values = {
        "networks": request.networks,
        "devices": request.devices,
        "selections": selections,
        "admin_password": request.admin_password,
        "files": request.files,
    }

    def start(tx: Tx) -> bool:
        try:
            alive = servers.get(tx, server)
        except ServerNotFound:
            return False
        guest = Guest(server=alive, admin_password=request.admin_password, files=request.files)
        state = msgspec.to_builtins({**values, "guest": guest})
        runs.start_in(tx, _run_like(env.run, id=run_id, flow="build", subject=server, state=state, action="create"))
        return True

    try:
        started = env.cells.database(cell).write(start)
    except Conflict:
        started = False  # a delete holds the server: it clears all
    if not started:
        env.placement.release(server)
        return
    _forget_request(env, server, request)
    env.wake(run_id, cell)


def _forget_request(env: Env, server: str, request: BuildRequest) -> None:
    """The build's own journal holds all it needs now; what it asked of hosts is kept for its moves."""

    def write(tx: Tx) -> None:
        request_specs.put(tx, server, request.request)
        build_requests.forget(tx, server)

    env.cells.api.write(write)


def commit(env: Env, state: ScheduleState) -> None:
    """From here on servers are handed over one by one, and none of that is taken back."""


def _run_like(run: Run, **changes: object) -> Run:
    fresh = {"status": Status.RUNNING, "seq": 0, "owner": "", "due_at": None, "finished_at": None, "error": None}
    return msgspec.structs.replace(run, **{**fresh, "exclusive": True, **changes})


def _build_request(env: Env, server: str) -> BuildRequest | None:
    try:
        with env.cells.api.read() as tx:
            return build_requests.get(tx, server)
    except NotFound:
        return None


def bury(env: Env, state: ScheduleState, error: ErrorRecord) -> None:
    """Servers that found no host become instances of cell0, in ERROR, with the reason."""
    for server in state.servers:
        request = _build_request(env, server)
        if request is not None:
            _bury_one(env, request, error)


def _bury_one(env: Env, request: BuildRequest, error: ErrorRecord) -> None:
    cell0 = env.cells.database(CELL0_UUID)
    server, now = request.server.uuid, env.now()
    dead = msgspec.structs.replace(request.server, vm_state="error", task_state=None, updated_at=now)
    run = _run_like(
        env.run,
        id=str(uuid.uuid5(uuid.UUID(env.run.id), server)),
        flow="build",
        subject=server,
        state={},
        action="create",
        status=Status.UNDONE,
        exclusive=False,
        error=error,
        finished_at=now,
    )
    name = "conductor_schedule_and_build_instances"
    events = [
        Event(step="choose_hosts", what=What.STARTED, at=env.run.created_at, public=name),
        Event(step="choose_hosts", what=What.FAILED, at=now, public=name, error=error),
    ]

    def write(tx: Tx) -> None:
        servers.insert(tx, dead, request.devices)
        servers.add_fault(tx, fault_of_record(server, error, at=now))
        runs.record(tx, run, events)

    cell0.write(write)
    taken = env.cells.api.write(lambda tx: _take(tx, request, CELL0_UUID))
    if not taken and not _belongs_to(env, server, CELL0_UUID):
        cell0.write(lambda tx: servers.hard_delete(tx, server))
    env.cells.api.write(lambda tx: build_requests.forget(tx, server))


def ask_again(state: ScheduleState, error: ErrorRecord) -> dict[str, object] | None:
    """A scheduler that died over the question is followed by another one: what it may have claimed is released now."""
    lost = error.kind == "BusTimeout" or error.facts.get("neighbour") == "message broker"
    return {"unanswered": state.unanswered + 1} if lost and state.unanswered < ANSWERS_LOST else None


SCHEDULE = Flow(
    name="schedule",
    state=ScheduleState,
    steps=(
        Step(name="choose_hosts", do=choose_hosts, undo=release_claims),
        Step(name="commit", do=commit, pivot=True),
        Step(name="hand_over", do=hand_over, tries=PERSIST),
    ),
    again=ask_again,
    undone=bury,
)
