"""The work that a host is given: done in order, one piece at a time for each server, every step reported.

Nothing is kept on disk: the conductor journals what it has sent, and sends again what was not reported. So a piece of
work may come twice, late, or after the run that it belongs to is over. What counts is what came last for a server:

* the same run, attempt and direction again: it is under way, nothing happens;
* the same run, a later attempt or the way back: what is under way is given up, this follows it;
* another run: the older one was cancelled or has ended, whatever still comes of it is dropped.

A report that nobody takes is kept and tried again; it holds up its server, not a thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from kilonova.base import context as contexts
from kilonova.base import log
from kilonova.base.errors import ErrorRecord, Fault, RunSuperseded, record_of
from kilonova.base.flow import Report, Work
from kilonova.base.pool import Draining, Pool
from kilonova.base.timers import Timers

LOG = log.of(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
REMEMBERED = 10_000
OVER_FOR = 900.0
"""Seconds for which a run that is over is remembered: longer than any message is on its way."""


class Job:
    """One piece of work on its way."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.context = contexts.current()
        self.order = (work.attempt, work.undo)
        self.next = 0
        self.pending: Report | None = None
        self.pause = FIRST_PAUSE
        self.given_up = threading.Event()
        self.running = False
        self.failed = False

    def covers(self, work: Work) -> bool:
        """Whether doing this does that work too: all its steps are done or will be. A step that has failed is not: the
        conductor may have heard of it already and want it tried again."""
        steps = self.work.steps[: self.next - 1] if self.failed else self.work.steps
        return {step.name for step in work.steps} <= {step.name for step in steps}

    def check(self) -> None:
        """RunSuperseded when the work is not wanted any more; steps ask between their parts."""
        if self.given_up.is_set():
            raise RunSuperseded()


Check = Callable[[], None]
Do = Callable[[str, dict[str, Any], Check], dict[str, Any]]
"""Run a method of the contract with the run's state and a check; its outputs."""


class Desk:
    """Takes the work of one host. ``interrupt`` is called with a server's id when work on it is given up."""

    def __init__(
        self,
        host: str,
        do: Do,
        *,
        report: Callable[[Report], bool],
        pool: Pool,
        timers: Timers,
        interrupt: Callable[[str], None] = lambda server: None,
    ) -> None:
        self._host, self._do, self._report = host, do, report
        self._pool, self._timers, self._interrupt = pool, timers, interrupt
        self._lines: dict[str, deque[Job]] = {}
        self._latest: OrderedDict[str, tuple[str, tuple[int, bool]]] = OrderedDict()
        self._over: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, work: Work) -> None:
        """Begin it now, or when the work on its server that is under way has ended."""
        job = Job(work)
        server = work.subject or work.run
        with self._lock:
            line = self._lines.get(server)
            if not self._is_news(server, job, line):
                return
            given_up = self._give_up(line, job) if line else False
            if line:
                line.append(job)
            else:
                self._lines[server] = deque([job])
        if given_up:
            self._interrupt(server)
        self._submit(server)

    def _is_news(self, server: str, job: Job, line: deque[Job] | None) -> bool:
        """With the lock held: whether the job is to be done; notes it as the latest of its server."""
        run, order = job.work.run, job.order
        if self._over.get(run, 0.0) > time.monotonic():
            LOG.info("work of run %s, which is over, is dropped", run)
            return False
        latest = self._latest.get(server)
        if latest is not None and latest[0] == run:
            if order < latest[1]:
                return False
            same = [other for other in line or () if other.work.run == run and other.order == order]
            if any(other.covers(job.work) for other in same):
                return False
        elif latest is not None:
            _note(self._over, latest[0])
        self._latest[server] = (run, order)
        self._latest.move_to_end(server)
        if len(self._latest) > REMEMBERED:
            self._latest.popitem(last=False)
        return True

    def _give_up(self, line: deque[Job], job: Job) -> bool:
        """With the lock held: older work of another run or attempt counts no more. Whether any was."""
        older = [j for j in line if (j.work.run, j.order) != (job.work.run, job.order) and not j.given_up.is_set()]
        for one in older:
            one.given_up.set()
        return bool(older)

    def forget(self, run: str) -> None:
        """The run is cancelled: give up its work, take none of it any more."""
        servers = []
        with self._lock:
            _note(self._over, run)
            for server, line in self._lines.items():
                for job in line:
                    if job.work.run == run:
                        job.given_up.set()
                        servers.append(server)
        for server in servers:
            self._interrupt(server)
            self._submit(server)

    def busy(self, server: str) -> bool:
        """Whether work on the server is under way."""
        with self._lock:
            return server in self._lines

    @property
    def open(self) -> int:
        """How many servers are worked on."""
        with self._lock:
            return len(self._lines)

    def building(self) -> int:
        """How many guests are being made."""
        with self._lock:
            heads = [line[0] for line in self._lines.values()]
        return sum(any(step.method == "spawn_guest" for step in head.work.steps) for head in heads)

    def _submit(self, server: str) -> None:
        with contextlib.suppress(Draining):
            self._pool.run(self._run, server)

    def _run(self, server: str) -> None:
        """Do the first job of the server's line, unless somebody does."""
        with self._lock:
            line = self._lines.get(server)
            if not line or line[0].running:
                return
            job = line[0]
            job.running = True
        ended = False
        try:
            with contexts.acting(job.context):
                ended = self._advance(job)
        finally:
            job.running = False
        if not ended:
            pause, job.pause = job.pause, min(job.pause * 2, LONGEST_PAUSE)
            self._timers.once(pause, lambda: self._submit(server), name="report again")
            return
        with self._lock:
            line.popleft()
            if not line:
                del self._lines[server]
                return
        self._submit(server)

    def _advance(self, job: Job) -> bool:
        """Go through the steps. False when a report could not be given: it is tried again later."""
        while not job.given_up.is_set():
            if job.pending is not None:
                go_on = self._deliver(job)
                if go_on is None:
                    return False
                if not go_on:
                    break
                continue
            if job.next == len(job.work.steps):
                break
            self._do_next(job)
        return True

    def _do_next(self, job: Job) -> None:
        work, step = job.work, job.work.steps[job.next]
        output: dict[str, Any] = {}
        error: ErrorRecord | None = None
        try:
            output = self._do(step.method, work.state, job.check)
            work.state.update(output)
        except RunSuperseded:
            return
        except Exception as failure:
            foreign = not isinstance(failure, Fault)
            what = f"{step.method} of run {work.run} on server {work.subject}"
            LOG.warning("%s failed: %s", what, failure, exc_info=foreign)
            error = record_of(failure)
            job.failed = True
        job.next += 1
        job.pending = Report(
            run=work.run,
            attempt=work.attempt,
            step=step.name,
            host=self._host,
            undo=work.undo,
            output=output,
            error=error,
            where=work.where,
        )

    def _deliver(self, job: Job) -> bool | None:
        """Whether to go on; None when nobody took the report."""
        assert job.pending is not None
        try:
            wanted = self._report(job.pending)
        except Exception as failure:
            step = job.pending.step
            LOG.warning("run %s: %s was not reported, again in %.1f s: %s", job.work.run, step, job.pause, failure)
            return None
        job.pending, job.pause = None, FIRST_PAUSE
        return wanted and not job.failed


def _note(known: OrderedDict[str, float], run: str) -> None:
    known[run] = time.monotonic() + OVER_FOR
    if len(known) > REMEMBERED:
        known.popitem(last=False)
