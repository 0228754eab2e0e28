"""What a service tells systemd (or whoever set NOTIFY_SOCKET): ready, stopping, alive. Without one, nothing happens."""

from __future__ import annotations

import os
import socket
import time

from kilonova.base import log

LOG = log.of(__name__)


def notify(*lines: str) -> bool:
    """Send assignments such as ``"READY=1"``; False when nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect(address)
            channel.sendall("\n".join(lines).encode())
    except OSError as error:
        LOG.warning("telling systemd %s failed: %s", lines[0], error)
        return False
    return True


def ready(status: str = "") -> None:
    """The service does its work from now on."""
    notify("READY=1", f"STATUS={status}")


def reloading() -> None:
    """The configuration is being read again; ``ready`` ends that."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def stopping(seconds: float) -> None:
    """The service drains, for so long at most."""
    notify("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int((seconds + 10) * 1_000_000)}", "STATUS=draining")


def alive() -> None:
    """The service is well."""
    notify("WATCHDOG=1")


def watchdog_seconds() -> float | None:
    """How often ``alive`` is expected, halved so as to be in time; None when nobody watches."""
    watched = os.environ.get("WATCHDOG_PID")
    if watched and watched != str(os.getpid()):
        return None
    limit = os.environ.get("WATCHDOG_USEC", "")
    return int(limit) / 2_000_000 if limit.isdigit() and int(limit) > 0 else None
