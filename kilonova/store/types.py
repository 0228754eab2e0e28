"""Column types that behave alike on SQLite, MariaDB and PostgreSQL, and the one way to declare a table.

Texts compare and sort by code point on all three (so Python can merge what several databases sorted), case counts, and
trailing blanks count. Times are UTC, aware in Python, with microseconds. JSON columns hold typed records.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
from sqlalchemy import Column, Dialect, Integer, MetaData, String, Table, Text
from sqlalchemy import types as sql
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import SchemaItem

# MariaDB: texts that compare by code point, trailing blanks included.
TABLE_OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value
    for dialect in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_nopad_bin"))
}


def text(length: int = 255) -> sql.TypeEngine[str]:
    """A short text that can be searched for."""
    return String(length).with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")


def long_text() -> sql.TypeEngine[str]:
    """A text without a limit that matters here (MariaDB: 16 MiB)."""
    return (
        Text()
        .with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
        .with_variant(postgresql.TEXT(collation="C"), "postgresql")
    )


class Time(sql.TypeDecorator[datetime.datetime]):
    """A moment: aware in Python, kept as UTC."""

    impl = sql.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> sql.TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sql.DateTime())

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone was to be stored")
        return value.astimezone(datetime.UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime.datetime | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else value.replace(tzinfo=datetime.UTC)


class Json(sql.TypeDecorator[Any]):
    """A value of ``shape`` (anything msgspec knows) as JSON text; None is NULL."""

    impl = Text
    cache_ok = True

    def __init__(self, shape: Any = Any) -> None:
        super().__init__()
        self.shape = shape
        self._decoder = msgspec.json.Decoder(shape)

    def load_dialect_impl(self, dialect: Dialect) -> sql.TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.MEDIUMTEXT())
        return dialect.type_descriptor(Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else self._decoder.decode(value)


def number() -> Column[int]:
    """The integer primary key ``id``, never given twice."""
    return Column("id", Integer, primary_key=True, autoincrement=True)


def table(name: str, metadata: MetaData, *items: SchemaItem) -> Table:
    """A table with the properties that all of ours have."""
    counted = any(isinstance(item, Column) and item.primary_key and item.autoincrement is True for item in items)
    return Table(name, metadata, *items, sqlite_autoincrement=counted, **TABLE_OPTIONS)
