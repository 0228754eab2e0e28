"""The TCP ports of the one-command mode: one base for each part, all moved together by one offset."""

import socket
from dataclasses import dataclass

from kilonova.embedded.failures import PortTaken

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Where each part listens on the loopback address; `Ports.moved(100)` moves all of them by 100."""

    keystone: int = 15000
    glance: int = 19292
    placement: int = 18778
    neutron: int = 19696
    cinder: int = 18776
    nova: int = 18774
    metadata: int = 18775

    @classmethod
    def moved(cls, offset: int) -> "Ports":
        """All ports at their base plus `offset`; ValueError when one would leave the range of TCP ports."""
        ports = {name: port + offset for name, port in vars(cls()).items()}
        for name, port in ports.items():
            if not 1024 <= port <= 65535:
                raise ValueError(f"port offset {offset} puts {name} on port {port}, outside 1024 to 65535")
        return cls(**ports)

    def url(self, name: str, path: str = "") -> str:
        """The URL of a part by its name, for example `url("keystone", "/v3")`."""
        return f"http://{LOOPBACK}:{int(getattr(self, name))}{path}"


def check_free(name: str, port: int) -> None:
    """PortTaken when another program listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise PortTaken(name, port) from None
