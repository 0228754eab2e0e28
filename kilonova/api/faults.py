"""Errors as the wire has them: faults of handled requests, and the plainer form of what no handler saw."""

from __future__ import annotations

import html

import msgspec

from kilonova.base.errors import Fault

JSON = "application/json"
FAULT_JSON = "application/json; charset=UTF-8"

NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}

GENERIC = {
    404: "The resource could not be found.",
    413: "Request is too large. Larger than max_request_body_size (%s).",
}

TITLES = {404: "Not Found", 413: "Request Entity Too Large"}

_PAGE = """<html>
 <head>
  <title>{status}</title>
 </head>
 <body>
  <h1>{status}</h1>
  {text}<br /><br />



 </body>
</html>"""


def fault_body(code: int, message: str, *, retry_after: str | None = None) -> bytes:
    """A fault, e.g. {"itemNotFound": {"code": 404, "message": "..."}}."""
    content: dict[str, object] = {"code": code, "message": message}
    if retry_after is not None:
        content["retryAfter"] = retry_after
    return msgspec.json.encode({NAMES.get(code, "computeFault"): content})


def body_of(fault: Fault, code: int) -> bytes:
    """The fault that an error of ours is."""
    return fault_body(code, fault.message)


def unexpected_text(error: BaseException, support: str) -> str:
    """What users learn of a defect: its class, and whom to ask."""
    kind = type(error)
    return f"Unexpected API Error. {support}\n<class '{kind.__module__}.{kind.__qualname__}'>"


def plain(code: int, *, accept: str = "") -> tuple[bytes, str]:
    """Body and content type of an error that is no fault: no route, or a body too large."""
    status = f"{code} {TITLES[code]}"
    if "text/html" in accept:
        return _PAGE.format(status=status, text=html.escape(GENERIC[code])).encode(), "text/html; charset=UTF-8"
    message = f"{GENERIC[code]}<br /><br />\n\n\n"
    return msgspec.json.encode({"message": message, "code": status, "title": TITLES[code]}), JSON


def unauthenticated() -> bytes:
    """The body of a 401."""
    message = "The request you have made requires authentication."
    return msgspec.json.encode({"error": {"message": message, "code": 401, "title": "Unauthorized"}})
