"""Regular expressions in filters, with one meaning on every database: a search anywhere, case ignored, line by line."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement

from kilonova.base.errors import BadRequest
from kilonova.store.session import Tx


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for use in Python; BadRequest when it is none."""
    try:
        return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadRequest(f"Invalid filter: {pattern!r} is not a regular expression: {error}") from error


def matches(tx: Tx, column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    """The condition that ``pattern`` is found in ``column``; BadRequest when it is no pattern at all.

    What Python takes and a database does not is refused by the database, and becomes BadRequest in the session.
    """
    compiled(pattern)
    match tx.dialect:
        case "mysql":
            return column.op("REGEXP", is_comparison=True)("(?im)" + pattern)
        case "postgresql":
            return column.op("~", is_comparison=True)("(?in)" + pattern)
    return column.op("REGEXP", is_comparison=True)(pattern)
