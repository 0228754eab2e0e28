"""Regular expressions that users wrote, tried in time that is proportional to the text.

Python's own engine holds the whole process while it tries every way through one like ``(a+)+$``, which may take for
ever. RE2 does not; it knows no look-around and no back references.
"""

from __future__ import annotations

import functools
from typing import Protocol

import re2

from kilonova.base.errors import BadRequest


class Expression(Protocol):
    """A compiled expression: a search anywhere, case ignored, line by line."""

    def search(self, text: str, /) -> object | None:
        """Something where it is found in ``text``, else None."""
        ...


@functools.lru_cache(maxsize=64)
def compiled(pattern: str) -> Expression:
    """The pattern for use in Python; BadRequest when it is none."""
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, 1 << 20
    try:
        found: Expression = re2.compile(f"(?m){pattern}", options=options)
    except (re2.error, UnicodeError) as error:
        raise BadRequest(f"Invalid filter: {pattern!r} is not a regular expression: {_reason(error)}") from error
    return found


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(error)
