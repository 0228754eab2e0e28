"""Delays and failures to order from simulated hosts, by method, host and server."""

from __future__ import annotations

import threading

import msgspec

from kilonova.base.errors import BuildAborted, BuildFailed, Fault

FAIL, DELAY = "kilonova:fail", "kilonova:delay"
"""Metadata of a server: ``"kilonova:fail": "spawn"`` (or ``stop``, ``start``, ``reboot``, ``destroy``; ``spawn-abort``:
no other host would do better, ``spawn-crash``: as a hypervisor's library fails) and ``"kilonova:delay": "spawn=2.5"``
in seconds; several with commas."""


class Order(msgspec.Struct, kw_only=True):
    """Do this ``times`` times (-1: always) when ``method`` is called on the host ("": any) for the server ("": any)."""

    method: str
    host: str = ""
    server: str = ""
    times: int = 1
    delay: float = 0.0
    fail: bool = False
    error: Exception | None = None
    until: threading.Event | None = None


class Orders:
    """The orders of all hosts of one process. Methods: spawn, destroy, start, stop, reboot, node."""

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._lock = threading.Lock()

    def give(self, order: Order) -> None:
        """From now on."""
        with self._lock:
            self._orders.append(order)

    def clear(self) -> None:
        """No orders any more."""
        with self._lock:
            self._orders.clear()

    def take(self, method: str, host: str, server: str) -> list[Order]:
        """What is ordered for this call, counted as done."""
        taken = []
        with self._lock:
            for order in list(self._orders):
                if order.method == method and order.host in ("", host) and order.server in ("", server):
                    taken.append(order)
                    order.times -= 1
                    if order.times == 0:
                        self._orders.remove(order)
        return taken


def ordered_by(metadata: dict[str, str], method: str) -> list[Order]:
    """The orders that a server's own metadata gives."""
    orders = []
    for word in metadata.get(FAIL, "").split(","):
        name, _, kind = word.strip().partition("-")
        if name == method:
            orders.append(Order(method=method, fail=True, error=_error(kind)))
    for word in metadata.get(DELAY, "").split(","):
        name, _, seconds = word.strip().partition("=")
        if name == method:
            try:
                orders.append(Order(method=method, delay=float(seconds)))
            except ValueError:
                continue
    return orders


def _error(kind: str) -> Exception | None:
    if kind == "crash":
        return RuntimeError("the hypervisor's library failed: secret=swordfish")
    return BuildAborted("ordered by metadata") if kind else None


def failure(method: str, host: str, server: str) -> Fault:
    """What an ordered failure looks like when no error is named."""
    return BuildFailed(server=server, reason=f"the simulated host {host} was ordered to fail at {method}")
