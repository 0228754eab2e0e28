"""Keep child processes running: start them, restart what dies, end them, and leave none behind.

One thread starts every child and waits for all of them. It must be one that lives as long as the children are wanted:
the kernel kills a child when the thread that started it ends (see launch/leash.py), so even SIGKILL on our process
takes the children along. What an unlucky end leaves all the same is found by its mark and ended at the next start.
"""

import logging
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.logs import bound_log, rotate_log
from kilonova.embedded.ports import check_free
from kilonova.embedded.processes import Mark, boot_id, end_stale, read_mark, signal_group, start_time

LOG = logging.getLogger(__name__)
LEASH = Path(__file__).parent / "launch" / "leash.py"
FIRST_DELAY, LONGEST_DELAY, STEADY = 0.5, 30.0, 60.0
LOG_CHECK = 10.0


@dataclass(frozen=True)
class Program:
    """What to run: `argv` begins with the program's absolute path, `env` is the whole environment."""

    name: str
    argv: Sequence[str]
    env: dict[str, str]
    port: int | None = None


@dataclass(frozen=True)
class PartEvent:
    """Something that happened to a child; `text` is for people."""

    name: str
    kind: Literal["started", "died", "restarted", "stale"]
    text: str


@dataclass
class _Child:
    program: Program
    restarts: int = 0
    delay: float = FIRST_DELAY
    due: float | None = None
    born: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


class Supervisor:
    """Runs programs, from one start to one stop; `run` holds their marks (NAME.json), `logs` their output."""

    def __init__(
        self, run: Path, logs: Path, *, on_event: Callable[[PartEvent], None] | None = None, grace: float = 5.0
    ) -> None:
        self.run, self.logs, self.grace = run, logs, grace
        self._on_event = on_event
        self._children: dict[str, _Child] = {}
        self._orders: queue.SimpleQueue[list[Program]] = queue.SimpleQueue()
        self._failure: queue.SimpleQueue[EmbeddedError | None] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, programs: Sequence[Program]) -> None:
        """Start programs; back once all run. PortTaken names a taken port, EmbeddedError what cannot start."""
        self.run.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        for program in programs:
            stale = read_mark(self.run / f"{program.name}.json")
            if stale is not None and end_stale(stale):
                self._tell(
                    program.name,
                    "stale",
                    f"{program.name} (process {stale.pid}) was left by an earlier run and has been ended",
                )
        for program in programs:
            if program.port is not None:
                check_free(program.name, program.port)
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="supervisor", daemon=True)
            self._thread.start()
        self._orders.put(list(programs))
        self._wake()
        failure = self._failure.get()
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """End all children: SIGTERM, and after the grace SIGKILL; their marks go. Safe to repeat."""
        if self._thread is not None:
            self._stopping = True
            self._wake()
            self._thread.join()
            self._thread = None

    def pid(self, name: str) -> int | None:
        """The process of a child while it runs."""
        child = self._children.get(name)
        return child.process.pid if child is not None and child.process is not None else None

    def _wake(self) -> None:
        os.write(self._wake_out, b"!")

    def _loop(self) -> None:
        next_check = time.monotonic() + LOG_CHECK
        while not self._stopping:
            moments = [child.due for child in self._children.values() if child.due is not None]
            pause = max(0.0, min([*moments, next_check]) - time.monotonic())
            for key, _ in self._selector.select(pause):
                self._wait_for(key)
            self._follow_orders()
            now = time.monotonic()
            for child in self._children.values():
                if child.due is not None and child.due <= now and not self._stopping:
                    self._restart(child)
            if now >= next_check:
                next_check = now + LOG_CHECK
                for name in self._children:
                    bound_log(self.logs / f"{name}.log")
        self._end_all()

    def _wait_for(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, _Child):
            self._bury(key.data, key.fd)
            return
        try:
            os.read(self._wake_in, 4096)
        except BlockingIOError:
            pass

    def _follow_orders(self) -> None:
        while not self._orders.empty():
            self._failure.put(self._start_all(self._orders.get()))

    def _start_all(self, programs: list[Program]) -> EmbeddedError | None:
        for program in programs:
            child = self._children[program.name] = _Child(program)
            try:
                rotate_log(self.logs / f"{program.name}.log")
                self._spawn(child)
            except OSError as error:
                return EmbeddedError(f"{program.name} cannot be started: {error}")
            self._tell(program.name, "started", f"{program.name} started")
        return None

    def _spawn(self, child: _Child) -> None:
        program = child.program
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *program.argv]
        with (self.logs / f"{program.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=program.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        child.process, child.born, child.due = process, time.monotonic(), None
        Mark(
            program.name,
            process.pid,
            start_time(process.pid) or 0,
            boot_id(),
            program.port,
            child.restarts,
            time.time(),
        ).write(self.run / f"{program.name}.json")
        self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, child)

    def _bury(self, child: _Child, watch: int) -> None:
        assert child.process is not None
        code = child.process.wait()
        self._selector.unregister(watch)
        os.close(watch)
        signal_group(child.process.pid, signal.SIGKILL)
        child.process = None
        now = time.monotonic()
        if now - child.born > STEADY:
            child.delay = FIRST_DELAY
        child.due, child.delay = now + child.delay, min(child.delay * 2, LONGEST_DELAY)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        name = child.program.name
        self._tell(name, "died", f"{name} died with {how}; its last words are in {self.logs / f'{name}.log'}")

    def _restart(self, child: _Child) -> None:
        child.restarts += 1
        name = child.program.name
        try:
            self._spawn(child)
        except OSError as error:
            child.due, child.delay = time.monotonic() + child.delay, min(child.delay * 2, LONGEST_DELAY)
            self._tell(name, "died", f"{name} cannot be started again: {error}")
            return
        self._tell(name, "restarted", f"{name} restarted (restart {child.restarts})")

    def _end_all(self) -> None:
        running = [child for child in self._children.values() if child.process is not None]
        for child in running:
            assert child.process is not None
            signal_group(child.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + self.grace
        for child in running:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                LOG.warning("%s did not end within %.0f s: killed", child.program.name, self.grace)
            signal_group(child.process.pid, signal.SIGKILL)
            child.process.wait()
            child.process = None
        for name in self._children:
            (self.run / f"{name}.json").unlink(missing_ok=True)
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            os.close(key.fd)
        os.close(self._wake_out)

    def _tell(self, name: str, kind: Literal["started", "died", "restarted", "stale"], text: str) -> None:
        LOG.log(logging.WARNING if kind in ("died", "stale") else logging.INFO, "%s", text)
        if self._on_event is None:
            return
        try:
            self._on_event(PartEvent(name, kind, text))
        except Exception:
            LOG.exception("an event callback failed")
