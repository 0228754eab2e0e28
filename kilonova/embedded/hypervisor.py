"""libvirt's daemons for real guests, where the machine does not run them itself.

A machine with systemd runs libvirtd already, and then it is used as it is. Elsewhere (in containers) root may start it,
with virtlogd for the console logs of guests, as supervised children like the neighbours. Guests are processes of
their own and outlive the daemons.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from kilonova.embedded.failures import EmbeddedError
from kilonova.embedded.supervisor import PartEvent, Program, Supervisor

LOG = logging.getLogger(__name__)

SOCKET = Path("/run/libvirt/libvirt-sock")
DAEMONS = ("virtlogd", "libvirtd")
SECONDS = 30.0


def missing() -> str | None:
    """Which program is not installed; None when all are there."""
    for name in DAEMONS:
        if _path(name) is None:
            return f"{name} is not installed"
    return None


def _path(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


class Hypervisor:
    """The daemons of one state directory, from a start to a stop. Only root may start them."""

    def __init__(self, state: Path, *, on_event: Callable[[PartEvent], None] | None = None) -> None:
        self._state, self._on_event = state, on_event
        self._supervisor: Supervisor | None = None

    def start(self) -> bool:
        """Return once libvirt answers; False when it was running already. EmbeddedError says what hinders."""
        if _answers():
            return False
        if os.geteuid() != 0:
            raise EmbeddedError("libvirtd does not run, and only root may start it")
        lacking = missing()
        if lacking is not None:
            raise EmbeddedError(lacking)
        _clear_leftovers()
        _open_kvm()
        supervisor = Supervisor(self._state / "run", self._state / "logs", on_event=self._on_event)
        self._supervisor = supervisor
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        programs = [Program(name, [str(_path(name))], environment) for name in DAEMONS]
        supervisor.start(programs)
        deadline = time.monotonic() + SECONDS
        while not _answers():
            if time.monotonic() > deadline:
                raise EmbeddedError(f"libvirtd did not answer within {SECONDS:.0f} s: see {self._state / 'logs'}")
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """End the daemons that were started here; guests go on."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None


def _clear_leftovers() -> None:
    """Pid files of daemons that were killed keep new ones from starting."""
    for name in DAEMONS:
        with contextlib.suppress(FileNotFoundError):
            Path("/run", f"{name}.pid").unlink()


def _open_kvm() -> None:
    """Give /dev/kvm to its group, as udev would: libvirt's look at QEMU's abilities takes a minute where it may not."""
    device = Path("/dev/kvm")
    with contextlib.suppress(OSError, KeyError):
        if device.exists() and device.stat().st_mode & 0o060 != 0o060:
            os.chown(device, 0, grp.getgrnam("kvm").gr_gid)
            device.chmod(0o660)


def _answers() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(SOCKET))
        except OSError:
            return False
    return True
