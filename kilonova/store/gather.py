"""The same question to several databases at once, each with a time limit.

A frozen database keeps the thread that asked it until its driver gives up; who asked goes on without its answer.
So that a long freeze does not pile up threads, only so many may wait for one database: the next ones wait for room,
within their own limit.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from kilonova.base.errors import DatabaseUnavailable
from kilonova.store.session import Database, Tx

R = TypeVar("R")
_AT_ONCE = 32


class Gathered(msgspec.Struct, Generic[R]):
    """The answers by cell, and why each cell that gave none did not."""

    found: dict[str, R]
    down: dict[str, str]


class Places:
    """How many may wait for each database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, threading.Semaphore] = {}

    def of(self, cell: str) -> threading.Semaphore:
        """The places of a cell."""
        with self._lock:
            return self._places.setdefault(cell, threading.Semaphore(_AT_ONCE))


def gather(databases: Mapping[str, Database], fn: Callable[[Tx], R], *, timeout: float, places: Places) -> Gathered[R]:
    """The answers of all databases that give one within ``timeout`` seconds. What ``fn`` raises is raised here.

    Files (SQLite) cannot freeze: they are asked in this thread.
    """
    gathered: Gathered[R] = Gathered(found={}, down={})
    deadline = time.monotonic() + timeout
    answers: queue.SimpleQueue[tuple[str, R | BaseException]] = queue.SimpleQueue()
    waiting: set[str] = set()
    crowded = []
    for cell, database in databases.items():
        if not database.remote:
            continue
        if places.of(cell).acquire(blocking=False):
            waiting.add(cell)
            _ask(cell, database, fn, answers=answers, place=places.of(cell))
        else:
            crowded.append(cell)
    for cell, database in databases.items():
        if not database.remote:
            _take(gathered, cell, _answer(database, fn))
    for cell in crowded:
        if places.of(cell).acquire(timeout=max(0.0, deadline - time.monotonic())):
            waiting.add(cell)
            _ask(cell, databases[cell], fn, answers=answers, place=places.of(cell))
        else:
            gathered.down[cell] = f"too many requests wait for {databases[cell].name}"
    while waiting:
        try:
            cell, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        waiting.discard(cell)
        _take(gathered, cell, answer)
    for cell in waiting:
        gathered.down[cell] = f"{databases[cell].name} gave no answer in {timeout:g} s"
    return gathered


def _ask(
    cell: str,
    database: Database,
    fn: Callable[[Tx], R],
    *,
    answers: queue.SimpleQueue[tuple[str, R | BaseException]],
    place: threading.Semaphore,
) -> None:
    context = contextvars.copy_context()

    def ask() -> None:
        try:
            answers.put((cell, context.run(_answer, database, fn)))
        finally:
            place.release()

    # A daemon: the process may end while a frozen database holds it.
    threading.Thread(target=ask, name=f"ask-{database.name}", daemon=True).start()


def _answer(database: Database, fn: Callable[[Tx], R]) -> R | BaseException:
    try:
        return database.query(fn)
    except Exception as error:
        return error


def _take(gathered: Gathered[R], cell: str, answer: R | BaseException) -> None:
    if isinstance(answer, DatabaseUnavailable):
        gathered.down[cell] = answer.message
    elif isinstance(answer, BaseException):
        raise answer
    else:
        gathered.found[cell] = answer
