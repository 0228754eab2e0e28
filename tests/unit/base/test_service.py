"""Services: pools, timers, draining, signals, and what systemd is told."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kilonova.base import context as contexts
from kilonova.base.events import Hub, Signal
from kilonova.base.pool import Draining, Pool
from kilonova.base.service import Service, running
from kilonova.base.timers import Pause, Timers

LIMIT = 10.0


def until(met: Callable[[], bool]) -> None:
    assert Signal().wait_until(met, 0) or _poll(met), "the condition was not met in time"


def _poll(met: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(met() or pause.wait(0.01) for _ in range(int(LIMIT / 0.01)))


def test_the_pool_bounds_its_threads_and_carries_the_context() -> None:
    pool, gate, names = Pool(2, "p"), threading.Event(), set[str]()

    def work() -> str:
        names.add(threading.current_thread().name)
        gate.wait(LIMIT)
        return contexts.current().request_id

    with contexts.acting(contexts.Context(request_id="req-7")):
        futures = [pool.submit(work) for _ in range(5)]
    gate.set()
    assert [f.result(LIMIT) for f in futures] == ["req-7"] * 5
    assert len(names) <= 2
    assert pool.drain(LIMIT)
    with pytest.raises(Draining):
        pool.submit(work)


def test_draining_waits_for_work_under_way_up_to_a_limit() -> None:
    pool, gate = Pool(1, "p"), threading.Event()
    future = pool.submit(gate.wait, LIMIT)
    assert not pool.drain(0.02)
    gate.set()
    assert future.result(LIMIT)
    assert pool.drain(LIMIT)


def test_a_timer_goes_on_after_a_failure_and_counts_it() -> None:
    timers, runs = Timers(), []

    def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("first")

    timer = timers.every(0.001, work, name="t", first=0)
    until(lambda: len(runs) >= 3)
    assert timer.failures == 1
    assert timers.close()


def test_a_timer_never_overlaps_itself_and_wakes_once_more_when_busy() -> None:
    timers, gate, inside, most, begun = Timers(), threading.Semaphore(0), [0], [0], [0]

    def work() -> None:
        inside[0] += 1
        begun[0] += 1
        most[0] = max(most[0], inside[0])
        gate.acquire(timeout=LIMIT)
        inside[0] -= 1

    timer = timers.every(3600, work, name="t", first=0)
    until(lambda: begun[0] == 1)
    for _ in range(3):
        timer.wake()
    gate.release()
    until(lambda: begun[0] == 2)
    gate.release()
    until(lambda: timer.runs == 2)
    assert (most[0], begun[0]) == (1, 2)
    timer.wake()
    until(lambda: begun[0] == 3)
    gate.release()
    assert timer.stop(LIMIT)
    timer.wake()
    assert timers.close()
    assert begun[0] == 3


def test_the_work_may_choose_its_next_pause_and_numbers_are_no_pauses() -> None:
    timers, runs, others = Timers(), itertools.count(1), itertools.count(1)
    pausing = timers.every(3600, lambda: Pause(0.001 * next(runs)), name="t", first=0)
    counting = timers.every(3600, lambda: 0 * next(others), name="o", first=0)
    until(lambda: pausing.runs >= 3 and counting.runs >= 1)
    assert next(others) == 2
    timers.close()


def test_a_thousand_timers_need_few_threads() -> None:
    before = threading.active_count()
    timers, lock, ran = Timers(workers=4), threading.Lock(), set()

    def work(number: int) -> None:
        with lock:
            ran.add(number)

    for number in range(1000):
        timers.every(3600, lambda n=number: work(n), name=f"t{number}", first=0)  # type: ignore[misc]
    until(lambda: len(ran) == 1000)
    assert threading.active_count() - before <= 5
    timers.close()


def test_once() -> None:
    timers, runs = Timers(), []
    timer = timers.once(0.0, lambda: runs.append(1), name="once")
    until(lambda: timer.runs == 1)
    assert runs == [1]
    timers.close()


def test_a_service_starts_in_order_and_drains_before_it_closes() -> None:
    said: list[str] = []
    gate = threading.Event()
    service = Service("s", drain_seconds=LIMIT)
    service.on_start(lambda: said.append("start"))

    def serve() -> Callable[[], None]:
        said.append("serve")
        return end

    def end() -> None:
        said.append("no more")
        gate.set()

    def work() -> None:
        gate.wait(LIMIT)
        said.append("worked")

    service.serve(serve)
    service.on_stop(lambda: said.append("close first opened"))
    service.on_stop(lambda: said.append("close last opened"))
    service.start()
    future = service.submit(work)
    assert service.stop()
    assert future.done()
    assert said == ["start", "serve", "no more", "worked", "close last opened", "close first opened"]
    with pytest.raises(Draining):
        service.submit(print)
    assert service.stop()


def test_timers_run_until_the_work_has_ended() -> None:
    """Leases are renewed by a timer: they must live as long as the work that needs them."""
    service, gate, beats = Service("s", drain_seconds=LIMIT), threading.Event(), [0]

    def beat() -> None:
        beats[0] += 1
        if service.state == "draining" and beats[0] > 3:
            gate.set()

    service.every(0.001, beat, name="beat", first=0)
    service.start()
    service.submit(gate.wait, LIMIT)
    assert service.stop()
    assert gate.is_set()


def test_a_failed_start_ends_what_has_begun() -> None:
    said: list[str] = []
    service = Service("s")
    service.serve(lambda: lambda: said.append("ended"))
    service.on_start(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        service.start()
    assert said == ["ended"]
    assert service.state == "stopped"


def test_many_services_in_one_process_share_timers() -> None:
    timers, ran = Timers(workers=2), set[str]()
    services = [Service(f"s{i}", timers=timers) for i in range(20)]
    for service in services:
        service.every(0.001, lambda n=service.name: ran.add(n), name="beat", first=0)  # type: ignore[misc]
    with running(*services):
        until(lambda: len(ran) == 20)
    assert timers.close()


PROGRAM = """
import sys, threading
from kilonova.base.service import Service, run_forever
service = Service("s", drain_seconds=float(sys.argv[1]))
def work():
    print("working", flush=True)
    sys.stdin.readline()
    print("worked", flush=True)
service.on_start(lambda: service.submit(work))
service.serve(lambda: lambda: print("draining", flush=True))
service.on_reread(lambda: print("reread", flush=True))
service.on_stop(lambda: print("closed", flush=True))
sys.exit(run_forever([service]))
"""


def _begin(drain: float, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(drain)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | environment,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_sigterm_drains_and_sighup_rereads(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(LIMIT)
        process = _begin(LIMIT, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="100000")
        assert _line(process) == "working"
        assert listener.recv(999).startswith(b"READY=1")
        assert listener.recv(999) == b"WATCHDOG=1"
        process.send_signal(signal.SIGHUP)
        assert _line(process) == "reread"
        process.send_signal(signal.SIGTERM)
        told = listener.recv(999)
        while not told.startswith(b"STOPPING=1"):
            told = listener.recv(999)
        assert _line(process) == "draining"
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert [_line(process), _line(process)] == ["worked", "closed"]
        assert process.wait(LIMIT) == 0
    _close(process)


@pytest.mark.parametrize("drain", [0.05, 3600])
def test_work_that_does_not_end_is_left(drain: float) -> None:
    """At the end of the limit, or at once when told a second time."""
    process = _begin(drain)
    assert _line(process) == "working"
    process.send_signal(signal.SIGTERM)
    if drain > LIMIT:
        assert _line(process) == "draining"
        process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == 1
    _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_a_hub_wakes_listeners() -> None:
    hub = Hub()
    with hub.listen(("plugged", "port")) as heard:
        assert not heard.wait(0)
        assert hub.publish(("plugged", "other")) == 0
        assert hub.publish(("plugged", "port"), 5) == 1
        assert heard.wait(LIMIT)
        assert heard.value == 5
        assert not heard.wait(0), "one ring wakes once"
    assert hub.publish(("plugged", "port")) == 0


def test_waiting_for_a_condition_has_a_deadline() -> None:
    bell, done = Signal(), threading.Event()
    assert not bell.wait_until(done.is_set, 0.01)

    def finish() -> None:
        done.set()
        bell.ring()

    threading.Thread(target=finish).start()
    assert bell.wait_until(done.is_set, LIMIT)


def test_a_broken_subscriber_hinders_no_other() -> None:
    hub, heard = Hub(), list[int]()
    hub.subscribe("x", lambda value: 1 / 0)
    end = hub.subscribe("x", heard.append)
    assert hub.publish("x", 1) == 2
    end()
    hub.publish("x", 2)
    assert heard == [1]
