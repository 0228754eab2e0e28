"""Publish and subscribe inside one process, to wake what waits. Nothing here is kept: who comes late asks the store.

``Signal`` is a bell: rung while nobody waits, it is remembered once. ``Hub`` passes what happened to subscribers::

    with hub.listen(("vif-plugged", port)) as signal:   # before asking, so that nothing is missed
        ask()
        if not signal.wait(300): raise ...
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from kilonova.base import log

LOG = log.of(__name__)


class Signal:
    """A bell between threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rung = False
        self.value: Any = None

    def ring(self, value: Any = None) -> None:
        """Wake one waiter, or the next one that comes; ``value`` is the last one rung with."""
        with self._condition:
            self._rung, self.value = True, value
            self._condition.notify()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it rings (or has rung since the last wait); False when ``seconds`` are over first."""
        with self._condition:
            heard = self._condition.wait_for(lambda: self._rung, seconds)
            self._rung = False
            return heard

    def wait_until(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``met`` answers True, asked at first and after each ring; False when the time is over."""
        deadline = time.monotonic() + seconds
        while not met():
            left = deadline - time.monotonic()
            if left <= 0 or not self.wait(left):
                return met()
        return True


class Hub:
    """Topics and who listens to them. A topic is any value that can be a key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: dict[Hashable, list[Callable[[Any], object]]] = {}

    def subscribe(self, topic: Hashable, callback: Callable[[Any], object]) -> Callable[[], None]:
        """Have ``callback`` called in the publisher's thread; it must be quick. Answers the way to end it."""
        with self._lock:
            self._subscribers.setdefault(topic, []).append(callback)

        def end() -> None:
            with self._lock, contextlib.suppress(ValueError):
                callbacks = self._subscribers.get(topic, [])
                callbacks.remove(callback)
                if not callbacks:
                    self._subscribers.pop(topic, None)

        return end

    def publish(self, topic: Hashable, value: Any = None) -> int:
        """Tell the subscribers; answers how many there were. One that fails is logged and hinders no other."""
        with self._lock:
            callbacks = list(self._subscribers.get(topic, ()))
        for callback in callbacks:
            try:
                callback(value)
            except Exception:
                LOG.exception("a subscriber of %s failed", topic)
        return len(callbacks)

    @contextlib.contextmanager
    def listen(self, topic: Hashable) -> Iterator[Signal]:
        """A signal that rings at each publishing of the topic."""
        signal = Signal()
        end = self.subscribe(topic, signal.ring)
        try:
            yield signal
        finally:
            end()
