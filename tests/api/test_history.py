"""What was done to servers: instance actions for users, and our why and trace for administrators."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any
from uuid import uuid4

from kilonova.base.context import Context
from kilonova.base.errors import ErrorRecord
from kilonova.base.flow import Event, Run, Status, What
from kilonova.core.request import Refusal, Why
from kilonova.core.server import Server
from kilonova.store import decisions, journal, servers
from kilonova.store.session import Database
from tests.api.cloud import PROJECT, Cloud

BEGAN = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def at(seconds: float) -> datetime.datetime:
    return BEGAN + datetime.timedelta(seconds=seconds)


def put_run(
    database: Database,
    server: Server,
    *,
    action: str = "stop",
    began: float = 0,
    failed: bool = False,
    status: Status = Status.DONE,
    request_id: str | None = None,
) -> str:
    """A run of two steps: one at the conductor, one at the host "one", which takes two seconds."""
    request_id = request_id or f"req-{uuid4()}"
    error = ErrorRecord(kind="HostIsDown", message="no answer", code=409, safe=True) if failed else None
    ended = at(began + 3) if status is not Status.RUNNING else None
    run = Run(
        id=str(uuid4()),
        flow=action,
        subject=server.uuid,
        state={},
        context=Context(request_id=request_id, user_id="member-user", project_id=PROJECT),
        created_at=at(began),
        status=status,
        finished_at=ended,
        error=error,
        exclusive=status is Status.RUNNING,
        action=action,
    )
    events = [
        Event(step="note", what=What.STARTED, at=at(began)),
        Event(step="note", what=What.SUCCEEDED, at=at(began + 0.5)),
        Event(step="stop_guest", what=What.DISPATCHED, at=at(began + 1), host="one", public="compute_stop_instance"),
    ]
    if status is not Status.RUNNING:
        what = What.FAILED if failed else What.SUCCEEDED
        events.append(Event(step="stop_guest", what=what, at=at(began + 3), host="one", error=error))
    if status is Status.RUNNING:
        database.write(lambda tx: journal.start_in(tx, run, events))
    else:
        database.write(lambda tx: journal.record(tx, run, events))
    return request_id


def path(server: Server) -> str:
    return f"/servers/{server.uuid}/os-instance-actions"


def test_list_is_newest_first(cloud: Cloud) -> None:
    server, database = cloud.add_server(), cloud.cells.database(cloud.cell)
    older = put_run(database, server, action="create")
    newer = put_run(database, server, began=10)
    found = cloud.get(path(server), "2.1", who="reader").body["instanceActions"]
    assert [action["request_id"] for action in found] == [newer, older]
    assert found[0] == {
        "action": "stop", "instance_uuid": server.uuid, "request_id": newer, "user_id": "member-user",
        "project_id": PROJECT, "start_time": "2026-01-01T12:00:10.000000", "message": None,
    }  # fmt: skip
    assert "updated_at" in cloud.get(path(server), "2.58").body["instanceActions"][0]


def test_pages_and_times_since_2_58(cloud: Cloud) -> None:
    server, database = cloud.add_server(), cloud.cells.database(cloud.cell)
    ids = [put_run(database, server, began=began) for began in (0, 10, 20)][::-1]
    page = cloud.get(f"{path(server)}?limit=2", "2.58").body
    assert [action["request_id"] for action in page["instanceActions"]] == ids[:2]
    assert page["links"][0]["href"].endswith(f"{path(server)}?limit=2&marker={ids[1]}")
    rest = cloud.get(f"{path(server)}?limit=2&marker={ids[1]}", "2.58").body
    assert ([action["request_id"] for action in rest["instanceActions"]], "links" in rest) == (ids[2:], False)
    assert len(cloud.get(f"{path(server)}?limit=2", "2.57").body["instanceActions"]) == 3
    for query, version, text in (
        ("marker=req-x", "2.58", "marker [req-x] not found"),
        ("changes-since=yesterday", "2.58", "changes-since"),
        ("changes-before=2026-01-01T00:00:00Z", "2.65", "changes-before"),
        ("changes-since=2026-01-02T00:00:00Z&changes-before=2026-01-01T00:00:00Z", "2.66", "less than or equal"),
        ("bogus=1", "2.58", "bogus"),
    ):
        refused = cloud.get(f"{path(server)}?{query}", version)
        assert (refused.code, text in refused.fault) == (400, True), query
    none = cloud.get(f"{path(server)}?changes-before=2020-01-01T00:00:00Z", "2.66")
    assert none.body == {"instanceActions": []}
    assert len(cloud.get(f"{path(server)}?changes-since=2020-01-01T00:00:00Z", "2.66").body["instanceActions"]) == 3


def test_events_by_version_and_caller(cloud: Cloud) -> None:
    server = cloud.add_server()
    done = put_run(cloud.cells.database(cloud.cell), server)
    one = f"{path(server)}/{done}"
    assert "events" not in cloud.get(one, "2.50", who="reader").body["instanceAction"]
    basic = {
        "event": "compute_stop_instance", "result": "Success", "start_time": "2026-01-01T12:00:01.000000",
        "finish_time": "2026-01-01T12:00:03.000000",
    }  # fmt: skip
    hidden = {"hostId": hashlib.sha224(f"{PROJECT}one".encode()).hexdigest()}
    full = {"traceback": None}
    for version, who, expected in (
        ("2.1", "admin", basic | full),
        ("2.51", "reader", basic),
        ("2.62", "reader", basic | hidden),
        ("2.62", "admin", basic | hidden | full | {"host": "one"}),
        ("2.84", "reader", basic | hidden),
        ("2.84", "admin", basic | hidden | full | {"host": "one", "details": None}),
    ):
        assert cloud.get(one, version, who=who).body["instanceAction"]["events"] == [expected], (version, who)
    missing = cloud.get(f"{path(server)}/req-none", "2.84")
    assert (missing.code, missing.fault) == (404, "Action req-none not found")


def test_a_failure_says_so(cloud: Cloud) -> None:
    server = cloud.add_server()
    failed = put_run(cloud.cells.database(cloud.cell), server, failed=True, status=Status.UNDONE)
    shown = cloud.get(f"{path(server)}/{failed}", "2.84").body["instanceAction"]
    assert (shown["message"], shown["events"][0]["result"]) == ("Error", "Error")


def test_runs_of_one_request_in_two_databases_are_one_action(cloud: Cloud) -> None:
    server = cloud.add_server()
    request_id = put_run(cloud.cells.api, server, action="create")
    put_run(cloud.cells.database(cloud.cell), server, action="create", began=5, request_id=request_id)
    [action] = cloud.get(path(server), "2.58").body["instanceActions"]
    assert action["start_time"] == "2026-01-01T12:00:00.000000"
    assert len(cloud.get(f"{path(server)}/{request_id}", "2.58").body["instanceAction"]["events"]) == 2


def test_deleted_servers_since_2_21_and_foreign_ones(cloud: Cloud) -> None:
    server, database = cloud.add_server(), cloud.cells.database(cloud.cell)
    put_run(database, server)
    database.write(lambda tx: servers.mark_deleted(tx, server.uuid, at(100)))
    assert cloud.get(path(server), "2.20").code == 404
    assert len(cloud.get(path(server), "2.21").body["instanceActions"]) == 1
    foreign = cloud.get(path(server), "2.21", who="other")
    assert (foreign.code, foreign.fault) == (404, f"Instance {server.uuid} could not be found.")
    assert cloud.get(f"/servers/{uuid4()}/os-instance-actions", "2.21").code == 404


def test_why_is_the_latest_decision(cloud: Cloud) -> None:
    server = cloud.add_server()
    where = f"/servers/{server.uuid}/kilonova-why"
    none = cloud.get(where)
    assert (none.code, "No scheduling decision" in none.fault) == (404, True)
    refusal = Refusal(filter="ComputeFilter", refused=1, left=0, reasons=[("one", "is down")])
    for why in (Why(brief="old"), Why(brief="new", candidates=1, filters=[refusal], lacking=["VCPU"])):
        cloud.cells.api.write(lambda tx, why=why: decisions.put(tx, server.uuid, "req-1", why))
    shown: dict[str, Any] = cloud.get(where).body["why"]
    assert (shown["server"], shown["brief"], shown["lacking"]) == (server.uuid, "new", ["VCPU"])
    assert shown["filters"] == [{"filter": "ComputeFilter", "refused": 1, "left": 0, "reasons": [["one", "is down"]]}]
    refused = cloud.get(where, who="member")
    assert (refused.code, "os_compute_api:kilonova:why" in refused.fault) == (403, True)
    unknown = cloud.get(f"/servers/{uuid4()}/kilonova-why")
    assert (unknown.code, "could not be found" in unknown.fault) == (404, True)


def test_trace_tells_all_databases_in_order(cloud: Cloud) -> None:
    server, database = cloud.add_server(), cloud.cells.database(cloud.cell)
    first = put_run(cloud.cells.api, server, action="create")
    put_run(database, server, action="create", began=5, request_id=first)
    put_run(database, server, began=10, failed=True, status=Status.UNDONE)
    put_run(database, server, began=20, status=Status.RUNNING)
    told = cloud.get(f"/servers/{server.uuid}/kilonova-trace").body["trace"]
    runs = told["runs"]
    assert [(run["where"], run["action"], run["status"]) for run in runs] == [
        ("api", "create", "done"), ("cell1", "create", "done"), ("cell1", "stop", "undone"),
        ("cell1", "stop", "running"),
    ]  # fmt: skip
    assert (told["running"], told["stuck"], told["silent_cells"]) == ([runs[3]["id"]], [], [])
    steps = runs[1]["steps"]
    assert [(s["step"], s["where"], s["seconds"], s["result"]) for s in steps] == [
        ("note", "conductor", 0.5, "done"),
        ("stop_guest", "one", 2.0, "done"),
    ]
    assert (runs[2]["steps"][1]["result"], runs[2]["error"]) == ("failed", "HostIsDown: no answer")
    assert runs[3]["steps"][1]["result"] == "running"
    by_request = cloud.get(f"/kilonova-trace/{first}").body["trace"]
    assert [run["id"] for run in by_request["runs"]] == [run["id"] for run in runs[:2]]
    assert cloud.get("/kilonova-trace/req-none").code == 404
    assert cloud.get(f"/servers/{server.uuid}/kilonova-trace", who="member").code == 403
