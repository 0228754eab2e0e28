"""Keystone: our own sessions with the neighbours, and facts on projects."""

from __future__ import annotations

from typing import Protocol


class Keystone(Protocol):
    """What we ask of Keystone."""

    def project_exists(self, project_id: str, *, token: str = "") -> bool:
        """Whether the project is there; True as well when we may not know (Keystone refuses to tell)."""
        ...
