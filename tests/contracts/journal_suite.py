"""What every journal must do: run on the one in memory here, and on the ones in databases by their own tests.

Use: subclass ``JournalSuite`` in a test module and give it a fixture ``make_journal``, a function that answers a
``Journal`` (the same database may serve all tests: ids and subjects are fresh in each)::

    class TestSQLiteJournal(JournalSuite):
        @pytest.fixture
        def make_journal(self, database): return lambda: JournalOf(database)

Journals made by two calls within one test must see the same runs. A journal whose ``start`` needs the subject to
exist overrides ``subject``.
"""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.base.context import Context
from kilonova.base.errors import Conflict, ErrorRecord, NotFound, RunSuperseded
from kilonova.base.flow import Event, Report, Run, Status, What
from kilonova.base.journal import Journal, Stale

NOW = datetime.datetime(2026, 8, 1, 12, 0, 0, 123000, tzinfo=datetime.UTC)
MakeJournal = Callable[[], Journal]


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def event(step: str, what: What, **more: Any) -> Event:
    return Event(step=step, what=what, at=NOW, **more)


def race(actions: list[Callable[[], object]]) -> list[object]:
    """The results of actions begun at once in threads of their own; an exception is a result too."""
    gate = threading.Barrier(len(actions))
    results: list[object] = [None] * len(actions)

    def act(number: int) -> None:
        gate.wait(10)
        try:
            results[number] = actions[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=act, args=(number,)) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


class JournalSuite:
    """The contract, a test for each sentence."""

    def subject(self) -> str:
        """What a run is about."""
        return str(uuid.uuid4())

    def begun(self, journal: Journal, **more: Any) -> Run:
        run = self.run(**more)
        journal.start(run)
        return run

    def run(self, **more: Any) -> Run:
        given: dict[str, Any] = {
            "id": str(uuid.uuid4()),
            "flow": "build",
            "subject": more.pop("subject", None) or self.subject(),
            "state": {"server": "s", "tries": 3, "nested": {"list": [1, None, "x"]}, "admin_pass": "hunter2"},
            "context": Context(request_id="req-1", user_id="u", project_id="p", roles=("member",)),
            "created_at": NOW,
        }
        return Run(**(given | more))

    def test_a_run_reads_back_as_it_was_entered(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.run()
        journal.start(run)
        again, events = make_journal().read(run.id)
        assert again == run
        assert events == []

    def test_an_unknown_run(self, make_journal: MakeJournal) -> None:
        journal, nobody = make_journal(), str(uuid.uuid4())
        with pytest.raises(NotFound):
            journal.read(nobody)
        assert not journal.acquire(nobody, "a", until=after(30), now=NOW)
        assert not journal.cancel(nobody, at=NOW)
        assert not journal.leased(nobody, now=NOW)
        assert not journal.append_report(Report(run=nobody, attempt=0, step="x", host="h"), at=NOW)

    def test_starting_an_id_twice_changes_nothing(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.STARTED)], expect=0)
        journal.start(self.run(id=run.id, subject=run.subject))
        assert journal.read(run.id)[0].seq == 1

    @pytest.mark.parametrize("held", [Status.RUNNING, Status.STUCK])
    def test_one_exclusive_run_holds_its_subject(self, make_journal: MakeJournal, held: Status) -> None:
        journal = make_journal()
        run = self.begun(journal)
        if held is Status.STUCK:
            journal.finish(run.id, Status.STUCK, expect=0, at=NOW)
        with pytest.raises(Conflict):
            journal.start(self.run(subject=run.subject))
        journal.start(self.run(subject=run.subject, exclusive=False))

    @pytest.mark.parametrize("status", [Status.DONE, Status.UNDONE, Status.CANCELLED])
    def test_an_ended_run_frees_its_subject(self, make_journal: MakeJournal, status: Status) -> None:
        journal = make_journal()
        run = self.begun(journal)
        if status is Status.CANCELLED:
            assert journal.cancel(run.id, at=NOW)
        else:
            journal.finish(run.id, status, expect=0, at=NOW)
        journal.start(self.run(subject=run.subject))

    def test_a_run_that_is_not_exclusive_holds_nothing(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal, exclusive=False)
        journal.start(self.run(subject=run.subject))

    def test_of_many_rivals_one_begins(self, make_journal: MakeJournal) -> None:
        subject = self.subject()
        journal = make_journal()
        runs = [self.run(subject=subject) for _ in range(6)]
        results = race([lambda run=run: journal.start(run) for run in runs])  # type: ignore[misc]
        assert [type(r).__name__ for r in results if r is not None] == ["Conflict"] * 5

    def test_events_are_numbered_and_read_back(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        error = ErrorRecord(kind="Boom", message="it", details="trace", facts={"a": 1})
        first = [event("one", What.STARTED), event("one", What.SUCCEEDED, output={"nics": [{"id": "n"}]})]
        second = [event("two", What.FAILED, error=error, host="h", note="why", public="compute_two")]
        journal.append(run.id, first, expect=0)
        journal.append(run.id, second, expect=2, task="spawning")
        again, events = make_journal().read(run.id)
        assert again.seq == 3
        assert [e.seq for e in events] == [1, 2, 3]
        assert [(e.step, e.what, e.output, e.error, e.host, e.note, e.public, e.at) for e in events] == [
            (e.step, e.what, e.output, e.error, e.host, e.note, e.public, e.at) for e in first + second
        ]

    def test_a_write_from_an_old_reading_is_refused_whole(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.STARTED)], expect=0)
        for expect in (0, 2):
            with pytest.raises(Stale):
                journal.append(run.id, [event("x", What.STARTED), event("y", What.STARTED)], expect=expect)
            with pytest.raises(Stale):
                journal.finish(run.id, Status.DONE, expect=expect, at=NOW)
        again, events = journal.read(run.id)
        assert (again.seq, again.status, len(events)) == (1, Status.RUNNING, 1)

    def test_of_many_writers_one_is_in_time(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        write = [event("one", What.STARTED)]
        results = race([lambda: journal.append(run.id, write, expect=0)] * 6)
        assert results.count(None) == 1
        assert all(isinstance(r, Stale) for r in results if r is not None), results
        assert len(journal.read(run.id)[1]) == 1

    @pytest.mark.parametrize("status", [Status.DONE, Status.UNDONE, Status.STUCK, Status.CANCELLED])
    def test_an_ended_run_refuses_every_write(self, make_journal: MakeJournal, status: Status) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.DISPATCHED, host="h")], expect=0)
        if status is Status.CANCELLED:
            journal.cancel(run.id, at=NOW)
        else:
            journal.finish(run.id, status, expect=1, at=NOW)
        with pytest.raises(RunSuperseded):
            journal.append(run.id, [event("one", What.SUCCEEDED)], expect=1)
        with pytest.raises(RunSuperseded):
            journal.finish(run.id, Status.DONE, expect=1, at=NOW)
        assert not journal.append_report(Report(run=run.id, attempt=0, step="one", host="h"), at=NOW)
        assert not journal.acquire(run.id, "a", until=after(30), now=NOW)
        assert run.id not in journal.due(now=after(99), limit=10000)

    def test_the_end_is_recorded_and_secrets_are_wiped(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.SUCCEEDED, output={"admin_pass": "new", "kept": 1})], expect=0)
        error = ErrorRecord(kind="Boom", message="it")
        journal.finish(
            run.id, Status.UNDONE, expect=1, at=after(5), error=error, wipe=frozenset({"admin_pass", "absent"})
        )
        again, events = journal.read(run.id)
        assert (again.status, again.error, again.finished_at) == (Status.UNDONE, error, after(5))
        assert again.state == {key: value for key, value in run.state.items() if key != "admin_pass"}
        assert events[0].output == {"kept": 1}

    def test_cancelling(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        assert journal.acquire(run.id, "a", until=after(30), now=NOW)
        assert journal.cancel(run.id, at=after(1), wipe=frozenset({"admin_pass"}))
        assert not journal.cancel(run.id, at=after(2))
        again, _ = journal.read(run.id)
        assert "admin_pass" not in again.state
        assert (again.status, again.finished_at) == (Status.CANCELLED, after(1))
        assert journal.leased(run.id, now=after(1)), "its driver may still work"
        journal.release(run.id, "a", due_at=None)
        assert not journal.leased(run.id, now=after(1))

    def test_a_stuck_run_can_be_cancelled_and_a_done_one_not(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        stuck, done = self.begun(journal), self.begun(journal)
        journal.finish(stuck.id, Status.STUCK, expect=0, at=NOW)
        journal.finish(done.id, Status.DONE, expect=0, at=NOW)
        assert journal.cancel(stuck.id, at=NOW)
        assert not journal.cancel(done.id, at=NOW)
        assert journal.read(done.id)[0].status is Status.DONE

    def test_a_report_is_taken_once_and_outdates_what_was_read(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.DISPATCHED, host="h")], expect=0)
        report = Report(run=run.id, attempt=0, step="one", host="h", output={"nics": []})
        assert journal.append_report(report, at=after(1))
        assert not journal.append_report(report, at=after(2))
        last = journal.read(run.id)[1][-1]
        assert (last.seq, last.what, last.output, last.host, last.at) == (
            2,
            What.SUCCEEDED,
            {"nics": []},
            "h",
            after(1),
        )
        with pytest.raises(Stale):
            journal.append(run.id, [event("two", What.STARTED)], expect=1)

    def test_a_report_of_failure(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.DISPATCHED, host="h")], expect=0)
        error = ErrorRecord(kind="Boom", message="it")
        assert journal.append_report(Report(run=run.id, attempt=0, step="one", host="h", error=error), at=NOW)
        assert (journal.read(run.id)[1][-1].what, journal.read(run.id)[1][-1].error) == (What.FAILED, error)

    def test_reports_nobody_waits_for(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.DISPATCHED), event("", What.AGAIN)], expect=0)
        journal.append(run.id, [event("one", What.UNDO_DISPATCHED), event("two", What.DISPATCHED)], expect=2)
        for attempt, step, undo in [(0, "one", False), (1, "one", False), (1, "two", True), (1, "x", False)]:
            report = Report(run=run.id, attempt=attempt, step=step, host="h", undo=undo)
            assert not journal.append_report(report, at=NOW), report
        assert journal.append_report(Report(run=run.id, attempt=1, step="one", host="h", undo=True), at=NOW)
        assert journal.read(run.id)[1][-1].what is What.UNDONE

    def test_a_parked_step_is_reported(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("confirm", What.STARTED)], expect=0)
        assert journal.append_report(Report(run=run.id, attempt=0, step="confirm", host=""), at=NOW)

    def test_of_many_equal_reports_one_is_taken(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.DISPATCHED, host="h")], expect=0)
        report = Report(run=run.id, attempt=0, step="one", host="h")
        results = race([lambda: journal.append_report(report, at=NOW)] * 6)
        assert sorted(map(str, results)) == ["False"] * 5 + ["True"]
        assert journal.read(run.id)[0].seq == 2

    def test_reports_of_two_steps_at_once_are_both_taken(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event(f"s{i}", What.DISPATCHED, host="h") for i in range(4)], expect=0)
        reports = [Report(run=run.id, attempt=0, step=f"s{i}", host="h") for i in range(4)]
        results = race([lambda r=r: journal.append_report(r, at=NOW) for r in reports])  # type: ignore[misc]
        assert results == [True] * 4
        assert [e.seq for e in journal.read(run.id)[1]] == list(range(1, 9))

    def test_leases(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        assert journal.acquire(run.id, "a", until=after(30), now=NOW)
        assert not journal.acquire(run.id, "b", until=after(30), now=after(1))
        assert journal.acquire(run.id, "a", until=after(60), now=after(29)), "one's own is renewed"
        assert not journal.acquire(run.id, "b", until=after(90), now=after(59))
        assert journal.leased(run.id, now=after(59))
        assert not journal.leased(run.id, now=after(61))
        assert journal.acquire(run.id, "b", until=after(99), now=after(61)), "one that ran out is taken over"
        journal.release(run.id, "a", due_at=None)
        assert journal.leased(run.id, now=after(62)), "who lost the lease cannot give it back"
        journal.release(run.id, "b", due_at=None)
        assert journal.acquire(run.id, "a", until=after(99), now=after(62))

    def test_of_many_drivers_one_gets_the_lease(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        results = race([lambda o=o: journal.acquire(run.id, o, until=after(30), now=NOW) for o in "abcdef"])  # type: ignore[misc]
        assert sorted(map(str, results)) == ["False"] * 5 + ["True"]

    def test_what_is_due(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        new, held, waits = self.begun(journal), self.begun(journal), self.begun(journal)
        ours = {new.id, held.id, waits.id}
        assert journal.acquire(held.id, "a", until=after(30), now=NOW)
        assert journal.acquire(waits.id, "a", until=after(30), now=NOW)
        journal.release(waits.id, "a", due_at=after(40))

        def due(seconds: float) -> set[str]:
            return ours & set(journal.due(now=after(seconds), limit=10000))

        assert due(1) == {new.id}
        assert due(31) == {new.id, held.id}
        assert due(41) == ours
        assert journal.read(waits.id)[0].due_at == after(40)
        assert len(journal.due(now=after(41), limit=2)) == 2

    def test_what_was_read_is_a_copy(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        run = self.begun(journal)
        journal.append(run.id, [event("one", What.SUCCEEDED, output={"list": [1]})], expect=0)
        again, events = journal.read(run.id)
        again.state["server"] = "other"
        events[0].output["list"].append(2)
        run.state["tries"] = 99
        kept, events = journal.read(run.id)
        assert (kept.state["server"], kept.state["tries"], events[0].output) == ("s", 3, {"list": [1]})
