"""Typed RPC: a Protocol says what may be called, a bus carries it.

A contract is a Protocol with ``topic`` and ``version``; its methods take keyword-only arguments of plain types and
msgspec structs. A method that returns None is a cast (nobody waits, nobody learns of its failure), every other one
a call. Minor versions only add: a new method is marked ``@since``, a new argument has a default, and unknown fields
are ignored, so an older peer understands a newer one as long as it calls nothing newer::

    class Compute(Protocol):
        topic, version = "compute", "1.1"
        def console_output(self, *, server: str, length: int | None) -> str: ...
        @since("1.1")
        def forget(self, *, run: str) -> None: ...

    text = client(Compute, bus, host="cmp-7", cap="1.0").console_output(server=..., length=None)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from kilonova.base import context as contexts
from kilonova.base import log, telemetry
from kilonova.base.errors import ErrorRecord, Fault, NewerPeerNeeded, fault_of, record_of

LOG = log.of(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TIMEOUT = 60.0


class Bus(Protocol):
    """Carries encoded messages between processes (or inside one)."""

    def call(self, target: Target, message: bytes, timeout: float) -> bytes:
        """Send and wait for the answer; BusTimeout or NoSuchPeer when there is none."""

    def cast(self, target: Target, message: bytes) -> None:
        """Send and go on. With ``target.fanout`` to every server of the topic."""

    def serve(self, topic: str, host: str, handler: Handler, *, workers: int = 8) -> Callable[[], None]:
        """Answer for (topic, host), and for the topic with no host named; returns a function that stops it."""

    def close(self) -> None:
        """Stop everything and wait for the work under way."""


class Target(NamedTuple):
    """Where a message goes: any server of ``topic``, the one named ``host``, or with ``fanout`` all of them."""

    topic: str
    host: str | None = None
    version: str = "1.0"
    method: str = ""
    fanout: bool = False

    def __str__(self) -> str:
        return f"{self.topic}.{self.host}" if self.host else self.topic


Handler = Callable[[bytes], bytes]


class Request(msgspec.Struct, omit_defaults=True):
    """A message: which method, with what, for whom."""

    method: str
    args: msgspec.Raw
    context: contexts.Context = contexts.Context()


class Answer(msgspec.Struct, omit_defaults=True):
    """What comes back: a result or an error."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: ErrorRecord | None = None


class Method(NamedTuple):
    """One method of a contract, read from its signature."""

    name: str
    since: str
    arguments: type[msgspec.Struct]
    returns: Any
    is_cast: bool


def since(version: str) -> Callable[[F], F]:
    """Mark a contract's method with the version that brought it."""

    def mark(method: F) -> F:
        method.__since__ = version  # type: ignore[attr-defined]  # a mark of ours
        return method

    return mark


@functools.cache
def methods(contract: type) -> Mapping[str, Method]:
    """The methods of a contract by name."""
    found = {}
    inherited = {name: value for base in reversed(contract.__mro__) for name, value in vars(base).items()}
    for name, function in inherited.items():
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        hints = typing.get_type_hints(function, include_extras=True)
        returns = hints.pop("return", type(None))
        found[name] = Method(
            name,
            getattr(function, "__since__", "1.0"),
            _arguments(f"{contract.__name__}_{name}", function, hints),
            returns,
            returns is type(None),
        )
    return found


def _arguments(name: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise TypeError(f"{name}: the argument {parameter.name} must be keyword-only")
        hint = hints[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    return msgspec.defstruct(name, fields, kw_only=True)


def order(version: str) -> tuple[int, ...]:
    """A version as something that compares."""
    return tuple(int(part) for part in version.split("."))


class _Client:
    """Sends what it is asked, typed by the contract."""

    def __init__(self, contract: Any, bus: Bus, **how: Any) -> None:
        self._contract, self._bus, self._how = contract, bus, how

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = methods(self._contract).get(name)
        if method is None:
            raise AttributeError(f"{self._contract.__name__} has no method {name}")
        return functools.partial(self._send, method)

    def _send(self, method: Method, /, **args: Any) -> Any:
        how, topic = self._how, self._contract.topic
        cap = how["cap"] or self._contract.version
        if order(method.since) > order(cap):
            raise NewerPeerNeeded(method=method.name, need=method.since, target=topic, have=cap)
        raw = msgspec.Raw(msgspec.json.encode(method.arguments(**args)))
        message = msgspec.json.encode(Request(method.name, raw, contexts.current()))
        target = Target(topic, how["host"], method.since, method.name, how["fanout"])
        if method.is_cast:
            self._bus.cast(target, message)
            return None
        answer = msgspec.json.decode(self._bus.call(target, message, how["timeout"]), type=Answer)
        if answer.error is not None:
            raise fault_of(answer.error)
        return msgspec.json.decode(answer.result, type=method.returns)


def client(
    contract: type[T],
    bus: Bus,
    *,
    host: str | None = None,
    cap: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    fanout: bool = False,
) -> T:
    """An object with the methods of ``contract``, each of which sends a message.

    ``cap`` is the version of the oldest peer that may answer: anything newer raises NewerPeerNeeded before sending.
    """
    return typing.cast(T, _Client(contract, bus, host=host, cap=cap, timeout=timeout, fanout=fanout))


def handler(contract: Any, implementation: object) -> Handler:
    """The function from message to answer that serves ``contract`` by ``implementation``. It never raises."""
    known = methods(contract)

    def handle(message: bytes) -> bytes:
        begun, name, outcome = time.monotonic(), "?", "ok"
        try:
            request = msgspec.json.decode(message, type=Request)
            method = known.get(request.method)
            if method is not None:
                name = method.name
            else:
                have = {"target": contract.topic, "have": contract.version}
                raise NewerPeerNeeded(method=request.method, need="a newer version", **have)
            arguments = msgspec.json.decode(request.args, type=method.arguments)
            given = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
            with contexts.acting(request.context):
                result = getattr(implementation, request.method)(**given)
            return msgspec.json.encode(Answer(msgspec.Raw(msgspec.json.encode(result))))
        except Exception as error:
            report_failure(contract, message, error)
            outcome = type(error).__name__
            return msgspec.json.encode(Answer(error=record_of(error)))
        finally:
            telemetry.message_handled(contract.__name__, name, outcome, time.monotonic() - begun)

    return handle


def report_failure(contract: type, message: bytes, error: Exception) -> None:
    """Log a failed request by its method's name; arguments may hold secrets and stay out."""
    name = "?"
    with contextlib.suppress(msgspec.MsgspecError):
        name = msgspec.json.decode(message, type=Request).method
    if isinstance(error, Fault):
        LOG.info("%s.%s refused: %s: %s", contract.__name__, name, type(error).__name__, error.message)
    else:
        LOG.error("%s.%s failed", contract.__name__, name, exc_info=error)


def describe(contract: Any) -> dict[str, Any]:
    """The contract as plain data, for the golden files that only additions may change."""
    out: dict[str, Any] = {"topic": contract.topic, "version": contract.version, "methods": {}}
    for name, method in sorted(methods(contract).items()):
        schemas, parts = msgspec.json.schema_components([method.arguments, method.returns])
        out["methods"][name] = {
            "since": method.since,
            "cast": method.is_cast,
            "schemas": list(schemas),
            "parts": dict(sorted(parts.items())),
        }
    return out
