"""Facts of a neighbour that are believed for some seconds, so that a hundred boots do not ask a hundred times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

V = TypeVar("V")

LIMIT = 10_000


class Memo(Generic[V]):
    """Values by key. ``load`` gets the keys that are not known and answers those that exist."""

    def __init__(self, load: Callable[[list[str]], dict[str, V]], *, seconds: float) -> None:
        self._load, self._seconds = load, seconds
        self._values: dict[str, tuple[float, V]] = {}
        self._lock = threading.Lock()

    def get(self, keys: Iterable[str]) -> dict[str, V]:
        """The values of those keys that exist; what does not exist is asked again each time."""
        now = time.monotonic()
        wanted = list(dict.fromkeys(keys))
        with self._lock:
            held = {key: self._values[key] for key in wanted if key in self._values}
        known = {key: value for key, (until, value) in held.items() if until > now}
        missing = [key for key in wanted if key not in known]
        if missing:
            loaded = self._load(missing)
            with self._lock:
                if len(self._values) > LIMIT:
                    self._values.clear()
                self._values.update({key: (now + self._seconds, value) for key, value in loaded.items()})
            known.update(loaded)
        return known

    def forget(self, key: str) -> None:
        """Ask again next time."""
        with self._lock:
            self._values.pop(key, None)
