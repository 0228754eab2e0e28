"""The supervisor with tiny children: what dies comes back, what we leave dies, what was left is found."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilonova.embedded import logs
from kilonova.embedded.failures import EmbeddedError, PortTaken
from kilonova.embedded.processes import Mark, boot_id, read_mark, resident_mib, start_time
from kilonova.embedded.supervisor import PartEvent, Program, Supervisor

SLEEPER = "import signal, sys; print('up', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)


def program(code: str = SLEEPER, name: str = "child", port: int | None = None) -> Program:
    return Program(name, [sys.executable, "-c", code], dict(os.environ), port)


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


class Run:
    """A supervisor on a temporary folder with what it told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[PartEvent] = []
        self.supervisor = Supervisor(folder / "run", folder / "logs", on_event=self.events.append, grace=1.0)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def log(self, name: str = "child") -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.supervisor.stop()


def alive(pid: int | None) -> bool:
    return pid is not None and start_time(pid) is not None


def test_a_child_that_dies_is_restarted_and_said_so(run: Run) -> None:
    run.supervisor.start([program()])
    wait_until(lambda: "up" in run.log())
    first = run.supervisor.pid("child")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: run.kinds() == ["started", "died", "restarted"])
    assert "child died with signal SIGKILL" in run.events[1].text
    assert "child.log" in run.events[1].text
    second = run.supervisor.pid("child")
    assert alive(second)
    assert second != first
    mark = read_mark(run.folder / "run" / "child.json")
    assert mark is not None
    assert (mark.pid, mark.restarts, mark.alive()) == (second, 1, True)


def test_a_child_that_keeps_dying_is_restarted_ever_more_slowly(run: Run) -> None:
    moments: list[float] = []

    def note(event: PartEvent) -> None:
        if event.kind == "died":
            moments.append(time.monotonic())

    run.supervisor = Supervisor(run.folder / "run", run.folder / "logs", on_event=note)
    run.supervisor.start([program("raise SystemExit(3)")])
    wait_until(lambda: len(moments) >= 3)
    assert moments[2] - moments[1] > moments[1] - moments[0] + 0.3


def test_stop_ends_children_that_will_not_and_removes_marks(run: Run) -> None:
    run.supervisor.start([program(STUBBORN), program(name="other")])
    wait_until(lambda: "up" in run.log() and "up" in run.log("other"))
    pids = [run.supervisor.pid("child"), run.supervisor.pid("other")]
    run.supervisor.stop()
    assert not any(alive(pid) for pid in pids)
    assert list((run.folder / "run").iterdir()) == []


def test_children_die_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    main = (
        f"import sys; from pathlib import Path; from kilonova.embedded.supervisor import Program, Supervisor\n"
        f"s = Supervisor(Path({str(tmp_path)!r}, 'run'), Path({str(tmp_path)!r}, 'logs'))\n"
        f"s.start([Program('child', [sys.executable, '-c', {STUBBORN!r}], {{}})])\n"
        f"print(s.pid('child'), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", main], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        log = tmp_path / "logs" / "child.log"
        wait_until(lambda: log.exists() and "up" in log.read_text())
        assert alive(child)
        parent.kill()
    wait_until(lambda: not alive(child))


def test_a_process_left_by_an_earlier_run_is_ended_first(run: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None
        left.stdout.readline()
        (run.folder / "run").mkdir()
        started = start_time(left.pid)
        assert started is not None
        Mark("child", left.pid, started, boot_id(), None, 0, 0.0).write(run.folder / "run" / "child.json")
        run.supervisor.start([program()])
        assert left.wait(5) == -signal.SIGTERM
    assert run.kinds() == ["stale", "started"]


def test_a_process_that_only_has_the_number_of_a_mark_is_left_alone(run: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (run.folder / "run").mkdir()
        Mark("child", other.pid, 1, boot_id(), None, 0, 0.0).write(run.folder / "run" / "child.json")
        run.supervisor.start([program()])
        assert other.poll() is None
        other.kill()
    assert run.kinds() == ["started"]


def test_a_taken_port_is_named_and_nothing_is_started(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} on 127.0.0.1, needed by second"):
            run.supervisor.start([program(), program(name="second", port=port)])
    assert run.supervisor.pid("child") is None


def test_a_program_that_cannot_run_dies_with_its_reason_in_the_log(run: Run) -> None:
    run.supervisor.start([Program("child", ["/nonexistent/program"], {})])
    wait_until(lambda: "died" in run.kinds())
    assert "FileNotFoundError" in run.log()


def test_a_log_folder_that_cannot_be_written_is_an_error(run: Run) -> None:
    (run.folder / "logs").mkdir()
    (run.folder / "logs" / "child.log").symlink_to(run.folder / "absent" / "log")
    with pytest.raises(EmbeddedError, match="child cannot be started"):
        run.supervisor.start([program()])


def test_a_failing_callback_does_not_stop_the_supervisor(tmp_path: Path) -> None:
    def fail(_: PartEvent) -> None:
        raise ValueError("no")

    supervisor = Supervisor(tmp_path / "run", tmp_path / "logs", on_event=fail)
    supervisor.start([program()])
    first = supervisor.pid("child")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervisor.pid("child") not in (None, first))
    supervisor.stop()


def test_logs_are_kept_for_three_starts_and_bounded_while_written(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    for number in range(6):
        log.write_text(str(number))
        logs.rotate_log(log)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.log.1": "5",
        "x.log.2": "4",
        "x.log.3": "3",
    }
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        logs.bound_log(log, bound=200)
        assert log.stat().st_size == 100
        writer.write(b"b" * 101)
        logs.bound_log(log, bound=200)
        writer.write(b"c")
    assert log.read_bytes() == b"c"
    assert (tmp_path / "x.log.1").stat().st_size == 201


def test_memory_of_a_process_is_read_and_none_of_a_gone_one() -> None:
    assert resident_mib(os.getpid()) > 5
    assert resident_mib(2**22 + 1) == 0.0
