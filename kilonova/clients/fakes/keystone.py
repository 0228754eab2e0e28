"""Keystone in memory."""

from __future__ import annotations

import threading

from kilonova.clients.fakes.orders import Orders, ordered


class FakeKeystone:
    """Implements ``Keystone``: every project exists, save those in ``absent``."""

    def __init__(self) -> None:
        self.orders = Orders("keystone")
        self.lock = threading.RLock()
        self.absent: set[str] = set()

    @ordered
    def project_exists(self, project_id: str, *, token: str = "") -> bool:
        return project_id not in self.absent
