"""The operator's vendor data: a static JSON file, and services asked over HTTP for each server.

Both the metadata service and the config drive tell it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec
from keystoneauth1 import noauth
from keystoneauth1 import session as keystone

from kilonova.base import log
from kilonova.clients.options import VendorDataOptions, VendorLoginOptions
from kilonova.clients.session import Login
from kilonova.core.metadata import InstanceMetadata, Json

LOG = log.of(__name__)


class VendorDataFailed(Exception):
    """A vendor data service failed and the operator holds that for fatal."""


class Response(Protocol):
    """What we use of a `requests` response."""

    status_code: int
    content: bytes


class Session(Protocol):
    """What we use of a keystoneauth session."""

    def post(self, url: str, **options: object) -> Response:
        """POST, with keystoneauth's options."""
        ...


class Target(msgspec.Struct, frozen=True):
    """A vendor data service: its name in vendor_data2.json and its address."""

    name: str
    url: str


def parse_targets(texts: list[str]) -> list[Target]:
    """[api] vendordata_dynamic_targets: texts of the form `name@url`. ValueError names a text that is not."""
    targets: list[Target] = []
    for text in texts:
        name, at, url = text.partition("@")
        if not name or not at or not url:
            raise ValueError(f"vendordata_dynamic_targets: {text!r} is not of the form name@url")
        targets.append(Target(name.strip(), url.strip()))
    return targets


class VendorData:
    """Static and dynamic vendor data as configured in [api].

    `session` authenticates as [vendordata_dynamic_auth] says, or not at all. A failing service counts as {} unless
    `fatal`; then VendorDataFailed is raised. The file is read again when it changes.
    """

    def __init__(
        self,
        path: Path | None = None,
        targets: list[Target] | None = None,
        *,
        session: Session | None = None,
        timeouts: tuple[float, float] = (5.0, 5.0),
        fatal: bool = False,
    ) -> None:
        self._path = path
        self._targets = targets or []
        self._session = session
        self._timeouts = timeouts
        self._fatal = fatal
        self._read: tuple[float, dict[str, Json]] = (-1.0, {})

    def static(self) -> dict[str, Json]:
        """The operator's file; {} when there is none or when it is no JSON object (which is logged)."""
        if self._path is None:
            return {}
        try:
            changed = self._path.stat().st_mtime
            if self._read[0] != changed:
                found = msgspec.json.decode(self._path.read_bytes())
                self._read = (changed, msgspec.convert(found, type=dict, strict=True))
        except (OSError, msgspec.MsgspecError) as error:
            LOG.warning("vendor data file %s cannot be used: %s", self._path, error)
            return {}
        return self._read[1]

    def dynamic(self, record: InstanceMetadata) -> dict[str, Json]:
        """The answers of all services about one server, by target name."""
        return {target.name: self._ask(target, record) for target in self._targets}

    def _ask(self, target: Target, record: InstanceMetadata) -> Json:
        if self._session is None:
            return {}
        question: dict[str, Json] = {
            "project-id": record.project_id,
            "instance-id": record.uuid,
            "image-id": record.image_id,
            "user-data": record.user_data.decode(errors="replace") if record.user_data is not None else None,
            "hostname": record.hostname,
            "metadata": dict(record.metadata),
            "boot-roles": "",
        }
        try:
            response = self._session.post(
                target.url,
                json=question,
                headers={"Accept": "application/json", "User-Agent": "openstack-nova-vendordata"},
                connect_retries=0,
                timeout=self._timeouts,
                raise_exc=True,
            )
            answer: Json = msgspec.json.decode(response.content) if response.content else {}
        except Exception as error:
            LOG.warning("vendor data service %s failed: %s", target.name, log.masked(str(error)))
            if self._fatal:
                raise VendorDataFailed(f"vendor data service {target.name} failed") from error
            return {}
        return answer


def configured(options: VendorDataOptions, login: VendorLoginOptions) -> VendorData:
    """As the configuration says. ValueError names a target that is none, or a provider that is not known."""
    known = {"StaticJSON", "DynamicJSON"}
    unknown = sorted(set(options.vendordata_providers) - known)
    if unknown:
        raise ValueError(f"vendordata_providers: {', '.join(unknown)} is not one of {', '.join(sorted(known))}")
    is_static = "StaticJSON" in options.vendordata_providers and options.vendordata_jsonfile_path is not None
    is_dynamic = "DynamicJSON" in options.vendordata_providers
    session: Any = None
    if is_dynamic:
        session = Login(login).session if login.auth_url is not None else keystone.Session(auth=noauth.NoAuth())
    return VendorData(
        Path(str(options.vendordata_jsonfile_path)) if is_static else None,
        parse_targets(options.vendordata_dynamic_targets) if is_dynamic else [],
        session=session,
        timeouts=(options.vendordata_dynamic_connect_timeout, options.vendordata_dynamic_read_timeout),
        fatal=options.vendordata_dynamic_failure_fatal,
    )
