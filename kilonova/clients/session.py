"""HTTP to a neighbour: our login, a pool of kept connections, time limits, bounded retries, and typed failures.

The only place that retries requests: when no answer came, or 502 to 504, and only those that may be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec
import requests
import tenacity
from keystoneauth1 import exceptions as failures
from keystoneauth1 import loading
from keystoneauth1.session import Session
from requests.adapters import HTTPAdapter

from kilonova.base import context as contexts
from kilonova.base import log
from kilonova.base.config import BadConfig
from kilonova.base.errors import NeighbourUnavailable
from kilonova.clients.options import NeighbourOptions, ServiceUserOptions

LOG = log.of(__name__)

_AUTH = (
    "auth_url",
    "username",
    "user_id",
    "user_domain_id",
    "user_domain_name",
    "password",
    "project_name",
    "project_id",
    "project_domain_id",
    "project_domain_name",
    "application_credential_id",
    "application_credential_secret",
)
_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE"}
_BUSY = {502, 503, 504}
_TRANSPORT = (failures.RetriableConnectionFailure, requests.exceptions.RequestException)

Params = Mapping[str, str | int] | Sequence[tuple[str, str]]


class _NoAnswer(Exception):
    """The request may be sent again."""

    def __init__(self, reason: str, *, neighbour: str = "") -> None:
        super().__init__(reason)
        self.reason, self.neighbour = reason, neighbour


class Login:
    """Our login as one section says, with its own pool of connections; ``service`` stands in where it says nothing.

    ``connections``: how many threads may ask at once without opening connections anew.
    """

    def __init__(
        self, options: NeighbourOptions, *, service: ServiceUserOptions | None = None, connections: int = 32
    ) -> None:
        who = service if options.auth_url is None and service is not None else options
        if who.auth_url is None and who.auth_type == "password":
            raise BadConfig("no auth_url is configured, neither for the neighbour nor in [service_user]")
        self._who, self._options = who, options
        http = requests.Session()
        http.trust_env = False
        for scheme in ("http://", "https://"):
            http.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=connections))
        self._http = http
        self._auth = self._plugin()
        self.session = self._session(self._auth)
        self._by_project: dict[str, Session] = {}
        self._lock = threading.Lock()

    def _plugin(self, **over: Any) -> Any:
        values = {name: value for name in _AUTH if (value := getattr(self._who, name)) is not None}
        values |= over
        loader: Any = loading.get_plugin_loader(self._who.auth_type)
        known = {opt.dest for opt in loader.get_options()}
        return loader.load_from_options(**{name: value for name, value in values.items() if name in known})

    def _session(self, auth: Any) -> Session:
        options = self._options
        cert = (options.certfile, options.keyfile) if options.certfile and options.keyfile else options.certfile
        verify = False if options.insecure else (options.cafile or True)
        return Session(auth=auth, session=self._http, verify=verify, cert=cert)

    def for_project(self, project_id: str) -> Session:
        """A session logged in to another project: our user needs a role in it (an inherited one on its domain)."""
        with self._lock:
            found = self._by_project.get(project_id)
            if found is None:
                over = dict.fromkeys(("project_name", "project_domain_id", "project_domain_name"))
                found = self._session(self._plugin(**over, project_id=project_id))
                if len(self._by_project) > 500:
                    self._by_project.clear()
                self._by_project[project_id] = found
            return found

    def token(self) -> str:
        """Our own token."""
        return str(self.session.get_token())


class Neighbour:
    """Requests to one service. Paths begin behind its endpoint: ``/v2.0/ports``.

    ``service``: whose token goes beside a user's, and with ``vouch`` beside our own as well: a service that asks the
    compute API back before it lets go of something does not when it sees that the request comes from there.

    Answers below 500 are returned for the caller to judge, except 401 and 403 to our own login; all else that goes
    wrong is NeighbourUnavailable.
    """

    def __init__(
        self,
        name: str,
        options: NeighbourOptions,
        *,
        login: Login,
        service_type: str,
        service: Login | None = None,
        override: str | None = None,
        vouch: bool = False,
    ) -> None:
        self._vouch = vouch
        self.name, self._options, self._login, self._service = name, options, login, service
        self._type = options.service_type or service_type
        self._override = options.endpoint_override or override
        self._endpoint: str | None = None

    def endpoint(self, session: Session | None = None) -> str:
        """The service's URL without a slash at its end; some catalogs have another one for each project."""
        if self._override:
            if "%(" in self._override:
                project = str((session or self._login.session).get_project_id())
                return self._override.rstrip("/") % {"project_id": project, "tenant_id": project}
            return self._override.rstrip("/")
        if self._endpoint is None or session is not None:
            found = (session or self._login.session).get_endpoint(
                service_type=self._type,
                service_name=self._options.service_name,
                interface=self._options.valid_interfaces,
                region_name=self._options.region_name,
                skip_discovery=True,
            )
            if not found:
                self._fail(f"the catalog has no endpoint of type {self._type}")
            if session is not None:
                return str(found).rstrip("/")
            self._endpoint = str(found).rstrip("/")
        return self._endpoint

    def get(self, path: str, **how: Any) -> requests.Response:
        """GET; see ``send``."""
        return self.send("GET", path, **how)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        token: str = "",
        project_id: str | None = None,
        repeatable: bool | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """Send a request.

        ``token``: a user's, used instead of ours, which then goes beside it. ``project_id``: log in to that project.
        ``repeatable``: whether it does no harm twice (by default: not for POST and PATCH).
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        how: dict[str, Any] = {"params": params, "stream": stream}
        if body is not None:
            how["data"] = msgspec.json.encode(body)
        attempts = 1 + self._options.connect_retries if again else 1
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_NoAnswer),
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=3.0),
            reraise=True,
        )
        try:
            answer: requests.Response = retrying(
                self._once, method, path, how, headers=headers or {}, token=token, project_id=project_id
            )
        except _NoAnswer as error:
            raise NeighbourUnavailable(neighbour=error.neighbour or self.name, reason=error.reason) from error
        return answer

    def _once(
        self,
        method: str,
        path: str,
        how: dict[str, Any],
        *,
        headers: Mapping[str, str],
        token: str,
        project_id: str | None,
    ) -> requests.Response:
        other = None if project_id is None else self._login.for_project(project_id)
        if not token:
            self._log_in(other or self._login.session, project_id)
        try:
            answer: requests.Response = (other or self._login.session).request(
                f"{self.endpoint(other)}{path}",
                method,
                headers=self._headers(headers, token, "data" in how),
                authenticated=not token,
                raise_exc=False,
                log=False,
                timeout=(self._options.connect_timeout, self._options.timeout),
                **how,
            )
        except _TRANSPORT as error:
            self._endpoint = None
            raise _NoAnswer(_brief(error)) from error
        except failures.ClientException as error:
            self._fail(_brief(error), error)
        if answer.status_code in _BUSY:
            raise _NoAnswer(f"it answered {answer.status_code} to {method} {path}")
        if answer.status_code >= 500:
            self._fail(f"it answered {answer.status_code} to {method} {path}")
        if answer.status_code == 401 and not token:
            self._fail("it does not accept the token of the service user")
        if answer.status_code == 403 and not token:
            LOG.warning("%s forbids the service user %s %s: %s", self.name, method, path, text_of(answer))
        return answer

    def _log_in(self, session: Session, project_id: str | None) -> None:
        """Costs nothing while the token is good. A failure is Keystone's, not the neighbour's."""
        try:
            session.get_token()
        except failures.Unauthorized as error:
            where = "" if project_id is None else f" to project {project_id}"
            reason = f"it refuses the login of the service user{where}"
            raise NeighbourUnavailable(neighbour="keystone", reason=reason) from error
        except (failures.ServiceUnavailable, *_TRANSPORT) as error:
            raise _NoAnswer(_brief(error), neighbour="keystone") from error
        except failures.ClientException as error:
            raise NeighbourUnavailable(neighbour="keystone", reason=_brief(error)) from error

    def _headers(self, headers: Mapping[str, str], token: str, has_body: bool) -> dict[str, str]:
        sent = {"Accept": "application/json", "User-Agent": "kilonova", **headers}
        if has_body:
            sent["Content-Type"] = "application/json"
        request_id = contexts.current().request_id
        if request_id:
            sent["X-OpenStack-Request-ID"] = request_id
        if token:
            sent["X-Auth-Token"] = token
        if self._service is not None and (token or self._vouch):
            sent["X-Service-Token"] = self._service.token()
        return sent

    def _fail(self, reason: str, error: BaseException | None = None) -> NoReturn:
        raise NeighbourUnavailable(neighbour=self.name, reason=reason) from error

    def unexpected(self, answer: requests.Response) -> NeighbourUnavailable:
        """The failure to raise for an answer that nobody counts with."""
        return NeighbourUnavailable(
            neighbour=self.name, reason=f"it answered {answer.status_code}: {text_of(answer)[:300]}"
        )

    def read(self, answer: requests.Response) -> Any:
        """The answer's JSON; what is no JSON is a broken neighbour."""
        try:
            return msgspec.json.decode(answer.content)
        except msgspec.MsgspecError as error:
            raise NeighbourUnavailable(neighbour=self.name, reason="its answer is not JSON") from error


def _brief(error: BaseException) -> str:
    """What went wrong, without addresses of objects and nested texts of libraries."""
    text = str(error)
    if isinstance(error, failures.ConnectTimeout) or "timed out" in text.lower():
        return "it did not answer in time"
    if "refused" in text.lower():
        return "it refuses connections"
    if isinstance(error, failures.ConnectFailure):
        return "it cannot be reached or dropped the connection"
    return text.split("\n", 1)[0][:200]


def text_of(answer: requests.Response) -> str:
    """What an error answer says to people, whichever of the services' forms it has."""
    try:
        data = msgspec.json.decode(answer.content)
    except msgspec.MsgspecError:
        return answer.text[:300] if "html" not in answer.headers.get("Content-Type", "") else ""
    if isinstance(data, dict):
        errors = data.get("errors")
        if isinstance(errors, list) and errors and isinstance(errors[0], dict):
            return str(errors[0].get("detail", "")).strip()
        for value in data.values():
            if isinstance(value, dict) and "message" in value:
                return str(value["message"])
            if isinstance(value, str):
                return value
    return ""


def code_of(answer: requests.Response) -> str:
    """The machine-readable code of an error answer: Placement's ``code``, Neutron's ``type``; "" without one."""
    try:
        data = msgspec.json.decode(answer.content)
    except msgspec.MsgspecError:
        return ""
    if not isinstance(data, dict):
        return ""
    errors = data.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return str(errors[0].get("code", ""))
    kind = data.get("NeutronError")
    return str(kind.get("type", "")) if isinstance(kind, dict) else ""
