"""Whether guests can be run here, and by what: found out by trying, not by looking for device files.

A machine may offer /dev/kvm and still emulate every instruction of a nested guest (or end it with an internal error).
So the probe lets the firmware run to its end under KVM: real hardware does that in a fraction of a second, and so does
QEMU's own emulation; only a KVM that does not really work takes long.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SECONDS = 1.5
EMULATOR = "qemu-system-x86_64"


class Accelerator(NamedTuple):
    """The domain type to use, and the reason for people."""

    virt_type: str
    reason: str


@functools.cache
def accelerator() -> Accelerator:
    """kvm where it works, else qemu (TCG)."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Accelerator("qemu", "TCG: /dev/kvm is not there or not ours to use")
    if _firmware_ends("kvm", SECONDS):
        return Accelerator("kvm", "KVM")
    return Accelerator("qemu", f"TCG: /dev/kvm is there, but a trial guest was not through its firmware in {SECONDS} s")


def _firmware_ends(accel: str, seconds: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="kilonova-probe-") as folder:
        output = Path(folder, "firmware")
        command = [
            *(EMULATOR, "-accel", accel, "-m", "32", "-display", "none", "-nodefaults", "-no-reboot"),
            *("-debugcon", f"file:{output}", "-global", "isa-debugcon.iobase=0x402"),
        ]
        silent = subprocess.DEVNULL
        trial = subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent)
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and trial.poll() is None:
                if output.exists() and b"No bootable device" in output.read_bytes():
                    return True
                time.sleep(0.02)
            return False
        finally:
            trial.kill()
            trial.wait()


def unreachable(folder: Path) -> str | None:
    """Why the hypervisor's user (not root, on most systems) could not open files in ``folder``; None when it could."""
    for step in (folder, *folder.parents):
        if step.exists() and not step.stat().st_mode & 0o001:
            return f"the hypervisor's user may not pass through {step} to the guests' disks (chmod o+x, or move them)"
    return None


def missing() -> str | None:
    """What is lacking to run real guests at all, for people; None when nothing is."""
    for program in (EMULATOR, "qemu-img"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        import libvirt  # noqa: F401 - only whether it is there
    except ImportError:
        return "the Python module libvirt is not installed"
    return None
