"""A service: what it starts, the work it takes, its timers, and how it ends. Native threads only.

    service = Service("nova-conductor", workers=16, drain_seconds=60)
    service.serve(lambda: bus.serve("conductor", host, handler))     # answers the way to stop taking work
    service.every(10, engine.renew_leases, name="renew leases")
    service.on_reread(lambda: config.reread(conf))
    service.on_stop(bus.close)
    sys.exit(run_forever([service]))

To stop is to drain: first nothing new is taken, then the work under way may end within its limit (timers and the pool
keep their threads until then), then what the service holds is closed, last opened first. Many services may live in one
process: ``start`` and ``stop`` need no signals, and ``Timers`` may be shared.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from kilonova.base import log, systemd
from kilonova.base.pool import Pool
from kilonova.base.timers import Timer, Timers

R = TypeVar("R")

LOG = log.of(__name__)

Hook = Callable[[], object]

_DRAINED = 0  # what the draining threads say among the numbers of signals


class Service:
    """One service of the process. Whatever is declared before ``start`` begins with it, in order."""

    def __init__(
        self, name: str, *, workers: int = 8, drain_seconds: float = 60.0, timers: Timers | None = None
    ) -> None:
        self.name, self.drain_seconds = name, drain_seconds
        self.pool = Pool(workers, name)
        self.timers = timers or Timers(workers=4, name=f"{name}-timers")
        self._shares_timers = timers is not None
        self._begins: list[Callable[[], Hook | None]] = []
        self._ends: list[Hook] = []
        self._closers: list[Hook] = []
        self._rereads: list[Hook] = []
        self._health: list[Callable[[], bool]] = []
        self._timers_of_mine: list[Timer] = []
        self._lock = threading.Lock()
        self._state = "new"

    @property
    def state(self) -> str:
        """new, running, draining or stopped."""
        return self._state

    def serve(self, begin: Callable[[], Hook | None]) -> None:
        """At the start call ``begin``; what it answers is called when the service is to take no more work."""
        self._begins.append(begin)

    def on_start(self, hook: Hook) -> None:
        """Call it at the start, in the order of declaration."""

        def begin() -> None:
            hook()

        self._begins.append(begin)

    def on_stop(self, hook: Hook) -> None:
        """Call it when all work has ended (or its time is over); the last one declared first."""
        self._closers.append(hook)

    def on_reread(self, hook: Hook) -> None:
        """Call it when the configuration is to be read again."""
        self._rereads.append(hook)

    def healthy_while(self, check: Callable[[], bool]) -> None:
        """The watchdog is fed only while every check answers True."""
        self._health.append(check)

    def every(
        self,
        spacing: float,
        work: Hook,
        *,
        name: str,
        jitter: float = 0.0,
        first: float | None = None,
    ) -> None:
        """A timer that lives as long as the service; see ``Timers.every``. For one to wake, make it in ``serve``."""

        def begin() -> None:
            timer = self.timers.every(spacing, work, name=name, jitter=jitter, first=first)
            self._timers_of_mine.append(timer)

        self._begins.append(begin)

    def timer(self, spacing: float, work: Hook, *, name: str, jitter: float = 0.0, first: float | None = None) -> Timer:
        """A timer begun now, of a service that runs already; it ends with the service."""
        timer = self.timers.every(spacing, work, name=name, jitter=jitter, first=first)
        self._timers_of_mine.append(timer)
        return timer

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Run it on the service's pool; Draining when the service is being stopped."""
        return self.pool.submit(function, *args, **kwargs)

    def start(self) -> None:
        """Begin everything, in order. When one part fails, what has begun is ended, and the error is raised."""
        with self._lock:
            if self._state != "new":
                raise RuntimeError(f"{self.name} has been started before")
            self._state = "running"
        try:
            for begin in self._begins:
                end = begin()
                if end is not None:
                    self._ends.append(end)
        except BaseException:
            self.stop(0.0)
            raise
        LOG.info("%s runs", self.name)

    def stop(self, seconds: float | None = None) -> bool:
        """Drain, then close; True when all work ended within the limit. Stopping twice changes nothing."""
        with self._lock:
            if self._state in ("draining", "stopped"):
                return True
            self._state = "draining"
        limit = self.drain_seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        LOG.info("%s stops: %d pieces of work under way", self.name, self.pool.open)
        self._call(reversed(self._ends))
        ended = self.pool.drain(_left(deadline))
        for timer in self._timers_of_mine:
            timer.stop()
        ended = all(timer.stop(_left(deadline)) for timer in self._timers_of_mine) and ended
        if not self._shares_timers:
            ended = self.timers.close(_left(deadline)) and ended
        self._call(reversed(self._closers))
        self._state = "stopped"
        if not ended:
            LOG.warning("%s left work undone after %.0f s; its journal says where to go on", self.name, limit)
        return ended

    def reread(self) -> None:
        """Read the configuration again; a hook that fails is logged and leaves things as they were."""
        self._call(self._rereads)

    def is_healthy(self) -> bool:
        """Whether it runs and every check agrees."""
        try:
            return self._state == "running" and all(check() for check in self._health)
        except Exception:
            LOG.exception("a health check of %s failed", self.name)
            return False

    def _call(self, hooks: Iterator[Hook] | Sequence[Hook]) -> None:
        for hook in hooks:
            try:
                hook()
            except Exception:
                LOG.exception("%s: %s failed", self.name, getattr(hook, "__qualname__", hook))


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


@contextlib.contextmanager
def running(*services: Service) -> Iterator[None]:
    """Services started for a block, e.g. of a test, and stopped after it, last one first."""
    begun: list[Service] = []
    try:
        for service in services:
            service.start()
            begun.append(service)
        yield
    finally:
        for service in reversed(begun):
            service.stop()


def run_forever(services: Sequence[Service]) -> int:
    """Start the services and serve until a signal; for the main thread of a process. Answers its exit status.

    SIGTERM and SIGINT drain (0 when all work ended in time, else 1); a second one ends at once. SIGHUP rereads.
    """
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda n, _: heard.put(n)) for number in signals}
    begun: list[Service] = []
    try:
        for service in services:
            service.start()
            begun.append(service)
        systemd.ready("serving")
        _serve_until_told(begun, heard)
        return _drain(begun, heard)
    finally:
        for service in reversed(begun):
            service.stop(0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve_until_told(services: Sequence[Service], heard: queue.SimpleQueue[int]) -> None:
    pause = systemd.watchdog_seconds()
    while True:
        try:
            number = heard.get(timeout=pause)
        except queue.Empty:
            if all(service.is_healthy() for service in services):
                systemd.alive()
            continue
        if number != signal.SIGHUP:
            return
        systemd.reloading()
        for service in services:
            service.reread()
        systemd.ready("serving")


def _drain(services: Sequence[Service], heard: queue.SimpleQueue[int]) -> int:
    """Stop all at once, each within its limit; a further SIGTERM does not wait."""
    systemd.stopping(max((service.drain_seconds for service in services), default=0.0))
    results: list[bool] = []

    def stop_all() -> None:
        threads = [threading.Thread(target=lambda s=s: results.append(s.stop()), daemon=True) for s in services[::-1]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heard.put(_DRAINED)

    threading.Thread(target=stop_all, name="drain", daemon=True).start()
    while True:
        number = heard.get()
        if number == _DRAINED:
            return 0 if len(results) == len(services) and all(results) else 1
        if number != signal.SIGHUP:
            LOG.warning("told to end a second time: not waiting for the work under way")
            return 1
