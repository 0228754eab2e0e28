"""From a request to servers in a cell: choose hosts for a batch, then hand each server to its host's cell.

Runs in the API database, one run for all servers of a request. Until it is handed over, a server is a build request.
Where no host is found, the servers go to cell0 in ERROR, with the reason.

Deleting a server that is still a build request races with handing it over. Both take the build request, and the API
database tells who came first: when the user did, what was begun in the cell is taken back; when the hand-over did, the
user's delete finds the server in its cell. A build never starts on a server that is deleted:
its run is entered in the transaction that finds the server alive.

A driver may die between any two writes, and a server may be deleted or changed there before the next one goes on. So
each part looks at how far the server has come: it waits (enter it, take the request), it is taken (begin what follows),
or it has no mapping any more (its delete took it: take back the row in the cell and the room).
"""

from __future__ import annotations

import datetime
import functools
import uuid
from collections.abc import Callable

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
PATIENCE = 3
"""A Placement or a scheduler that is being restarted fails no boot: pauses of 1, 2 and 4 s, beside the client's own."""

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
    """Claim room for every server that is still wanted: all or none.

    A try that died may have claimed for one whose delete had released its room just before.
    """
    wanted = [s for s in state.servers if _build_request(env, s) is not None]
    for server in state.servers:
        if server not in wanted:
            env.placement.release(server)
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

    def write(tx: Tx, request: BuildRequest) -> None:
        servers.insert(tx, _in_cell(request.server, selections[0]), request.devices)

    _enter(env, server, cell, write)
    mapping = env.cells.mapping(server)
    if mapping is None:
        _take_back(env, server, cell)
    elif mapping.queued_for_delete:
        env.placement.release(server)
    else:
        _begin_build(env, server, cell, selections)


def _take_back(env: Env, server: str, cell: str) -> None:
    """Its delete took the request: what was entered in the cell meanwhile is nobody's."""
    env.cells.database(cell).write(lambda tx: servers.hard_delete(tx, server))
    env.placement.release(server)


class _Changed(Exception):
    """The user has changed the server since it was read."""


def _enter(env: Env, server: str, cell: str, write: Callable[[Tx, BuildRequest], None]) -> None:
    """Enter the server in a cell, and take its request just as it was entered, unless it is taken already.

    A row that is there already was left by a driver that died, or is out of date: it is written anew. One that has a
    run in its cell is further on than this driver knows, who has slept, and stays.
    """

    def anew(tx: Tx, request: BuildRequest) -> None:
        if not runs.runs(tx, subject=server, limit=1):
            servers.hard_delete(tx, server)
            write(tx, request)

    while (request := _build_request(env, server)) is not None:
        env.cells.database(cell).write(functools.partial(anew, request=request))
        try:
            env.cells.api.write(functools.partial(_take, request=request, cell=cell))
            return
        except _Changed:
            continue


def _in_cell(server: Server, selection: Selection) -> Server:
    return msgspec.structs.replace(server, availability_zone=selection.availability_zone or server.availability_zone)


def _take(tx: Tx, request: BuildRequest, cell: str) -> None:
    """Take the build request and point the mapping to the cell; nothing when somebody has taken it already."""
    server = request.server.uuid
    if build_requests.delete(tx, server):
        if build_requests.kept(tx, server) != request:
            raise _Changed
        instance_mappings.set_cell(tx, server, cell)


def _kept(env: Env, server: str) -> BuildRequest | None:
    with env.cells.api.read() as tx:
        return build_requests.kept(tx, server)


def _begin_build(env: Env, server: str, cell: str, selections: list[Selection]) -> None:
    """Start the cell's run. What it needs is kept until it has begun: a repeat after a crash finds it there."""
    request = _kept(env, server)
    if request is None:
        return  # the run was begun before, and what it needed is forgotten
    run_id = _child(env.run, server)
    values = {
        "networks": request.networks,
        "devices": request.devices,
        "selections": selections,
        "admin_password": request.admin_password,
        "files": request.files,
    }

    def start(tx: Tx) -> bool:
        try:
            alive = servers.get(tx, server, lock=True)
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
    _forget_request(env, server, cell, request)
    env.wake(run_id, cell)


def _forget_request(env: Env, server: str, cell: str, request: BuildRequest) -> None:
    """The build's own journal holds all it needs now; what it asked of hosts is kept for its moves.

    A delete that has come and gone meanwhile wants nothing kept; the mapping, written first by both, is their lock.
    """

    def write(tx: Tx) -> None:
        instance_mappings.set_cell(tx, server, cell)
        mapping = instance_mappings.get(tx, server)
        if mapping is not None and not mapping.queued_for_delete:
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
        _bury_one(env, server, error)


def _bury_one(env: Env, server: str, error: ErrorRecord) -> None:
    now = env.now()

    def write(tx: Tx, request: BuildRequest) -> None:
        dead = msgspec.structs.replace(request.server, vm_state="error", task_state=None, updated_at=now)
        servers.insert(tx, dead, request.devices)
        servers.add_fault(tx, fault_of_record(server, error, at=now))

    _enter(env, server, CELL0_UUID, write)
    if env.cells.mapping(server) is None:
        _take_back(env, server, CELL0_UUID)
    elif _kept(env, server) is not None:
        env.cells.database(CELL0_UUID).write(lambda tx: _record_burial(tx, env, server, error, at=now))
    env.cells.api.write(lambda tx: build_requests.forget(tx, server))


def _record_burial(tx: Tx, env: Env, server: str, error: ErrorRecord, *, at: datetime.datetime) -> None:
    """The create among the server's actions, which has failed."""
    run = _run_like(
        env.run,
        id=_child(env.run, server),
        flow="build",
        subject=server,
        state={},
        action="create",
        status=Status.UNDONE,
        exclusive=False,
        error=error,
        finished_at=at,
    )
    name = "conductor_schedule_and_build_instances"
    events = [
        Event(step="choose_hosts", what=What.STARTED, at=env.run.created_at, public=name),
        Event(step="choose_hosts", what=What.FAILED, at=at, public=name, error=error),
    ]
    runs.record(tx, run, events)


def _child(run: Run, server: str) -> str:
    """The id of the build of one server: the same after every repeat."""
    return str(uuid.uuid5(uuid.UUID(run.id), server))


def ask_again(state: ScheduleState, error: ErrorRecord) -> dict[str, object] | None:
    """A scheduler that died over the question is followed by another one: what it may have claimed is released now."""
    lost = error.kind == "BusTimeout" or error.facts.get("neighbour") == "message broker"
    return {"unanswered": state.unanswered + 1} if lost and state.unanswered < ANSWERS_LOST else None


SCHEDULE = Flow(
    name="schedule",
    state=ScheduleState,
    steps=(
        Step(name="choose_hosts", do=choose_hosts, undo=release_claims, patience=PATIENCE),
        Step(name="commit", do=commit, pivot=True),
        Step(name="hand_over", do=hand_over, tries=PERSIST),
    ),
    again=ask_again,
    undone=bury,
)
