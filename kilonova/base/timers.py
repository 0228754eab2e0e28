"""Work that comes again: many timers, one scheduling thread, a bounded pool. A thousand hosts need no thousand threads.

A timer never overlaps itself: the next run is due ``spacing`` seconds after the end of the last. Its work may answer
``Pause(seconds)`` to have another pause this time. What it raises is logged and counted, and it goes on.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from kilonova.base import log, telemetry
from kilonova.base.pool import Draining, Pool

LOG = log.of(__name__)


class Pause(NamedTuple):
    """What a timer's work may answer: how long until it runs again, this time."""

    seconds: float


class Timer:
    """One piece of work that comes again; made by ``Timers.every``."""

    def __init__(self, timers: Timers, work: Callable[[], object], *, name: str, spacing: float, jitter: float) -> None:
        self.name, self.spacing, self.jitter = name, spacing, jitter
        self.runs = 0
        self.failures = 0
        self._timers, self._work = timers, work
        self._running = False
        self._wanted = False
        self._stopped = False
        self._generation = 0

    def wake(self) -> None:
        """Run as soon as a thread is free; once more, when it is running now."""
        self._timers.wake(self)

    def stop(self, seconds: float = 0.0) -> bool:
        """No more runs; wait so long for one under way. False when it goes on."""
        return self._timers.stop(self, seconds)


class Timers:
    """The scheduler of all timers of a process."""

    def __init__(self, *, workers: int = 8, name: str = "timers") -> None:
        self._pool = Pool(workers, name)
        self._name = name
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, int, Timer]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def every(
        self,
        spacing: float,
        work: Callable[[], object],
        *,
        name: str,
        jitter: float = 0.0,
        first: float | None = None,
    ) -> Timer:
        """Run ``work`` again and again. ``jitter``: up to so many seconds are added to each pause, by a draw.

        ``first``: seconds until the first run (None: a draw within the spacing, so that a restart is no thunder).
        """
        timer = Timer(self, work, name=name, spacing=spacing, jitter=jitter)
        delay = random.uniform(0, spacing) if first is None else first
        with self._changed:
            self._schedule(timer, delay)
        return timer

    def once(self, delay: float, work: Callable[[], object], *, name: str) -> Timer:
        """Run ``work`` one time, after ``delay`` seconds."""

        def last() -> None:
            timer.stop()
            work()

        timer = Timer(self, last, name=name, spacing=0.0, jitter=0.0)
        with self._changed:
            self._schedule(timer, delay)
        return timer

    def _schedule(self, timer: Timer, delay: float) -> None:
        """With the lock held. An older entry of the timer counts no more: its generation is past."""
        if self._closed or timer._stopped:
            return
        timer._generation += 1
        heapq.heappush(self._heap, (time.monotonic() + delay, next(self._numbers), timer._generation, timer))
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"{self._name}-scheduler", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _loop(self) -> None:
        with self._changed:
            while not self._closed:
                if not self._heap:
                    self._changed.wait()
                    continue
                left = self._heap[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                _, _, generation, timer = heapq.heappop(self._heap)
                if generation == timer._generation and not timer._stopped and not timer._running:
                    timer._running = True
                    try:
                        self._pool.submit(self._run, timer)
                    except Draining:
                        return

    def _run(self, timer: Timer) -> None:
        answer: object = None
        try:
            if not timer._stopped:
                answer = timer._work()
        except Draining:
            LOG.info("the timer %s finds its service stopping", timer.name)
        except Exception:
            timer.failures += 1
            telemetry.timer_failed(timer.name)
            LOG.exception("the timer %s failed; it goes on", timer.name)
        finally:
            with self._changed:
                timer.runs += 1
                timer._running = False
                pause = answer.seconds if isinstance(answer, Pause) else timer.spacing
                delay = pause + random.uniform(0, timer.jitter)
                self._schedule(timer, 0.0 if timer._wanted else delay)
                timer._wanted = False
                self._changed.notify_all()

    def wake(self, timer: Timer) -> None:
        """See ``Timer.wake``."""
        with self._changed:
            if timer._running:
                timer._wanted = True
            else:
                self._schedule(timer, 0.0)

    def stop(self, timer: Timer, seconds: float = 0.0) -> bool:
        """See ``Timer.stop``."""
        with self._changed:
            timer._stopped = True
            return self._changed.wait_for(lambda: not timer._running, seconds)

    def close(self, seconds: float = 30.0) -> bool:
        """Stop all; True when what was under way has ended in time."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify_all()
        return self._pool.drain(seconds)
