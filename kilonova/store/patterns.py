"""Regular expressions in filters, with one meaning on every database: a search anywhere, case ignored, line by line."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from kilonova.store.expressions import compiled
from kilonova.store.session import Tx


def matches(tx: Tx, column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    """The condition that ``pattern`` is found in ``column``; BadRequest when it is no pattern at all.

    What we take and a database does not is refused by the database, and becomes BadRequest in the session.
    """
    compiled(pattern)
    match tx.dialect:
        case "mysql":
            return column.op("REGEXP", is_comparison=True)("(?im)" + pattern)
        case "postgresql":
            return column.op("~", is_comparison=True)("(?in)" + pattern)
    return column.op("REGEXP", is_comparison=True)(pattern)
