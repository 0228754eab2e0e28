"""The bus inside one process. Messages are still bytes, so nothing passes live objects by accident."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple

from kilonova.base.errors import BusTimeout, NoSuchPeer
from kilonova.base.pool import Draining, Pool
from kilonova.base.rpc import Handler, Target

CLOSE_SECONDS = 60.0
"""How long ``close`` waits for what runs."""


class _Server(NamedTuple):
    host: str
    handler: Handler
    pool: Pool


class LocalBus:
    """Implements ``Bus``. Servers of a topic share one pool, so a thousand hosts cost no thousand threads."""

    def __init__(self, *, workers: int = 16) -> None:
        self._workers = workers
        self._servers: dict[str, dict[str, _Server]] = {}
        self._turns: dict[str, itertools.count[int]] = {}
        self._pools: dict[str, Pool] = {}
        self._lock = threading.Lock()

    def serve(self, topic: str, host: str, handler: Handler, *, workers: int = 8) -> Callable[[], None]:
        """Answer for the topic; ``workers`` is the least size of the topic's pool when this is its first server."""
        with self._lock:
            pool = self._pools.get(topic)
            if pool is None:
                pool = self._pools[topic] = Pool(max(workers, self._workers), f"bus-{topic}")
            self._servers.setdefault(topic, {})[host] = _Server(host, handler, pool)
            self._turns.setdefault(topic, itertools.count())

        def stop() -> None:
            with self._lock:
                self._servers.get(topic, {}).pop(host, None)

        return stop

    def call(self, target: Target, message: bytes, timeout: float) -> bytes:
        """Run it on the server's pool and wait."""
        server = self._pick(target)
        try:
            answer = server.pool.submit(server.handler, message)
        except Draining:
            raise NoSuchPeer(target=str(target)) from None
        try:
            return answer.result(timeout)
        except FutureTimeout:
            answer.cancel()  # nobody waits for it any more: unless it has begun, it need not
            raise BusTimeout(method=target.method, target=str(target), seconds=timeout) from None

    def cast(self, target: Target, message: bytes) -> None:
        """Queue it. A cast to nobody is lost, as it is on a broker: journals and timers make up for that."""
        if target.fanout:
            servers = list(self._servers.get(target.topic, {}).values())
        else:
            try:
                servers = [self._pick(target)]
            except NoSuchPeer:
                return
        for server in servers:
            with contextlib.suppress(Draining):
                server.pool.run(server.handler, message)

    def _pick(self, target: Target) -> _Server:
        with self._lock:
            servers = self._servers.get(target.topic, {})
            if target.host is not None:
                found = servers.get(target.host)
                if found is None:
                    raise NoSuchPeer(target=str(target))
                return found
            if not servers:
                raise NoSuchPeer(target=str(target))
            turn = next(self._turns[target.topic]) % len(servers)
            return next(itertools.islice(servers.values(), turn, None))

    def close(self) -> None:
        """Stop serving and wait for what runs."""
        with self._lock:
            self._servers.clear()
            pools = list(self._pools.values())
        for pool in pools:
            pool.drain(CLOSE_SECONDS)
