"""A bounded pool of threads that can be drained: stop taking work, wait for what is under way, up to a limit.

The standard library's pool waits at the end of the process for whatever its threads do; a service that is told to end
must end in its time, so the threads here are daemons, and what they left undone stands in a journal.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kilonova.base import log

R = TypeVar("R")

LOG = log.of(__name__)


class Draining(RuntimeError):
    """The pool takes no more work: the service stops."""


class Pool:
    """Runs functions in at most ``workers`` threads; more wait in a line."""

    def __init__(self, workers: int, name: str) -> None:
        self._workers, self._name = max(workers, 1), name
        self._line: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._open = 0
        self._idle = 0
        self._draining = False

    @property
    def open(self) -> int:
        """How much work is under way or in the line."""
        return self._open

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Have it run on behalf of the caller's context. Draining once the pool has been told to end."""
        future: Future[R] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = context.run(function, *args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._changed:
            if self._draining:
                raise Draining(f"{self._name} takes no more work")
            self._open += 1
            if self._open > len(self._threads) and len(self._threads) < self._workers:
                thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._line.put(run)
        return future

    def run(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """As ``submit``, for work whose result nobody reads: what it raises is logged."""
        self.submit(function, *args, **kwargs).add_done_callback(self._log_failure)

    def _log_failure(self, future: Future[object]) -> None:
        if not future.cancelled() and future.exception() is not None:
            LOG.error("work in %s failed", self._name, exc_info=future.exception())

    def _work(self) -> None:
        while True:
            work = self._line.get()
            if work is None:
                return
            try:
                work()
            finally:
                with self._changed:
                    self._open -= 1
                    self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Take no more work and wait for what there is; True when all has ended. The line is dropped after that."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._draining = True
            ended = self._changed.wait_for(lambda: self._open == 0, max(deadline - time.monotonic(), 0))
        for _ in self._threads:
            self._line.put(None)
        return ended
