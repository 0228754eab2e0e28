"""A world in which several runs go on at once, in one thread: whatever happens, happens at a point with a number.

Points are before and after each write to a database, before each call of a neighbour, around each step of a host and
inside the making of a guest. At each of them something else may happen: a user's delete, the end of the conductor's
process. The hosts' desks are the real ones; their threads and timers are lines that the play works off.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kilonova.api.servers.delete import delete_server
from kilonova.base.context import Context
from kilonova.base.engine import Engine, plain
from kilonova.base.errors import DatabaseUnavailable, ServerNotFound
from kilonova.base.flow import Report, Run, Work
from kilonova.compute.steps import perform
from kilonova.compute.work import Check, Desk
from kilonova.flows.registry import FLOWS
from kilonova.store import runs, servers
from kilonova.store.journal import DatabaseJournal
from kilonova.store.mending import unfinished
from kilonova.store.session import Database
from tests.flows.stage import BEGIN, RUN, TIMING, Crash
from tests.flows.world import HOSTS, PROJECT, SERVER, WHERE, World, spec

At = Callable[["Cloud"], None]


class _Lines:
    """What is to be done now, and what later."""

    def __init__(self) -> None:
        self.now: collections.deque[Callable[[], object]] = collections.deque()
        self.later: list[Callable[[], object]] = []


class _Process:
    """In the place of a host's pool and timers. What a process that is gone had in its lines is not done any more."""

    def __init__(self, lines: _Lines) -> None:
        self._lines, self.gone = lines, False

    def _while_it_lives(self, work: Callable[[], object]) -> None:
        if not self.gone:
            work()

    def run(self, function: Callable[..., object], /, *args: Any) -> None:
        self._lines.now.append(functools.partial(self._while_it_lives, functools.partial(function, *args)))

    def once(self, delay: float, work: Callable[[], object], *, name: str) -> None:
        self._lines.later.append(functools.partial(self._while_it_lives, work))


class Cloud(World):
    """``at``: what happens at which point, once each. ``down``: hosts that are."""

    def __init__(self, scene: Callable[[World], object], at: dict[int, At] | None = None) -> None:
        super().__init__("cell", scene)
        self.time, self.now = BEGIN, lambda: self.time
        self.at, self.points, self.seen = dict(at or {}), 0, list[str]()
        self.down: set[str] = set()
        self.dead = self._within = False
        self.withdrawn = False
        self.lines = _Lines()
        self.processes: dict[str, _Process] = {}
        self.desks = {host: self._desk(host) for host in HOSTS}
        self._stepping = ""
        self.life = 0
        self.engines = self._new_engines()
        for name, database in self.databases.items():
            database.write = functools.partial(self._write, database, name)  # type: ignore[method-assign]
        for fake in (self.neighbours.placement, self.neighbours.neutron, self.neighbours.cinder):
            fake.orders.obey = functools.partial(self._point_at, fake.orders.neighbour)  # type: ignore[method-assign]
        take = self.orders.take
        self.orders.take = lambda method, host, server: self.point(f"{method} on {host}") or take(method, host, server)  # type: ignore[method-assign]

    # --- points

    def _write(self, database: Database, name: str, fn: Callable[..., Any]) -> Any:
        if self.dead:
            raise Crash("a write of a dead process")
        self.point(f"before a write to {name}")
        result = Database.write(database, fn)
        self.point(f"after a write to {name}")
        return result

    def _point_at(self, neighbour: str, method: str) -> None:
        self.point(f"{neighbour}.{method}")

    def point(self, name: str) -> None:
        """Something is about to happen, or just has."""
        if self._within or not self.life:
            return
        self.points += 1
        self.seen.append(name)
        happening = self.at.pop(self.points, None)
        if happening is not None:
            self._within = True
            try:
                happening(self)
            finally:
                self._within = False

    # --- conductors and hosts

    def _new_engines(self) -> dict[str, Engine]:
        return {
            where: Engine(
                FLOWS,
                DatabaseJournal(self.databases[name]),
                self,
                env=lambda run, where=where, name=name: self.env_of(run, where, self.databases[name]),  # type: ignore[misc]
                where=where,
                timing=TIMING,
                clock=self.now,
            )
            for name, where in WHERE.items()
        }

    def _conductor(self, work: Callable[[], object]) -> bool:
        """Whether the process has lived through it; if not, there is another one now."""
        try:
            work()
        except Crash:
            self.dead = False
            self.woken.clear()
            self.engines = self._new_engines()
            return False
        return True

    def send(self, host: str, work: Work) -> None:
        self.processes[host].run(self.desks[host].take, work)

    def is_up(self, host: str) -> bool:
        return host not in self.down

    def forget(self, host: str, run: str) -> None:
        if host not in self.down:
            self.desks[host].forget(run)

    def _desk(self, host: str) -> Desk:
        """That of a new process on the host; the one before is gone, its guests stay."""
        if host in self.processes:
            self.processes[host].gone = True
        process: Any = _Process(self.lines)
        self.processes[host] = process
        return Desk(host, functools.partial(self._step, host), report=self._report, pool=process, timers=process)

    def _step(self, host: str, method: str, state: dict[str, Any], check: Check) -> dict[str, Any]:
        self._stepping = host
        try:
            self.point(f"{method} begins on {host}")
            done = perform(self.tools(host), method, state, check)
            self.point(f"{method} is done on {host}")
        except Crash:
            self.dead = False
            self.desks[host] = self._desk(host)
            raise
        finally:
            self._stepping = ""
        return done

    def _report(self, report: Report) -> bool:
        taken: list[bool] = []
        if not self._conductor(lambda: taken.append(self.engines[report.where].report(report))):
            raise DatabaseUnavailable(where="the conductor that died")
        if taken[0]:
            self.wake(report.run, report.where)
        return taken[0]

    def go_down(self, host: str) -> None:
        """The host is gone: what it did is lost, its guests stay."""
        self.down.add(host)
        if self._stepping == host:
            raise Crash
        self.desks[host] = self._desk(host)

    def join(self, host: str) -> None:
        """The host is back: it asks what it should hold, and removes the rest."""
        expected = self.databases["cell"].query(lambda tx: servers.expected(tx, host))
        for guest in self.drivers[host].guests():
            if guest not in expected:
                self.drivers[host].remove_guest(guest)
        self.down.discard(host)

    # --- users

    def schedule(self, *uuids: str, volumes: bool = True) -> None:
        """The run that a create starts."""
        state = plain({"servers": list(uuids), "request": spec(volume_backed=volumes)})
        self.start(Run(id=RUN, flow="schedule", subject="r-1", state=state, context=CONTEXT, created_at=BEGIN), "api")

    def start(self, run: Run, name: str) -> None:
        DatabaseJournal(self.databases[name]).start(run)
        self.wake(run.id, WHERE[name])

    def delete(self, server: str = SERVER) -> None:
        """The request as the API answers it. ServerNotFound."""
        conductor = SimpleNamespace(wake=self.wake)
        call = SimpleNamespace(
            params={"server_id": server},
            context=CONTEXT,
            authorize=lambda *_, **__: None,
            services=SimpleNamespace(cells=self.cells, conductor=lambda cell: conductor),
        )
        delete_server(call)  # type: ignore[arg-type]

    def others_drive(self) -> None:
        """Another conductor drives what was woken, as far as it goes."""
        others = self._new_engines()
        for run, where in list(self.woken):
            others[where].advance(run)

    def crash(self) -> None:
        """The process that does this is gone."""
        self.dead = True
        raise Crash

    # --- the play

    def play(self, *, limit: int = 600) -> None:
        """Until nothing is under way any more."""
        self.life = self.life or 1
        for _ in range(limit):
            if self.woken:
                run, where = self.woken.pop(0)
                self._conductor(functools.partial(self.engines[where].advance, run))
            elif self.lines.now:
                with contextlib.suppress(Crash):
                    self.lines.now.popleft()()
            elif not any(self.stories()):
                return
            else:
                self._let_time_pass()
        raise AssertionError(f"it does not end: {self.stories()}")

    def _let_time_pass(self) -> None:
        self.time += datetime.timedelta(seconds=TIMING.lease / 2)
        self.lines.now.extend(self.lines.later)
        self.lines.later.clear()
        for where, engine in self.engines.items():
            self.woken += [(run, where) for run in engine.due()]

    def stories(self) -> list[str]:
        """What is under way, for people."""
        logs = [log for database in self.databases.values() for log in database.query(unfinished)]
        return [f"{run.flow} {run.status.value}: {[(e.step, e.what.value) for e in log[-6:]]}" for run, log in logs]

    def actions(self, server: str = SERVER, *, kind: str = "cell") -> list[tuple[str, str]]:
        """What users see of a server's past: (action, how it ended)."""
        found = self.databases[kind].query(lambda tx: runs.runs(tx, subject=server))
        return [(run.action, run.status.value) for run, _ in found if run.action]

    def close(self) -> None:
        """The databases are for other worlds now."""
        for database in self.databases.values():
            del database.write  # type: ignore[attr-defined]


CONTEXT = Context(request_id="req-of-the-play", user_id="user", project_id=PROJECT)


def at_every_point(
    make: Callable[[], Cloud],
    *happenings: At,
    judge: Callable[[Cloud], None],
    until: Callable[[str], bool] = lambda name: False,
) -> None:
    """Play once undisturbed to count the points, then once for each point and happening; all that fails is told.

    ``until``: the name of the point before which it is enough.
    """
    first = make()
    first.play()
    first.close()
    failures = []
    count = next((number for number, name in enumerate(first.seen) if until(name)), first.points)
    for number in range(1, count + 1):
        for happening in happenings:
            cloud = make()
            cloud.at = {number: happening}
            try:
                cloud.play()
                judge(cloud)
            except (AssertionError, ServerNotFound) as error:
                failures.append(f"{happening.__name__} at {number}, {cloud.seen[number - 1]}: {error}")
            finally:
                cloud.close()
    assert not failures, f"{len(failures)} of {count} x {len(happenings)}:\n" + "\n".join(failures[:12])


# --- what may happen


def deleted_later(cloud: Cloud) -> None:
    cloud.delete()


def deleted_at_once(cloud: Cloud) -> None:
    cloud.delete()
    cloud.others_drive()


def crashed(cloud: Cloud) -> None:
    cloud.crash()


def crashed_and_deleted(cloud: Cloud) -> None:
    cloud.delete()
    cloud.crash()


def crashed_and_deleted_at_once(cloud: Cloud) -> None:
    cloud.delete()
    cloud.others_drive()
    cloud.crash()
