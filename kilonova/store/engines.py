"""How each database is connected to: one engine that only reads a consistent state, and one that writes.

SQLite: WAL, foreign keys, and writing transactions that begin IMMEDIATE, so that none fails half way for want of the
lock. MariaDB and PostgreSQL: reads on a snapshot (REPEATABLE READ), writes READ COMMITTED; nothing waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url

from kilonova.store.expressions import compiled

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
CONNECT_SECONDS = 5
LOCK_SECONDS = 10
STATEMENT_SECONDS = 60


class Engines(NamedTuple):
    """``remote``: behind a network, so that it may freeze."""

    reading: Engine
    writing: Engine
    remote: bool


def normalize(url: str) -> URL:
    """The URL with the driver that we use, whatever driver an operator's file names."""
    parsed = make_url(url)
    name = parsed.get_backend_name()
    if name not in _DRIVERS:
        raise ValueError(f"databases are sqlite, mysql (MariaDB) and postgresql; {name} is none of them")
    parsed = parsed.set(drivername=_DRIVERS[name])
    if name == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ValueError("an SQLite database must be a file: threads would each see another one in memory")
    if name in ("mysql", "mariadb"):
        parsed = parsed.update_query_dict({"charset": "utf8mb4"})
    return parsed


def connect(url: str, *, pool_size: int, patience: float) -> Engines:
    """Engines for ``url``; nothing is connected before the first use."""
    parsed = normalize(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed, pool_size, patience=patience)
    pool: dict[str, Any] = {
        "pool_size": pool_size,
        "max_overflow": 0,
        "pool_timeout": patience,
        "pool_use_lifo": True,
        "pool_recycle": 3600,
    }
    if parsed.get_backend_name() == "mysql":
        arguments: dict[str, Any] = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": STATEMENT_SECONDS,
            "write_timeout": STATEMENT_SECONDS,
            "init_command": f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}",
        }
        read_only = {"init_command": "SET SESSION TRANSACTION READ ONLY"}
        options: dict[str, Any] = {}
    else:
        arguments = {
            "connect_timeout": CONNECT_SECONDS,
            "tcp_user_timeout": STATEMENT_SECONDS * 1000,
            "options": f"-c lock_timeout={LOCK_SECONDS}s -c statement_timeout={STATEMENT_SECONDS}s -c timezone=UTC",
        }
        read_only, options = {}, {"postgresql_readonly": True}
    reading = create_engine(
        parsed,
        isolation_level="REPEATABLE READ",
        # A statement on a connection that the server has closed cannot be repeated under the caller of ``read``.
        pool_pre_ping=True,
        connect_args=arguments | read_only,
        execution_options=options,
        **pool,
    )
    writing = create_engine(parsed, isolation_level="READ COMMITTED", connect_args=arguments, **pool)
    return Engines(reading, writing, remote=True)


def _sqlite(url: URL, pool_size: int, *, patience: float) -> Engines:
    arguments = {"check_same_thread": False, "isolation_level": None, "timeout": patience}
    pool: dict[str, Any] = {"max_overflow": 0, "pool_timeout": patience, "pool_use_lifo": True}
    reading = create_engine(url, connect_args=arguments, pool_size=pool_size, **pool)
    writing = create_engine(url, connect_args=arguments, pool_size=2, **pool)
    for engine, first, last in (
        (reading, (), ("query_only=ON",)),
        (writing, ("journal_mode=WAL",), ("synchronous=NORMAL",)),
    ):
        _prepare_sqlite(engine, (*first, "foreign_keys=ON", *last))
    event.listen(reading, "begin", lambda connection: _begin(connection, "BEGIN"))
    event.listen(writing, "begin", lambda connection: _begin(connection, "BEGIN IMMEDIATE"))
    return Engines(reading, writing, remote=False)


def _create(path: str) -> None:
    """Make the file its owner's alone: passwords of guests and volumes go through it. Errors are SQLite's to tell.

    A file that is there must not even be opened: closing it would give up the locks that this process holds on it
    through SQLite, and another process would then take the database for unused and remove its log.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _prepare_sqlite(engine: Engine, pragmas: tuple[str, ...]) -> None:
    def create(dialect: object, record: object, arguments: list[str], options: object) -> None:
        _create(arguments[0])

    def prepare(connection: sqlite3.Connection, record: object) -> None:
        connection.create_function("regexp", 2, _matches, deterministic=True)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "do_connect", create)
    event.listen(engine, "connect", prepare)


def _begin(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement)


def _matches(pattern: str, value: object) -> bool | None:
    """SQLite's ``value REGEXP pattern``, with the rules that ``patterns.matches`` gives the other databases."""
    if value is None:
        return None
    return compiled(pattern).search(str(value)) is not None
