"""Who asks, and for which request: carried with every message and every journal entry.

The token of the user is not part of it: it never leaves the process that received it.
"""

from __future__ import annotations

import contextlib
import contextvars
import uuid
from collections.abc import Iterator

import msgspec


def new_request_id() -> str:
    """A fresh id of the form ``req-<uuid>``."""
    return f"req-{uuid.uuid4()}"


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller and the request."""

    request_id: str = ""
    global_request_id: str = ""
    user_id: str = ""
    project_id: str = ""
    user_domain_id: str = ""
    project_domain_id: str = ""
    roles: tuple[str, ...] = ()
    service_roles: tuple[str, ...] = ()
    is_admin: bool = False
    system_scope: str = ""

    def credentials(self) -> dict[str, object]:
        """The form in which oslo.policy wants it."""
        return {
            "user_id": self.user_id,
            "project_id": self.project_id,
            "user_domain_id": self.user_domain_id,
            "project_domain_id": self.project_domain_id,
            "roles": list(self.roles),
            "service_roles": list(self.service_roles),
            "is_admin": self.is_admin,
            "system_scope": self.system_scope or None,
        }


_current: contextvars.ContextVar[Context] = contextvars.ContextVar("kilonova_context")


def current() -> Context:
    """The context of this thread's work; outside any request one of nobody."""
    return _current.get(Context())


@contextlib.contextmanager
def acting(context: Context) -> Iterator[Context]:
    """Do what follows on behalf of ``context``."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def service_context(service: str) -> Context:
    """The context of work that a service does of itself (timers, recovery)."""
    return Context(request_id=new_request_id(), user_id=service, is_admin=True, roles=("admin",))
