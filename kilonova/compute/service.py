"""nova-compute: one or many hosts as one service.

shared = Shared(neighbours, timers=timers, options=..., heartbeats=...)
hosts = [ComputeHost(name, driver, bus=bus_of_its_cell, shared=shared) for name, driver in hypervisors.drivers()]
service = compute_service(hosts, shared)
service.start(); wait_ready(hosts, seconds=30)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kilonova.base.service import Service
from kilonova.compute.host import ComputeHost, Shared


def compute_service(hosts: Sequence[ComputeHost], shared: Shared, *, drain_seconds: float = 60.0) -> Service:
    """Starts the hosts side by side; at the stop no new work is taken, then they leave."""
    service = Service("nova-compute", workers=1, drain_seconds=drain_seconds, timers=shared.timers)

    def begin() -> Callable[[], object]:
        for host in hosts:
            host.start()

        def stop_serving() -> None:
            for host in hosts:
                host.stop_serving()

        return stop_serving

    def end() -> None:
        shared.arrivals.drain(0.0)
        shared.pool.drain(drain_seconds)
        for host in hosts:
            host.stop()

    service.serve(begin)
    service.on_stop(end)
    return service


def wait_ready(hosts: Sequence[ComputeHost], *, seconds: float) -> list[str]:
    """Wait until the hosts have joined and Placement knows them; the names of those that have not by then."""
    deadline = time.monotonic() + seconds
    return [host.host for host in hosts if not host.ready.wait(max(deadline - time.monotonic(), 0.0))]
