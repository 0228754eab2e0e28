"""From a request that is let in to an operation's answer, in the order of checks that clients know.

Route; version; content type; the body's form and the action's name; JSON; the project in the URL; the microversion's
window; the query and the body against their declarations; the handler. The first that fails answers.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, NamedTuple

import msgspec

from kilonova.api.call import Answer, Call, Services
from kilonova.api.gone import GONE, GONE_ACTIONS
from kilonova.api.identity import Identity
from kilonova.api.inputs import NoQuery
from kilonova.api.routing import Found, Router
from kilonova.base.body import Body
from kilonova.base.errors import BadMediaType, BadRequest, Gone, NotFound, ValidationFailed
from kilonova.base.operation import Operation, Table
from kilonova.base.versions import Version

_TYPES = ("application/json", "application/vnd.openstack.compute+json", "text/plain", "")
_WITH_BODY = ("POST", "PUT", "PATCH")
_STRIPPED = frozenset({"name", "key_name", "availability_zone"})


class Malformed(BadRequest):
    text = "Malformed request body"


class Asked(NamedTuple):
    """A request as the edge sees it. ``path`` is behind the endpoint's root; ``url_path`` the whole."""

    method: str
    path: str
    url_path: str
    query: str
    content_type: str
    content: bytes
    base: str
    legacy: bool = False


class Dispatcher:
    """Answers requests from the table of operations."""

    def __init__(self, table: Table, services: Services) -> None:
        self._table = table
        self._services = services
        self._methods = table.paths()
        self._router = Router([*self._methods, *GONE])

    def route(self, asked: Asked) -> Found | None:
        """Where the request goes; None where nothing answers its path and method."""
        for found in self._router.candidates(asked.path):
            if asked.method in GONE.get(found.path, ()) or asked.method in self._methods.get(found.path, ()):
                return found
        return None

    def answer(self, asked: Asked, found: Found, identity: Identity, version: Version) -> Answer:
        """The handler's answer; raises kinds of ours, and whatever a defect raises."""
        self._check_type(asked)
        if asked.method in GONE.get(found.path, ()):
            raise Gone()
        action, raw = self._read(asked, found)
        context = identity.context
        if found.project is not None and found.project != context.project_id:
            raise BadRequest(
                f"Malformed request URL: URL's project_id '{found.project}' doesn't match "
                f"Context's project_id '{context.project_id}'"
            )
        operation = self._table.find(asked.method, found.path, action=action, version=version)
        if operation is None:
            raise NotFound()
        raw_query = urllib.parse.parse_qs(asked.query, keep_blank_values=True)
        query = (operation.query or NoQuery).read(raw_query, version) if asked.method == "GET" else None
        call: Call[Any] = Call(
            operation=operation,
            context=context,
            version=version,
            params=found.params,
            body=_body(operation, raw, version, legacy=asked.legacy),
            query=query,
            raw_query=raw_query,
            services=self._services,
            token=identity.token,
            base=asked.base,
            path=asked.url_path,
            project_in_url=bool(context.project_id) and context.project_id in asked.url_path,
            root="v2" if asked.legacy else "v2.1",
        )
        said = operation.handler(call)
        if not call.authorized:
            raise AssertionError(f"{operation.name} answered without asking the policy")
        if not isinstance(said, Answer):
            said = Answer(said)
        return said if said.status is not None else Answer(said.body, operation.success, said.headers)

    def _check_type(self, asked: Asked) -> None:
        kind = asked.content_type.partition(";")[0].strip().lower()
        if kind not in _TYPES:
            raise BadMediaType()

    def _read(self, asked: Asked, found: Found) -> tuple[str | None, Any]:
        """The action's key and what stands under it, or None and the whole body."""
        is_action = asked.method == "POST" and found.path.endswith("/action")
        if asked.method not in _WITH_BODY:
            return None, None
        if not asked.content.strip():
            if is_action:
                raise Malformed()
            return None, None
        raw = _parse(asked.content)
        if asked.legacy:
            raw = _stripped(raw)
        if not is_action:
            return None, raw
        if not isinstance(raw, dict) or len(raw) != 1:
            raise Malformed()
        [(key, value)] = raw.items()
        if key in GONE_ACTIONS and found.path == "/servers/{server_id}/action":
            raise Gone()
        if not self._table.knows("POST", found.path, key):
            raise BadRequest(f"There is no such action: {key}")
        return key, value


def _parse(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed() from None


def _stripped(raw: Any) -> Any:
    """What the legacy endpoint forgives: spaces around names, and a user data of null."""
    if isinstance(raw, list):
        return [_stripped(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    mended = {}
    for key, value in raw.items():
        if key == "user_data" and value is None:
            continue
        mended[key] = value.strip() if key in _STRIPPED and isinstance(value, str) else _stripped(value)
    return mended


def _body(operation: Operation, raw: Any, version: Version, *, legacy: bool) -> Body | None:
    if operation.body is None or (raw is None and operation.body.nullable):
        return None
    try:
        return operation.body.decode(raw, version, lax=legacy)
    except ValidationFailed:
        raise
    except BadRequest as error:
        if operation.action is None:
            raise
        raise ValidationFailed(field=operation.action, value=raw, reason=error.message) from None
