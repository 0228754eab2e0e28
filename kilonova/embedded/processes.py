"""Processes as the kernel sees them: who a process is beyond its number, how much it holds, how a group is ended."""

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mark:
    """A child on record: its process and start time say whether a process of that number is still the same one.

    `started` is in clock ticks since boot, `boot` names the boot, `since` is seconds since the epoch.
    """

    name: str
    pid: int
    started: int
    boot: str
    port: int | None
    restarts: int
    since: float

    def write(self, path: Path) -> None:
        """Put it on disk, whole or not at all."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(path)

    def alive(self) -> bool:
        """Whether that very process still runs."""
        return self.boot == boot_id() and start_time(self.pid) == self.started


def read_mark(path: Path) -> Mark | None:
    """The mark in a file; None when there is none or it cannot be read."""
    try:
        return Mark(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def boot_id() -> str:
    """What tells this boot of the machine from others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when it is gone or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def resident_mib(pid: int) -> float:
    """The resident memory of a process in MiB; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a session's processes; nothing when they are gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def end_stale(mark: Mark, grace: float = 2.0) -> bool:
    """End a process left by an earlier run, first kindly; answers whether there was one."""
    if not mark.alive():
        return False
    signal_group(mark.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while mark.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    signal_group(mark.pid, signal.SIGKILL)
    while mark.alive() and time.monotonic() < deadline + grace:
        time.sleep(0.02)
    return True
