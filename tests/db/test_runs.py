"""Runs begun in a caller's transaction, and what users see of them."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.base.errors import BadRequest, Conflict, ErrorRecord, NotFound, ServerBusy, ServerNotFound
from kilonova.base.flow import Event, Report, Run, Status, What
from kilonova.core.server import Server
from kilonova.store import journal, runs, servers
from kilonova.store.journal import DatabaseJournal
from kilonova.store.session import Database
from tests.contracts.journal_suite import race
from tests.db.records import NOW, active, after, fresh, run, server

ANY: dict[str, Any] = {"vm_states": None, "task_states": None, "task": None}
STOP: dict[str, Any] = {"vm_states": {"active", "error"}, "task_states": {None}, "task": "powering-off"}


@pytest.fixture
def living(cell_shared: Database) -> Server:
    return cell_shared.write(lambda tx: servers.insert(tx, active()))


def begin(database: Database, wanted: Run, **states: Any) -> Server:
    return database.write(lambda tx: journal.begin(tx, wanted, **states))


def current(database: Database, uuid: str) -> Server:
    with database.read() as tx:
        return servers.get(tx, uuid, deleted=True)


def event(step: str, what: What, seconds: float, **more: Any) -> Event:
    return Event(step=step, what=what, at=after(seconds), **more)


def test_beginning_sets_the_task_and_enters_the_run(cell_shared: Database, living: Server) -> None:
    wanted = run(living.uuid)
    answered = begin(cell_shared, wanted, **STOP)
    assert answered == current(cell_shared, living.uuid)
    assert answered.task_state == "powering-off"
    assert DatabaseJournal(cell_shared).read(wanted.id)[0] == wanted


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"vm_state": "paused"}, "Cannot 'stop' instance {} while it is in vm_state paused"),
        ({"task_state": "rebooting"}, "Cannot 'stop' instance {} while it is in task_state rebooting"),
        ({"launched_at": None}, "Instance {} is in an invalid state for 'stop'"),
    ],
)
def test_a_server_in_another_state_is_busy(cell_shared: Database, changes: dict[str, Any], message: str) -> None:
    one = cell_shared.write(lambda tx: servers.insert(tx, active(**changes)))
    with pytest.raises(ServerBusy) as refused:
        begin(cell_shared, run(one.uuid), **STOP)
    assert refused.value.message == message.format(one.uuid)
    assert current(cell_shared, one.uuid) == one
    with cell_shared.read() as tx:
        assert journal.runs(tx, subject=one.uuid) == []


def test_states_that_are_not_asked_for(cell_shared: Database) -> None:
    one = cell_shared.write(lambda tx: servers.insert(tx, server(task_state="spawning")))
    with pytest.raises(ServerNotFound):
        begin(cell_shared, run(fresh()), **ANY)
    begin(cell_shared, run(one.uuid), **ANY, must_be_launched=False)
    assert current(cell_shared, one.uuid).task_state == "spawning"


def test_of_many_who_begin_one_wins(cell_shared: Database, living: Server) -> None:
    results = race([lambda: begin(cell_shared, run(living.uuid), **STOP)] * 6)
    assert sorted(type(each).__name__ for each in results) == ["Server"] + ["ServerBusy"] * 5


def test_a_run_under_way_keeps_others_out_whatever_the_states(cell_shared: Database, living: Server) -> None:
    first = run(living.uuid, action="reboot")
    begin(cell_shared, first, **ANY)
    with pytest.raises(ServerBusy, match="'reboot' is under way"):
        begin(cell_shared, run(living.uuid), **ANY)
    begin(cell_shared, run(living.uuid, exclusive=False), **ANY)
    DatabaseJournal(cell_shared).finish(first.id, Status.DONE, expect=0, at=NOW)
    begin(cell_shared, run(living.uuid), **ANY)


def test_the_task_follows_the_journal(cell_shared: Database, living: Server) -> None:
    wanted, kept = run(living.uuid), DatabaseJournal(cell_shared)
    begin(cell_shared, wanted, **STOP)
    kept.append(wanted.id, [event("x", What.STARTED, 1)], expect=0, task="image_uploading")
    assert current(cell_shared, living.uuid).task_state == "image_uploading"
    other = run(living.uuid, exclusive=False)
    kept.start(other)
    kept.finish(other.id, Status.DONE, expect=0, at=NOW)
    assert current(cell_shared, living.uuid).task_state == "image_uploading"
    kept.finish(wanted.id, Status.UNDONE, expect=1, at=NOW)
    assert current(cell_shared, living.uuid).task_state is None


def test_the_task_follows_what_hosts_report(cell_shared: Database, living: Server) -> None:
    wanted, kept = run(living.uuid), DatabaseJournal(cell_shared)
    begin(cell_shared, wanted, **STOP)
    kept.append(wanted.id, [event("x", What.DISPATCHED, 1), event("y", What.DISPATCHED, 1)], expect=0)
    report = Report(run=wanted.id, attempt=0, step="x", host="h")
    assert kept.append_report(report, at=NOW, task="spawning")
    assert current(cell_shared, living.uuid).task_state == "spawning"
    assert not kept.append_report(report, at=NOW, task="networking"), "it is the second time"
    assert current(cell_shared, living.uuid).task_state == "spawning"


def test_a_stuck_run_keeps_the_task_and_the_subject(cell_shared: Database, living: Server) -> None:
    wanted, kept = run(living.uuid), DatabaseJournal(cell_shared)
    begin(cell_shared, wanted, **STOP)
    kept.finish(wanted.id, Status.STUCK, expect=0, at=NOW)
    assert current(cell_shared, living.uuid).task_state == "powering-off"
    with pytest.raises(ServerBusy):
        begin(cell_shared, run(living.uuid), **ANY)


def test_delete_wins_over_whatever_is_under_way(cell_shared: Database, living: Server) -> None:
    rival, kept = run(living.uuid, state={"admin_pass": "hunter2"}), DatabaseJournal(cell_shared)
    begin(cell_shared, rival, **STOP)
    kept.append(rival.id, [event("x", What.STARTED, 1, output={"admin_pass": "hunter2"})], expect=0)
    deletion = run(living.uuid, flow="delete", action="delete", created_at=after(5))
    wipe = frozenset({"admin_pass"})
    assert cell_shared.write(lambda tx: journal.begin_delete(tx, deletion, wipe=wipe)) == [rival.id]
    assert current(cell_shared, living.uuid).task_state == "deleting"
    cancelled, events = kept.read(rival.id)
    assert (cancelled.status, cancelled.finished_at, cancelled.state) == (Status.CANCELLED, after(5), {})
    assert events[0].output == {}
    assert kept.read(deletion.id)[0].status is Status.RUNNING
    again = run(living.uuid, flow="delete", action="delete")
    assert cell_shared.write(lambda tx: journal.begin_delete(tx, again)) == [deletion.id]
    cell_shared.write(lambda tx: servers.mark_deleted(tx, living.uuid, NOW))
    kept.finish(again.id, Status.DONE, expect=0, at=NOW)
    assert current(cell_shared, living.uuid).vm_state == "deleted"
    with pytest.raises(ServerNotFound):
        cell_shared.write(lambda tx: journal.begin_delete(tx, run(living.uuid)))


def test_deletes_and_journal_writes_at_once_end_well(cell_shared: Database) -> None:
    """They lock the same two rows: whoever is late is told, nobody deadlocks for good."""
    for _ in range(5):
        uuid = cell_shared.write(lambda tx: servers.insert(tx, active())).uuid
        rival, kept = run(uuid), DatabaseJournal(cell_shared)
        begin(cell_shared, rival, **STOP)
        deletion = run(uuid, flow="delete")
        results = race(
            [
                lambda kept=kept, rival=rival: kept.append(  # type: ignore[misc]
                    rival.id, [event("x", What.STARTED, 1)], expect=0, task="other"
                ),
                lambda kept=kept, rival=rival: kept.finish(rival.id, Status.DONE, expect=1, at=NOW),  # type: ignore[misc]
                lambda deletion=deletion: cell_shared.write(lambda tx: journal.begin_delete(tx, deletion)),  # type: ignore[misc]
            ]
        )
        assert not isinstance(results[2], Exception), results[2]
        assert {type(each).__name__ for each in results[:2]} <= {"NoneType", "RunSuperseded", "Stale"}, results
        assert current(cell_shared, uuid).task_state == "deleting"


def test_a_build_request_s_run_is_cancelled_in_the_api_database(api_shared: Database) -> None:
    rival, deletion = run(fresh()), None
    api_shared.write(lambda tx: journal.start_in(tx, rival))
    deletion = run(rival.subject, flow="delete")
    assert api_shared.write(lambda tx: journal.begin_delete(tx, deletion)) == [rival.id]


def test_a_run_moves_with_its_events(api_shared: Database, cell_shared: Database) -> None:
    wanted, here, there = run(fresh()), DatabaseJournal(api_shared), DatabaseJournal(cell_shared)
    here.start(wanted)
    here.append(wanted.id, [event("a", What.STARTED, 1), event("a", What.SUCCEEDED, 2)], expect=0)
    moved, events = here.read(wanted.id)
    for _ in range(2):
        cell_shared.write(lambda tx: journal.start_in(tx, moved, events))
    assert there.read(wanted.id) == (moved, events)


def test_conflict_in_a_caller_s_transaction_undoes_all_of_it(cell_shared: Database, living: Server) -> None:
    cell_shared.write(lambda tx: journal.start_in(tx, run(living.uuid)))

    def both(tx: Any) -> None:
        servers.update(tx, living.uuid, host="elsewhere")
        journal.start_in(tx, run(living.uuid))

    with pytest.raises(Conflict):
        cell_shared.write(both)
    assert current(cell_shared, living.uuid).host is None


# --- actions


def acted(database: Database, wanted: Run, events: list[Event], status: Status = Status.DONE) -> journal.Action:
    kept = DatabaseJournal(database)
    kept.start(wanted)
    kept.append(wanted.id, events, expect=0)
    if status is not Status.RUNNING:
        kept.finish(wanted.id, status, expect=len(events), at=after(60))
    with database.read() as tx:
        return journal.action(tx, wanted.subject, wanted.context.request_id)


def test_an_action_that_went_well(cell_shared: Database, living: Server) -> None:
    wanted = run(living.uuid)
    found = acted(
        cell_shared,
        wanted,
        [
            event("prepare", What.STARTED, 1),
            event("prepare", What.SUCCEEDED, 2),
            event("a", What.DISPATCHED, 3, host="h", public="compute_stop_instance"),
            event("b", What.DISPATCHED, 3, host="h", public="compute_stop_instance"),
            event("a", What.SUCCEEDED, 4, host="h"),
            event("b", What.SUCCEEDED, 5, host="h"),
        ],
    )
    assert (found.action, found.server, found.user_id, found.project_id) == ("stop", living.uuid, "u", "p")
    assert (found.start_time, found.finish_time, found.message) == (NOW, after(60), None)
    assert found.events == [
        journal.ActionEvent(
            event="compute_stop_instance", start_time=after(3), finish_time=after(5), result="Success", host="h"
        )
    ]


def test_an_action_that_failed(cell_shared: Database, living: Server) -> None:
    error = ErrorRecord(kind="LibvirtError", message="secret path", details="Traceback …")
    found = acted(
        cell_shared,
        run(living.uuid),
        [
            event("a", What.DISPATCHED, 3, host="h", public="compute_stop_instance"),
            event("a", What.FAILED, 4, host="h", error=error),
            event("a", What.UNDONE, 5, host="h"),
        ],
        Status.UNDONE,
    )
    assert found.message == "Error"
    (shown,) = found.events
    assert (shown.result, shown.finish_time, shown.host) == ("Error", after(4), "h")
    assert (shown.details, shown.traceback) == ("LibvirtError", "Traceback …")


def test_an_action_that_runs(cell_shared: Database, living: Server) -> None:
    found = acted(
        cell_shared,
        run(living.uuid),
        [
            event("a", What.DISPATCHED, 3, host="h", public="x"),
            event("b", What.DISPATCHED, 3, host="h", public="x"),
            event("a", What.SUCCEEDED, 4, host="h"),
        ],
        Status.RUNNING,
    )
    assert (found.finish_time, found.message) == (None, None)
    assert [(each.event, each.result, each.finish_time) for each in found.events] == [("x", None, None)]


def test_each_attempt_is_an_event_of_its_own(cell_shared: Database, living: Server) -> None:
    error = ErrorRecord(kind="BuildFailed", message="no", safe=True)
    name = "compute__do_build_and_run_instance"
    found = acted(
        cell_shared,
        run(living.uuid),
        [
            event("spawn", What.DISPATCHED, 1, host="h1", public=name),
            event("spawn", What.FAILED, 2, host="h1", error=error),
            event("spawn", What.UNDONE, 3, host="h1"),
            event("", What.AGAIN, 4),
            event("spawn", What.DISPATCHED, 5, host="h2", public=name),
            event("spawn", What.SUCCEEDED, 6, host="h2"),
        ],
    )
    assert [(each.host, each.result, each.start_time) for each in found.events] == [
        ("h1", "Error", after(1)),
        ("h2", "Success", after(5)),
    ]


def test_the_list_of_actions(cell_shared: Database, living: Server) -> None:
    wanted = [
        run(living.uuid, action=name, created_at=after(i)) for i, name in enumerate(["create", "", "lock", "stop"])
    ]
    for each in wanted:
        cell_shared.write(lambda tx, each=each: journal.record(tx, each))  # type: ignore[misc]
    ids = [each.context.request_id for each in wanted]
    with cell_shared.read() as tx:
        assert [each.action for each in journal.actions(tx, living.uuid)] == ["stop", "lock", "create"]
        assert [each.action for each in journal.actions(tx, living.uuid, limit=1, marker=ids[3])] == ["lock"]
        assert [each.action for each in journal.actions(tx, living.uuid, changes_since=after(2))] == ["stop", "lock"]
        assert [each.action for each in journal.actions(tx, living.uuid, changes_before=after(2))] == ["lock", "create"]
        assert journal.action(tx, living.uuid, ids[2]).finish_time == after(2)
        with pytest.raises(BadRequest, match="marker"):
            journal.actions(tx, living.uuid, marker="req-x")
        with pytest.raises(NotFound, match="Action for request_id req-x"):
            journal.action(tx, living.uuid, "req-x")
        with pytest.raises(NotFound):
            journal.action(tx, living.uuid, ids[1])
        assert [each.id for each, _ in journal.runs(tx, subject=living.uuid)] == [each.id for each in wanted]
        assert [each.id for each, _ in journal.runs(tx, request_id=ids[0])] == [wanted[0].id]


def test_runs_that_wait_for_a_host(cell_shared: Database) -> None:
    host, kept = fresh("h"), DatabaseJournal(cell_shared)
    waits, answered = run(fresh()), run(fresh())
    for each in (waits, answered):
        kept.start(each)
        kept.append(each.id, [event("a", What.DISPATCHED, 1, host=host)], expect=0)
    kept.append(answered.id, [event("a", What.SUCCEEDED, 2, host=host)], expect=1)
    with cell_shared.read() as tx:
        assert journal.awaited_from(tx, host) == [waits.id]


def test_old_runs_are_purged_when_their_server_is(cell: Database) -> None:
    uuid = cell.write(lambda tx: servers.insert(tx, active())).uuid
    kept, ended = DatabaseJournal(cell), run(uuid)
    kept.start(ended)
    kept.append(ended.id, [event("a", What.STARTED, 1)], expect=0)
    kept.finish(ended.id, Status.DONE, expect=1, at=after(2))
    assert cell.write(lambda tx: runs.purge(tx, after(9), limit=10)) == 0
    cell.write(lambda tx: servers.hard_delete(tx, uuid))
    assert cell.write(lambda tx: runs.purge(tx, after(2), limit=10)) == 0
    assert cell.write(lambda tx: runs.purge(tx, after(9), limit=10)) == 1
    with pytest.raises(NotFound):
        kept.read(ended.id)
