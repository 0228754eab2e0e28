"""Which microversion a request wants, and what its answer says of it."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.base.errors import BadRequest, Fault
from kilonova.base.versions import MAX, MIN, Version

NEW_HEADER = "OpenStack-API-Version"
OLD_HEADER = "X-OpenStack-Nova-API-Version"


class NotAcceptable(Fault):
    """The version is well formed, but none of ours. ``version`` is what was asked."""

    code = 406
    text = "Version {version} is not supported by the API. Minimum is {min} and maximum is {max}."

    def __init__(self, message: str | None = None, *, version: Version | str = "", **facts: object) -> None:
        super().__init__(message, version=str(version), min=str(MIN), max=str(MAX), **facts)
        self.version = version


def asked(new: str | None, old: str | None) -> str | None:
    """The text of the version asked for, None for none. ``new`` may name versions of several services."""
    for entry in (new or "").split(","):
        service, _, version = entry.strip().partition(" ")
        if service.lower() == "compute":
            return version.strip()
    return old


def negotiate(new: str | None, old: str | None) -> Version:
    """The microversion of a request; BadRequest where it cannot be read, NotAcceptable outside the range."""
    text = asked(new, old)
    if text is None:
        return MIN
    if text.lower() == "latest":
        return MAX
    try:
        version = Version.parse(text)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not MIN <= version <= MAX:
        raise NotAcceptable(version=version)
    return version


def headers(version: Version | str) -> Mapping[str, str]:
    """What every handled request's answer says of its version; the two names in Vary travel as two headers."""
    return {NEW_HEADER: f"compute {version}", OLD_HEADER: str(version), "Vary": f"{NEW_HEADER}, {OLD_HEADER}"}
