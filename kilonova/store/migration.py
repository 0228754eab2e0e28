"""Brings a database to the newest version of its schema.

A new database is made from the tables' declarations in one go and stamped, which takes a fraction of the time of
migrations; a test holds that both ways end alike. Only one process changes a schema at a time, the others wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, MetaData, String, column, insert, inspect, select, table, text

from kilonova.base.errors import DatabaseUnavailable
from kilonova.store import schema_api, schema_cell

if TYPE_CHECKING:
    from alembic.config import Config

FOLDER = Path(__file__).parent / "migrations"
_LOCK = 7203681
_version = table("alembic_version", column("version_num", String(32)))


def declared(schema: Literal["api", "cell"]) -> tuple[MetaData, str]:
    """The tables and the newest version of a schema."""
    if schema == "api":
        return schema_api.metadata, schema_api.HEAD
    return schema_cell.metadata, schema_cell.HEAD


def version(connection: Connection) -> str | None:
    """The version that the database is at."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(select(_version.c.version_num)).scalar()
    return found


def sync(connection: Connection, schema: Literal["api", "cell"]) -> None:
    """Make the schema, or migrate it to the newest version, and commit."""
    metadata, head = declared(schema)
    with connection.begin(), _alone(connection):
        found = version(connection)
        if found is None:
            metadata.create_all(connection)
            _stamp(connection, head)
        elif found != head:
            migrate(connection, schema)


def migrate(connection: Connection, schema: Literal["api", "cell"], *, revision: str = "head") -> None:
    """Run the migrations up to ``revision``."""
    from alembic import command

    config = configuration(schema)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def configuration(schema: Literal["api", "cell"]) -> Config:
    """Alembic's configuration for a schema."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("version_locations", str(FOLDER / schema).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["metadata"] = declared(schema)[0]
    return config


def _stamp(connection: Connection, head: str) -> None:
    connection.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
    )
    connection.execute(insert(_version).values(version_num=head))


@contextlib.contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """Hold a lock that every process which changes the schema takes. SQLite's transaction is that lock already."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            yield
        case "mysql":
            # MariaDB commits at each change of the schema, so the lock is the session's.
            if connection.execute(text("SELECT GET_LOCK(CONCAT('kilonova-', DATABASE()), 60)")).scalar() != 1:
                raise DatabaseUnavailable("Another process has been changing the schema for a minute.")
            try:
                yield
            finally:
                connection.execute(text("SELECT RELEASE_LOCK(CONCAT('kilonova-', DATABASE()))"))
        case _:
            yield
