"""Who asks: from a request's token to a ``Context``.

Tokens are judged by keystonemiddleware; here it is only asked. An authenticator is a function from the WSGI environment
to an ``Identity``; it raises ``Refused`` with the whole answer where the request must not go on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from kilonova.api import faults
from kilonova.base.context import Context, new_request_id

IMPLIED = {
    "admin": ("admin", "manager", "member", "reader"),
    "manager": ("manager", "member", "reader"),
    "member": ("member", "reader"),
}
"""Which roles a role brings with it, as Keystone's bootstrap sets up."""

_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


class Refused(Exception):
    """The request is not let in; the answer is complete."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body


@dataclasses.dataclass(frozen=True)
class Identity:
    """The caller, without what only the edge knows (request id, is_admin), and the token as it came."""

    context: Context
    token: str = ""


Authenticator = Callable[[dict[str, Any]], Identity]


def request_ids(given: str | None) -> tuple[str, str]:
    """A fresh request id, and the global one: the caller's where it looks like one, else ""."""
    return new_request_id(), given if given and _GLOBAL_ID.fullmatch(given) else ""


def refusal(uri: str = "") -> Refused:
    """The plain 401."""
    challenge = [("WWW-Authenticate", f'Keystone uri="{uri}"')] if uri else []
    return Refused("401 Unauthorized", [("Content-Type", faults.JSON), *challenge], faults.unauthenticated())


def identity_of(environ: Mapping[str, Any]) -> Identity:
    """The identity that auth_token left in the headers it sets; Refused where it names no user."""

    def header(name: str) -> str:
        return str(environ.get(f"HTTP_{name}", "") or "")

    user = header("X_USER_ID") or header("X_USER")
    if not user:
        raise refusal()
    context = Context(
        user_id=user,
        project_id=header("X_PROJECT_ID") or header("X_TENANT_ID"),
        user_domain_id=header("X_USER_DOMAIN_ID"),
        project_domain_id=header("X_PROJECT_DOMAIN_ID"),
        roles=_listed(header("X_ROLES")),
        service_roles=_listed(header("X_SERVICE_ROLES")),
        system_scope=header("OPENSTACK_SYSTEM_SCOPE"),
    )
    return Identity(context, header("X_AUTH_TOKEN"))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(role.strip().lower() for role in text.split(",") if role.strip())


class Keystone:
    """Asks keystonemiddleware's auth_token, configured by [keystone_authtoken]."""

    def __init__(self, conf: Any) -> None:
        from keystonemiddleware import auth_token

        self._middleware = auth_token.AuthProtocol(_let_in, {"oslo_config_config": conf, "oslo_config_project": "nova"})

    def __call__(self, environ: dict[str, Any]) -> Identity:
        asked = dict(environ)
        said: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> Callable[[bytes], None]:
            said.update(status=status, headers=headers)
            return lambda data: None

        found = self._middleware(asked, start_response)
        passed = asked.get("kilonova.identity")
        if passed is not None:
            return identity_of(asked)
        raise Refused(said["status"], said["headers"], _joined(found))


def _let_in(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """What stands behind auth_token: reached by a valid token only."""
    environ["kilonova.identity"] = True
    start_response("204 No Content", [])
    return []


def _joined(pieces: Iterable[bytes]) -> bytes:
    try:
        return b"".join(pieces)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


class Headers:
    """Believes the headers X-User-Id, X-Project-Id and X-Roles as they come. For tests alone: it checks nothing."""

    def __call__(self, environ: dict[str, Any]) -> Identity:
        found = identity_of(environ)
        roles = {implied for role in found.context.roles for implied in IMPLIED.get(role, (role,))}
        return Identity(msgspec.structs.replace(found.context, roles=tuple(sorted(roles))), found.token)
