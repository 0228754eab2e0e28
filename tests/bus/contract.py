"""A contract for tests, and the server that keeps it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast

import msgspec

from kilonova.base import context as contexts
from kilonova.base.errors import ServerBusy
from kilonova.base.rpc import since

LIMIT = 30.0
_numbers = itertools.count(1)


class Echoed(msgspec.Struct):
    text: str
    number: int
    user: str


class Echo(Protocol):
    topic: ClassVar[str] = "echo"
    version: ClassVar[str] = "1.2"

    def echo(self, *, text: str, number: int = 7) -> Echoed: ...

    def fail(self, *, how: str) -> str: ...

    def tell(self, *, text: str) -> None: ...

    def linger(self, *, text: str) -> str: ...

    def place(self) -> str: ...

    @since("1.2")
    def newest(self) -> str: ...


def fresh() -> Any:
    """The contract under a topic of its own, so that tests do not meet."""
    return type("FreshEcho", (Echo,), {"topic": f"echo{next(_numbers)}"})


class Server:
    """Keeps the contract; ``gate`` lets those who linger go."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.told: list[str] = []
        self.begun = threading.Event()
        self.gate = threading.Event()

    def echo(self, *, text: str, number: int) -> Echoed:
        return Echoed(text, number, contexts.current().user_id)

    def fail(self, *, how: str) -> str:
        if how == "busy":
            raise ServerBusy(action="stop", server="s", attribute="vm_state", state="building")
        raise KeyError("/etc/secret-path")

    def tell(self, *, text: str) -> None:
        if text == "fail":
            raise ValueError(text)
        self.told.append(text)

    def linger(self, *, text: str) -> str:
        self.begun.set()
        self.gate.wait(LIMIT)
        self.told.append(text)
        return text

    def place(self) -> str:
        return self.name

    def newest(self) -> str:
        return "new"


def until(met: Callable[[], object], seconds: float = LIMIT) -> None:
    """Poll for a condition; fails when it is not met in time."""
    pause = threading.Event()
    assert any(met() or pause.wait(0.02) for _ in range(int(seconds / 0.02))), "not in time"


def as_echo(peer: object) -> Echo:
    return cast(Echo, peer)
