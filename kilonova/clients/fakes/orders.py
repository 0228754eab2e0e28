"""Failures to order from a neighbour in memory, and the list of what it was asked."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kilonova.base.errors import Fault, NeighbourUnavailable

F = TypeVar("F", bound=Callable[..., Any])


class Orders:
    """What a fake shall do instead of its work. ``calls``: names of the methods called, in order."""

    def __init__(self, neighbour: str) -> None:
        self.neighbour = neighbour
        self.calls: list[str] = []
        self.down = False
        self._failures: dict[str, list[Exception]] = {}
        self._delays: dict[str, float] = {}
        self._hangs: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def fail(self, method: str, *, times: int = 1, error: Fault | None = None) -> None:
        """The next calls of ``method`` fail ("*": of any), as if the neighbour were broken where no error is given."""
        failure = error or NeighbourUnavailable(neighbour=self.neighbour, reason="it answered 500")
        with self._lock:
            self._failures.setdefault(method, []).extend([failure] * times)

    def slow(self, method: str, seconds: float) -> None:
        """Calls of ``method`` take so long from now on."""
        with self._lock:
            self._delays[method] = seconds

    def hang(self, method: str) -> threading.Event:
        """Calls of ``method`` wait until the event is set."""
        with self._lock:
            return self._hangs.setdefault(method, threading.Event())

    def obey(self, method: str) -> None:
        """Called at the start of every method of a fake."""
        with self._lock:
            self.calls.append(method)
            delay = self._delays.get(method, 0.0)
            hang = self._hangs.get(method)
            line = self._failures.get(method) or self._failures.get("*")
            failure = line.pop(0) if line else None
        if delay:
            time.sleep(delay)
        if hang is not None:
            hang.wait()
        if self.down:
            raise NeighbourUnavailable(neighbour=self.neighbour, reason="it refuses connections")
        if failure is not None:
            raise failure


def ordered(method: F) -> F:
    """Make a method of a fake obey ``self.orders`` first, and then work with ``self.lock`` held."""

    @functools.wraps(method)
    def obeying(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.orders.obey(method.__name__)
        with self.lock:
            return method(self, *args, **kwargs)

    return cast(F, obeying)
