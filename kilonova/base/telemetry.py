"""Counters and histograms for Prometheus, behind a few functions; without prometheus-client they do nothing.

Labels are names from our own tables (operations, flows, steps, timers), never ids or texts: their number is bounded.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any


def _library() -> Any:
    try:
        return importlib.import_module("prometheus_client")
    except ImportError:
        return None


prometheus = _library()

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
"""Limits of the buckets: from an API answer to a long live migration."""


@functools.cache
def _counter(name: str, help_: str, labels: tuple[str, ...]) -> Any:
    return prometheus.Counter(name, help_, labels)


@functools.cache
def _histogram(name: str, help_: str, labels: tuple[str, ...]) -> Any:
    return prometheus.Histogram(name, help_, labels, buckets=SECONDS)


@functools.cache
def _gauge(name: str, help_: str) -> Any:
    return prometheus.Gauge(name, help_)


def operation_done(operation: str, method: str, code: int, seconds: float) -> None:
    """An API operation was answered."""
    if prometheus is not None:
        text = "How long API operations take."
        labels = {"operation": operation, "method": method, "code": str(code)}
        _histogram("kilonova_operation_seconds", text, tuple(labels)).labels(**labels).observe(seconds)


def step_done(flow: str, step: str, result: str, seconds: float) -> None:
    """A step of a flow ended; ``result`` is what was journaled of it."""
    if prometheus is not None:
        labels = {"flow": flow, "step": step, "result": result}
        text = "How long steps of flows take."
        _histogram("kilonova_step_seconds", text, tuple(labels)).labels(**labels).observe(max(seconds, 0.0))


def flow_ended(flow: str, status: str, seconds: float) -> None:
    """A run ended."""
    if prometheus is not None:
        labels = {"flow": flow, "status": status}
        text = "How long runs of flows take, by their ends."
        _histogram("kilonova_flow_seconds", text, tuple(labels)).labels(**labels).observe(max(seconds, 0.0))


def message_handled(contract: str, method: str, result: str, seconds: float) -> None:
    """A request of another service was answered; ``result`` is "ok" or the kind of the error."""
    if prometheus is not None:
        labels = {"contract": contract, "method": method, "result": result}
        text = "How long requests between services take."
        _histogram("kilonova_message_seconds", text, tuple(labels)).labels(**labels).observe(seconds)


def timer_failed(timer: str) -> None:
    """A timer's work raised."""
    if prometheus is not None:
        _counter("kilonova_timer_failures", "Timers whose work failed.", ("timer",)).labels(timer=timer).inc()


def watch(name: str, help_: str, read: Callable[[], float]) -> None:
    """A gauge that is read when somebody asks, e.g. the length of a queue."""
    if prometheus is not None:
        _gauge(name, help_).set_function(read)


def exposition() -> tuple[bytes, str]:
    """All figures in the form that Prometheus scrapes, and its content type."""
    if prometheus is None:
        return b"", "text/plain; charset=utf-8"
    text: bytes = prometheus.generate_latest()
    return text, prometheus.CONTENT_TYPE_LATEST
