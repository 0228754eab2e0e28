"""Lists of servers: what is asked for, as a condition in SQL and as the same condition on records.

Both are needed: servers come from several databases, and from build requests, and are merged into one page.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import Boolean, Column, ColumnElement, Integer, Select, and_, exists, false, literal, not_, or_, select

from kilonova.core.network import Nic
from kilonova.core.server import Server
from kilonova.store import patterns
from kilonova.store.expressions import compiled
from kilonova.store.schema_cell import instances, tags
from kilonova.store.session import Tx
from kilonova.store.types import Time

Sort = tuple[str, Literal["asc", "desc"]]

# Columns that a filter must equal; all other texts are searched with a regular expression.
_EXACT = frozenset(
    {"uuid", "project_id", "user_id", "image_id", "flavorid", "vm_state", "task_state", "host", "reservation_id"}
)
_SECOND = datetime.timedelta(seconds=1)

# Names that the API, and operators, have for our columns.
_COLUMNS = {
    "display_name": "name",
    "display_description": "description",
    "image_ref": "image_id",
    "image": "image_id",
    "flavor": "flavorid",
    "instance_type_id": "flavorid",
    "tenant_id": "project_id",
    "ip": "addresses_v4",
    "ip6": "addresses_v6",
}
_TAGS = frozenset({"tags", "tags-any", "not-tags", "not-tags-any"})


class Listing(msgspec.Struct, kw_only=True):
    """Which servers, in which order.

    ``filters``: name -> values, any of which must be met: attributes of ``Server`` (or the API's names for them),
    ``flavor`` (its flavorid), ``ip`` and ``ip6``; in exact ones "" also means null. ``tags`` (all of the values),
    ``tags-any``, ``not-tags`` (not all), ``not-tags-any`` (none). Numbers, booleans ("true"/"false") and times (ISO,
    to the second) are texts. ``deleted``: None is both. ``changes_since``/``changes_before`` look at updated_at.
    ``sort``: attributes as for filters; the uuid breaks ties. ``marker``: the last server of the page before.
    """

    project_id: str | None = None
    filters: dict[str, list[str]] = {}
    changes_since: datetime.datetime | None = None
    changes_before: datetime.datetime | None = None
    deleted: bool | None = False
    sort: list[Sort] = []
    limit: int | None = None
    marker: Server | None = None

    def order(self) -> list[tuple[Column[Any], bool]]:
        """The columns to sort by, and whether each ascends."""
        asked = self.sort or [("created_at", "desc")]
        order = [(column_of(name), direction == "asc") for name, direction in asked]
        if all(column.name != "uuid" for column, _ in order):
            order.append((instances.c.uuid, order[-1][1]))
        return order


def column_of(name: str) -> Column[Any]:
    """The column behind an attribute or an API's name; KeyError."""
    column: Column[Any] = instances.c[_COLUMNS.get(name, name)]
    return column


def value_of(server: Server, column: Column[Any]) -> Any:
    """What ``column`` holds, or would hold, for ``server``."""
    match column.name:
        case "flavorid" | "vcpus" | "memory_mb":
            return getattr(server.flavor, column.name)
        case "addresses_v4":
            return addresses(server.nics, 4)
        case "addresses_v6":
            return addresses(server.nics, 6)
        case "updated_at":
            return server.updated_at or server.created_at
    return getattr(server, column.name)


def addresses(nics: Iterable[Nic], version: int) -> str:
    """The fixed addresses of one IP version, one a line."""
    return "\n".join(ip.address for nic in nics for ip in nic.fixed_ips if ip.version == version)


def apply(tx: Tx, query: Select[Any], listing: Listing) -> Select[Any]:
    """``query`` on instances, narrowed, ordered and cut as ``listing`` says."""
    query = query.where(*_conditions(tx, listing))
    order = listing.order()
    if listing.marker is not None:
        query = query.where(_after(order, listing.marker))
    query = query.order_by(*(_ordering(tx, column, ascending=ascending) for column, ascending in order))
    return query if listing.limit is None else query.limit(listing.limit)


def _conditions(tx: Tx, listing: Listing) -> list[ColumnElement[bool]]:
    columns = instances.c
    found: list[ColumnElement[bool]] = [columns.hidden.is_(False)]
    if listing.deleted is not None:
        found.append(columns.deleted != 0 if listing.deleted else columns.deleted == 0)
    if listing.project_id is not None:
        found.append(columns.project_id == listing.project_id)
    if listing.changes_since is not None:
        found.append(columns.updated_at >= listing.changes_since)
    if listing.changes_before is not None:
        found.append(columns.updated_at <= listing.changes_before)
    for name, values in listing.filters.items():
        found.append(_tagged(name, values) if name in _TAGS else _met(tx, column_of(name), values))
    return found


def _met(tx: Tx, column: Column[Any], values: list[str]) -> ColumnElement[bool]:
    if isinstance(column.type, Time):
        moments = [moment for moment in map(_moment, values) if moment is not None]
        return or_(false(), *(and_(column >= moment, column < moment + _SECOND) for moment in moments))
    if isinstance(column.type, Boolean | Integer) or column.name in _EXACT:
        wanted = [_typed(column, value) for value in values]
        known = [value for value in wanted if value is not None]
        null = column.is_(None) if "" in values and column.nullable else false()
        return or_(column.in_(known), null)
    return or_(false(), *(patterns.matches(tx, column, value) for value in values))


def _tagged(name: str, values: list[str]) -> ColumnElement[bool]:
    def has(condition: ColumnElement[bool]) -> ColumnElement[bool]:
        return exists(select(1).where(tags.c.resource_id == instances.c.uuid, condition))

    if name.endswith("-any"):
        met = has(tags.c.tag.in_(values))
    else:
        met = and_(*(has(tags.c.tag == value) for value in values))
    return not_(met) if name.startswith("not-") else met


def _typed(column: Column[Any], value: str) -> Any:
    """A filter's text as the column's type; None when it cannot be one."""
    if isinstance(column.type, Boolean):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.lower())
    if isinstance(column.type, Integer):
        return int(value) if value.removeprefix("-").isdecimal() and len(value) < 10 else None
    return value


def _moment(value: str) -> datetime.datetime | None:
    try:
        parsed = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)
    return parsed.replace(microsecond=0)


def _ordering(tx: Tx, column: Column[Any], *, ascending: bool) -> ColumnElement[Any]:
    """Nulls are smallest, as SQLite and MariaDB have it."""
    ordering = column.asc() if ascending else column.desc()
    if tx.dialect == "postgresql" and column.nullable:
        return ordering.nulls_first() if ascending else ordering.nulls_last()
    return ordering


def _after(order: list[tuple[Column[Any], bool]], marker: Server) -> ColumnElement[bool]:
    """The condition that a row comes behind ``marker``, which need not be in this database."""
    choices: list[ColumnElement[bool]] = []
    equal: list[ColumnElement[bool]] = []
    for column, ascending in order:
        value = value_of(marker, column)
        bound = literal(value, column.type)
        beyond: ColumnElement[bool]
        if ascending:
            beyond = column.is_not(None) if value is None else column > bound
        elif value is None:
            beyond = false()
        else:
            beyond = or_(column < bound, column.is_(None)) if column.nullable else column < bound
        choices.append(and_(*equal, beyond))
        equal.append(column.is_(None) if value is None else column == bound)
    column, ascending = order[0]
    if column.nullable:
        return or_(*choices)
    first = literal(value_of(marker, column), column.type)
    # Said on its own, the bound of the first column lets the database begin in the index at the marker.
    return and_(column >= first if ascending else column <= first, or_(*choices))


def selected(servers: Iterable[Server], listing: Listing) -> list[Server]:
    """The servers among records that ``listing`` asks for, in its order and cut at its limit."""
    found = [server for server in servers if _matches(server, listing)]
    if listing.marker is None:
        return _sorted(found, listing)[: listing.limit]
    marker = listing.marker
    ordered = _sorted([*(server for server in found if server.uuid != marker.uuid), marker], listing)
    return ordered[ordered.index(marker) + 1 :][: listing.limit]


def merge(parts: Iterable[Sequence[Server]], listing: Listing) -> list[Server]:
    """One page from the pages of several sources. A server in two of them counts where it comes first."""
    found: dict[str, Server] = {}
    for part in parts:
        for server in part:
            found.setdefault(server.uuid, server)
    return _sorted(list(found.values()), listing)[: listing.limit]


def _sorted(servers: list[Server], listing: Listing) -> list[Server]:
    for column, ascending in reversed(listing.order()):
        servers.sort(key=functools.partial(_key, column), reverse=not ascending)
    return servers


def _key(column: Column[Any], server: Server) -> tuple[bool, Any]:
    value = value_of(server, column)
    return (value is not None, value)


def _matches(server: Server, listing: Listing) -> bool:
    changed = server.updated_at or server.created_at
    return (
        (listing.deleted is None or server.deleted == listing.deleted)
        and (listing.project_id is None or server.project_id == listing.project_id)
        and (listing.changes_since is None or changed >= listing.changes_since)
        and (listing.changes_before is None or changed <= listing.changes_before)
        and not server.hidden
        and all(_has(server, name, values) for name, values in listing.filters.items())
    )


def _has(server: Server, name: str, values: list[str]) -> bool:
    if name in _TAGS:
        met = any(v in server.tags for v in values) if name.endswith("-any") else all(v in server.tags for v in values)
        return met != name.startswith("not-")
    column = column_of(name)
    value = value_of(server, column)
    if isinstance(column.type, Time):
        return value is not None and value.replace(microsecond=0) in [_moment(text) for text in values]
    if isinstance(column.type, Boolean | Integer) or column.name in _EXACT:
        if value is None:
            return "" in values
        return value in [_typed(column, text) for text in values]
    return value is not None and any(compiled(text).search(value) for text in values)
