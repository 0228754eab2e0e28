"""Types of the API's inputs that more than one resource takes: lax numbers and booleans, names, and plain queries."""

from __future__ import annotations

import math
import re
import unicodedata
import uuid
from collections.abc import Callable
from typing import Annotated, ClassVar

from msgspec import Meta

from kilonova.base.body import Query, Wire, wire
from kilonova.base.errors import BadRequest

MAX_INT = 0x7FFFFFFF

_TRUE = ("True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes")
_FALSE = ("False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no")

LaxBool = bool | str
"""A boolean or one of the texts that mean one; its wire has ``check=as_bool``."""

LaxInt = int | Annotated[str, Meta(pattern=r"^-?[0-9]+$")]
"""A whole number or its digits as text; its wire has ``check=whole(...)``."""

LaxFloat = float | int | Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
"""A number or its digits as text; its wire has ``check=positive``."""

Limit = Annotated[int, Meta(ge=0)]
"""A page's size in a query."""

Short = Annotated[str, Meta(min_length=1, max_length=255)]

HostName = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9\-._]*\Z")]
"""The name of a host."""


class NoQuery(Query):
    """The query of an operation that takes no parameters: they are refused since 2.102, and ignored before."""

    strict_since: ClassVar[str | None] = "2.102"


def as_bool(value: bool | str) -> bool:
    """The boolean that a lax input means; ValueError."""
    if isinstance(value, bool):
        return value
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"{value!r} is not one of {', '.join((*_TRUE, *_FALSE))}")


def whole(minimum: int, maximum: int = MAX_INT) -> Callable[[int | str], int]:
    """A check that reads a lax whole number between two bounds, both included."""

    def check(value: int | str) -> int:
        if isinstance(value, str) and len(value) > 20:
            raise ValueError(f"{value[:20]}… is too long a number")
        number = int(value)
        if number < minimum:
            raise ValueError(f"{value} is less than the minimum of {minimum}")
        if number > maximum:
            raise ValueError(f"{value} is greater than the maximum of {maximum}")
        return number

    return check


def positive(value: float | str) -> float:
    """A check that reads a lax number above 0, at most what a database's float holds."""
    number = float(value)
    if not 0 < number <= 3.40282e38 or math.isnan(number):
        raise ValueError(f"{value} is not greater than 0 and at most 3.40282e+38")
    return number


def lax_int(
    name: str | None = None,
    *,
    minimum: int = 0,
    since: str | None = None,
    until: str | None = None,
) -> Wire:
    """The wire of a ``LaxInt``."""
    return wire(name, since=since, until=until, check=whole(minimum))


def name_of(value: str) -> str:
    """A check of names: printable characters, no white space at either end."""
    if not value or value != value.strip() or not _is_printable(value):
        raise ValueError(
            "An invalid 'name' value was provided. The name must be: printable characters. "
            "Can not start or end with whitespace."
        )
    return value


def zone_of(value: str | None) -> str | None:
    """A check of names of availability zones: names without a colon; None passes."""
    if value is None:
        return None
    if ":" in value:
        raise ValueError(
            "An invalid 'availability_zone' value was provided. The name must be: printable characters except :. "
            "Can not start or end with whitespace."
        )
    return name_of(value)


def loose_name_of(value: str) -> str:
    """A check of names that may have white space at the ends, but are not white space alone."""
    if not value.strip() or not _is_printable(value):
        raise ValueError(
            "An invalid 'name' value was provided. The name must be: printable characters with at least one non "
            "space character."
        )
    return value.strip()


def printable(value: str | None) -> str | None:
    """A check of free texts: printable characters; None passes."""
    if value is not None and not _is_printable(value, also="\n"):
        raise ValueError("only printable characters are allowed")
    return value


def _is_printable(value: str, *, also: str = "") -> bool:
    def fits(char: str) -> bool:
        category = unicodedata.category(char)
        return char in also or not (category[0] == "C" or (category[0] == "Z" and category != "Zs"))

    return all(fits(char) for char in value)


def require_uuid(value: str) -> str:
    """The value, or BadRequest where it has not the form of a UUID."""
    if not is_uuid(value):
        raise BadRequest(f"Invalid uuid {value}")
    return value


def is_uuid(value: str) -> bool:
    """Whether a text has the form of a UUID."""
    try:
        uuid.UUID(value)
    except ValueError:
        return False
    return True


def require_int(value: str, *, name: str = "id") -> int:
    """The number in a path segment; BadRequest where it is none or no database could hold it."""
    if not re.fullmatch(r"-?[0-9]{1,10}", value) or abs(int(value)) > MAX_INT:
        raise BadRequest(f"{name} must be an integer")
    return int(value)
