"""The Compute API as a WSGI application: what surrounds every operation.

Here are request ids, the limit of a body's size, authentication, version documents, faults, headers and the access log.
Falcon ends here: one sink takes every path, and the table of operations is the only list of routes.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import falcon
import msgspec

from kilonova import api
from kilonova.api import faults, identity, negotiation, versions_document
from kilonova.api.call import Policy, Services
from kilonova.api.dispatch import Asked, Dispatcher
from kilonova.api.options import Options
from kilonova.base import context as contexts
from kilonova.base.context import Context
from kilonova.base.errors import BadRequest, Fault
from kilonova.base.operation import TABLE, Table
from kilonova.base.versions import MIN, Version

LOG = logging.getLogger(__name__)

_ENDPOINTS = {"v2": "v2.0", "v2.1": "v2.1"}


class Served(NamedTuple):
    """One request that was answered, for the access log and for measurements. ``route`` is the declared path."""

    method: str
    route: str
    path: str
    status: int
    seconds: float
    version: str
    size: int


def load_operations() -> Table:
    """The table with every resource of the API in it."""
    for module in pkgutil.walk_packages(api.__path__, f"{api.__name__}."):
        importlib.import_module(module.name)
    return TABLE


def make_application(
    services: Services,
    options: Options,
    *,
    authenticate: identity.Authenticator,
    is_admin: Callable[[Context], bool] | None = None,
    observe: Callable[[Served], None] | None = None,
    table: Table | None = None,
) -> Application:
    """The application. ``authenticate`` says who asks (``identity.Keystone`` in production); ``observe`` is told of
    every request answered; ``is_admin`` decides over ``context.is_admin`` (default: the rule context_is_admin)."""
    decide = is_admin or _by_policy(services.policy)
    edge = Edge(
        services,
        options,
        authenticate=authenticate,
        is_admin=decide,
        observe=observe,
        table=table or load_operations(),
    )
    return Application(edge)


def _by_policy(policy: Policy) -> Callable[[Context], bool]:
    def decide(context: Context) -> bool:
        return policy.allows("context_is_admin", context, {"project_id": context.project_id})

    return decide


class Application(falcon.App[falcon.Request, falcon.Response]):
    """Falcon's application with our sink; it sends the two names of Vary as two headers."""

    def __init__(self, edge: Edge) -> None:
        super().__init__()
        self.req_options.strip_url_path_trailing_slash = False
        self.add_sink(edge.serve, "")
        self.set_error_serializer(_serialize)

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            split: list[tuple[str, str]] = []
            for name, value in headers:
                if name.lower() == "vary":
                    split += [(name, part.strip()) for part in value.split(",")]
                else:
                    split.append((name, value))
            return start_response(status, split, exc_info) if exc_info else start_response(status, split)

        answered: Iterable[bytes] = super().__call__(env, start)
        return answered


def _serialize(req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError) -> None:
    """What falcon itself refuses (a request line it cannot read) looks like our faults."""
    resp.data = faults.fault_body(error.status_code, error.title or "")
    resp.content_type = faults.FAULT_JSON


class Edge:
    """Answers one request at a time; holds nothing between them."""

    def __init__(
        self,
        services: Services,
        options: Options,
        *,
        authenticate: identity.Authenticator,
        is_admin: Callable[[Context], bool],
        observe: Callable[[Served], None] | None,
        table: Table,
    ) -> None:
        self._options = options
        self._authenticate = authenticate
        self._is_admin = is_admin
        self._observe = observe
        self._dispatcher = Dispatcher(table, services)

    def serve(self, req: falcon.Request, resp: falcon.Response, **_: str) -> None:
        """Falcon's sink."""
        began = time.monotonic()
        request_id, global_id = identity.request_ids(req.get_header("X-OpenStack-Request-ID"))
        notes = {"route": "", "version": ""}
        with contexts.acting(Context(request_id=request_id, global_request_id=global_id)):
            try:
                self._serve(req, resp, notes)
            finally:
                self._log(req, resp, notes, time.monotonic() - began)

    def _log(self, req: falcon.Request, resp: falcon.Response, notes: Mapping[str, str], seconds: float) -> None:
        served = Served(
            req.method,
            notes["route"],
            req.path,
            resp.status_code,
            seconds,
            notes["version"],
            len(resp.data or b""),
        )
        LOG.info(
            '%s "%s %s" status: %d len: %d microversion: %s time: %.6f',
            req.remote_addr,
            served.method,
            req.relative_uri,
            served.status,
            served.size,
            served.version or "-",
            served.seconds,
        )
        if self._observe is not None:
            self._observe(served)

    def _serve(self, req: falcon.Request, resp: falcon.Response, notes: dict[str, str]) -> None:
        path = _whole_path(req)
        base = self._options.api.compute_link_prefix or _host_url(req, self._options.body.enable_proxy_headers_parsing)
        base = base.rstrip("/")
        root, _, rest = path.lstrip("/").partition("/")
        if root not in _ENDPOINTS:
            _say(resp, 200 if path == "/" else 300, versions_document.index(base) if path == "/" else
                 versions_document.choices(base, path))  # fmt: skip
            return
        request_id = contexts.current().request_id
        resp.set_header("x-openstack-request-id", request_id)
        resp.set_header("x-compute-request-id", request_id)
        legacy = root == "v2"
        if not rest:
            self._document(req, resp, base, legacy=legacy)
            return
        content = _content(req, self._options.body.max_request_body_size)
        if content is None:
            _plain(req, resp, 413)
            return
        asked = Asked(
            req.method, f"/{rest}", path, req.query_string, req.content_type or "", content, base, legacy
        )  # fmt: skip
        self._guarded(req, resp, asked, notes)

    def _document(self, req: falcon.Request, resp: falcon.Response, base: str, *, legacy: bool) -> None:
        if req.method != "GET":
            _plain(req, resp, 404)
            return
        version = self._negotiate(req, resp, legacy=legacy)
        if version is not None:
            _say(resp, 200, versions_document.document(base, "v2.0" if legacy else "v2.1"))

    def _guarded(self, req: falcon.Request, resp: falcon.Response, asked: Asked, notes: dict[str, str]) -> None:
        """Let in, route, negotiate, dispatch; every failure becomes its fault."""
        try:
            known = self._authenticate(req.env)
        except identity.Refused as refused:
            resp.status, resp.data = refused.status, refused.body
            for name, value in refused.headers:
                if name.lower() != "content-length":
                    resp.set_header(name, value)
            return
        ids = contexts.current()
        context = msgspec.structs.replace(
            known.context, request_id=ids.request_id, global_request_id=ids.global_request_id
        )
        context = msgspec.structs.replace(context, is_admin=self._is_admin(context))
        with contexts.acting(context):
            found = self._dispatcher.route(asked)
            if found is None:
                _plain(req, resp, 404)
                return
            notes["route"] = found.path
            version = self._negotiate(req, resp, legacy=asked.legacy)
            if version is None:
                return
            notes["version"] = str(version)
            try:
                answer = self._dispatcher.answer(asked, found, identity.Identity(context, known.token), version)
            except Fault as fault:
                self._fail(resp, fault)
                return
            except Exception as error:
                LOG.exception("Unexpected exception in API method %s %s", asked.method, found.path)
                _fault(resp, 500, faults.unexpected_text(error, self._options.support))
                return
        resp.status = answer.status or 200
        for name, value in answer.headers.items():
            resp.set_header(name, value)
        if answer.body is not None:
            resp.data, resp.content_type = msgspec.json.encode(answer.body), faults.JSON

    def _fail(self, resp: falcon.Response, fault: Fault) -> None:
        if fault.code < 500 or fault.code in (501, 503):
            if fault.code >= 500:
                LOG.warning("%s: %s", type(fault).__name__, fault.message)
            _fault(resp, fault.code, fault.message)
        else:
            LOG.error("%s: %s", type(fault).__name__, fault.message)
            _fault(resp, 500, faults.unexpected_text(fault, self._options.support))

    def _negotiate(self, req: falcon.Request, resp: falcon.Response, *, legacy: bool) -> Version | None:
        """The request's version, its headers set; None when the answer says what is wrong with it."""
        if legacy:
            return MIN
        try:
            version = negotiation.negotiate(
                req.get_header(negotiation.NEW_HEADER), req.get_header(negotiation.OLD_HEADER)
            )
        except negotiation.NotAcceptable as refused:
            resp.set_headers(dict(negotiation.headers(refused.version)))
            _fault(resp, 406, refused.message)
            return None
        except BadRequest as error:
            _fault(resp, 400, error.message)
            return None
        resp.set_headers(dict(negotiation.headers(version)))
        return version


def _host_url(req: falcon.Request, behind_proxy: bool) -> str:
    if behind_proxy:
        return f"{req.forwarded_scheme}://{req.forwarded_host}"
    return f"{req.scheme}://{req.netloc}"


def _whole_path(req: falcon.Request) -> str:
    """The path as sent, with a trailing slash where it had one."""
    path = req.env.get("PATH_INFO", "")
    return path.encode("latin-1").decode("utf-8", "replace") if path else "/"


def _content(req: falcon.Request, most: int) -> bytes | None:
    """The request's body; None when it is larger than ``most`` bytes."""
    if (req.content_length or 0) > most:
        return None
    # A server that took the body in chunks knows its end, but not its length.
    stream = req.stream if req.env.get("wsgi.input_terminated") else req.bounded_stream
    content: bytes = stream.read(most + 1)
    return content if len(content) <= most else None


def _say(resp: falcon.Response, status: int, body: object) -> None:
    resp.status, resp.data, resp.content_type = status, msgspec.json.encode(body), faults.JSON


def _plain(req: falcon.Request, resp: falcon.Response, status: int) -> None:
    resp.status = f"{status} {faults.TITLES[status]}"
    resp.data, resp.content_type = faults.plain(status, accept=req.get_header("Accept") or "")


def _fault(resp: falcon.Response, status: int, message: str) -> None:
    resp.status, resp.data, resp.content_type = status, faults.fault_body(status, message), faults.FAULT_JSON
