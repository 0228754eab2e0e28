"""Checks of texts with a form: ids, addresses, times, expressions, base64.

Each is a check for ``wire(check=...)``: it returns the value, mended, or raises ValueError with a text for people.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import re
import unicodedata
import uuid
from collections.abc import Callable
from typing import Any


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``check`` for all but None."""
    return lambda value: None if value is None else check(value)


def each(check: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """``check`` for every item of a list."""
    return lambda values: [check(value) for value in values]


def matching(pattern: str) -> Callable[[str], str]:
    """A check for texts that match the whole of ``pattern``."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"{value!r} does not match '^{pattern}$'")
        return value

    return check


def uuid_like(value: str) -> str:
    """A UUID, in any of its forms."""
    try:
        uuid.UUID(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a 'uuid'") from None
    return value


def ipv4(value: str) -> str:
    """An IPv4 address."""
    try:
        ipaddress.IPv4Address(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a 'ipv4'") from None
    return value


def ipv6(value: str) -> str:
    """An IPv6 address."""
    try:
        ipaddress.IPv6Address(value.replace("%", "/"))
    except ValueError:
        raise ValueError(f"{value!r} is not a 'ipv6'") from None
    return value


def address(value: str) -> str:
    """An address of either kind."""
    return ipv6(value) if ":" in value else ipv4(value)


def base64_text(value: str) -> str:
    """Text in base64, decoded as leniently as ever: foreign characters are passed over."""
    try:
        base64.decodebytes(value.encode())
    except (binascii.Error, ValueError):
        raise ValueError(f"{value[:40]!r} is not a 'base64'") from None
    return value


def regex(value: str) -> str:
    """A regular expression that can be compiled, and not an empty one."""
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError):
        raise ValueError(f"{value!r} is not a 'regex'") from None
    if not value:
        raise ValueError("'' is not a 'regex'")
    return value


def moment(value: str) -> datetime.datetime:
    """A time by ISO 8601; without a zone it is UTC. (A "+" of the zone that a URL turned into a space is mended.)"""
    try:
        found = datetime.datetime.fromisoformat(value.replace(" ", "+") if "T" in value else value)
        return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r} is not a 'date-time'") from None


def limit(value: str) -> int:
    """The size of a page."""
    if re.fullmatch(r"[0-9]{1,30}", value) is None:
        raise ValueError(f"{value!r} does not match '^[0-9]*$'")
    return int(value)


def one_line(value: str) -> str:
    """A text of printable characters, spaces anywhere, and perhaps a line's end behind it."""
    for character in value.removesuffix("\n"):
        category = unicodedata.category(character)
        if category.startswith("C") or category in ("Zl", "Zp"):
            raise ValueError(f"{value!r} has characters that cannot be printed")
    return value
