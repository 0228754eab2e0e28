"""The connection to libvirt, its event loop, and its errors in our kinds. Reconnects when the daemon was restarted."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import libvirt

from kilonova.base import log
from kilonova.base.errors import NeighbourUnavailable

LOG = log.of(__name__)


POWER: dict[int, int] = {
    libvirt.VIR_DOMAIN_NOSTATE: 0,
    libvirt.VIR_DOMAIN_RUNNING: 1,
    libvirt.VIR_DOMAIN_BLOCKED: 1,
    libvirt.VIR_DOMAIN_PAUSED: 3,
    libvirt.VIR_DOMAIN_SHUTDOWN: 1,
    libvirt.VIR_DOMAIN_SHUTOFF: 4,
    libvirt.VIR_DOMAIN_CRASHED: 6,
    libvirt.VIR_DOMAIN_PMSUSPENDED: 7,
}
"""libvirt's states as the API's. A guest that is shutting down still runs."""


@functools.cache
def _ensure_loop() -> None:
    """libvirt's events want a loop, begun before the first connection, once in a process."""
    libvirt.virEventRegisterDefaultImpl()
    libvirt.registerErrorHandler(lambda ctx, error: None, None)

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name="libvirt-events", daemon=True).start()


class Connection:
    """One connection, opened when needed; ``changed(uuid, power state)`` hears of lifecycle events."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._connection: Any = None
        self._lock = threading.Lock()
        self.changed: Callable[[str, int], None] = lambda uuid, state: None

    def get(self) -> Any:
        """A live virConnect; NeighbourUnavailable with libvirt's own text when there is none."""
        with self._lock:
            if self._connection is not None:
                try:
                    if self._connection.isAlive():
                        return self._connection
                except libvirt.libvirtError:
                    LOG.warning("the connection to libvirt was lost")
            self._connection = self._open()
            return self._connection

    def _open(self) -> Any:
        _ensure_loop()
        try:
            connection = libvirt.open(self.uri)
            connection.setKeepAlive(5, 5)
            connection.domainEventRegisterAny(
                None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda c, dom, event, detail, opaque: self._hear(dom), None
            )
        except libvirt.libvirtError as error:
            raise NeighbourUnavailable(neighbour="libvirt", reason=str(error)) from None
        return connection

    def _hear(self, domain: Any) -> None:
        uuid = domain.UUIDString()
        try:
            state = POWER.get(domain.state()[0], 0)
        except libvirt.libvirtError:
            return  # it has gone: nothing to tell of it
        threading.Thread(target=self.changed, args=(uuid, state), name="libvirt-told", daemon=True).start()

    def close(self) -> None:
        """Let go."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def is_absent(error: libvirt.libvirtError) -> bool:
    """Whether the error says that there is no such domain."""
    return bool(error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN)


def is_moot(error: libvirt.libvirtError) -> bool:
    """Whether the error says that the domain is in the wanted state already."""
    return bool(error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID)
