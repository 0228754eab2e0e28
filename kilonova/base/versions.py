"""Microversions as ordered values, and spans of them."""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"([1-9]\d{0,19})\.([1-9]\d{0,19}|0)", re.ASCII)


class Version(NamedTuple):
    """One microversion, e.g. ``Version(2, 96)``; compares as one expects."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``"2.96"``; ValueError where the text is not of the form MAJOR.MINOR."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum.")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


MIN = Version(2, 1)
MAX = Version(2, 104)


class Span(NamedTuple):
    """The microversions from ``since`` to ``until``, both included."""

    since: Version = MIN
    until: Version = MAX

    def __contains__(self, version: object) -> bool:
        return isinstance(version, tuple) and self.since <= version <= self.until

    def meets(self, other: Span) -> bool:
        """Whether any version lies in both."""
        return self.since <= other.until and other.since <= self.until


def span(since: str | None = None, until: str | None = None) -> Span:
    """A span from two texts; None means the end of the API's range."""
    return Span(Version.parse(since) if since else MIN, Version.parse(until) if until else MAX)


def supported() -> tuple[Version, ...]:
    """Every microversion of the API, oldest first."""
    return tuple(Version(MIN.major, minor) for minor in range(MIN.minor, MAX.minor + 1))
