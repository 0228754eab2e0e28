"""Schemas: what the migrations make is what the declarations make, on every database."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, create_engine, inspect
from sqlalchemy.schema import CreateIndex, CreateTable

from kilonova.store import engines, migration
from kilonova.store.session import Database
from tests.db.conftest import MakeUrl

Schema = Literal["api", "cell"]
SCHEMAS: list[Schema] = ["api", "cell"]


def _described(connection: Connection) -> dict[str, list[str]]:
    """Every table as the database itself would make it again."""
    found = MetaData()
    found.reflect(connection)
    described = {}
    for table in found.sorted_tables:
        if table.name == "alembic_version":
            continue
        indexes = sorted(str(CreateIndex(index).compile(connection)) for index in table.indexes)
        described[table.name] = [str(CreateTable(table).compile(connection)), *indexes]
    return described


@pytest.mark.parametrize("schema", SCHEMAS)
def test_migrations_make_the_declared_schema(make_url: MakeUrl, schema: Schema) -> None:
    metadata, head = migration.declared(schema)
    made, migrated = create_engine(engines.normalize(make_url())), create_engine(engines.normalize(make_url()))
    with made.connect() as connection:
        migration.sync(connection, schema)
        wanted = _described(connection)
    with migrated.connect() as connection:
        with connection.begin():
            migration.migrate(connection, schema)
        assert migration.version(connection) == head
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert _described(connection) == wanted
    made.dispose()
    migrated.dispose()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_head_is_the_last_migration(schema: Schema) -> None:
    scripts = ScriptDirectory.from_config(migration.configuration(schema))
    assert scripts.get_heads() == [migration.declared(schema)[1]]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_sync_makes_the_schema_once(make_url: MakeUrl, schema: Schema) -> None:
    database = Database(make_url(), schema=schema)
    assert database.version() is None
    database.sync()
    database.sync()
    assert database.version() == migration.declared(schema)[1]
    database.close()


def test_many_processes_may_sync_at_once(make_url: MakeUrl) -> None:
    url = make_url()
    databases = [Database(url, schema="cell") for _ in range(4)]
    failures: list[Exception] = []

    def sync(database: Database) -> None:
        try:
            database.sync()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=sync, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert databases[0].version() == migration.declared("cell")[1]
    for database in databases:
        database.close()


def test_a_half_made_schema_is_completed(make_url: MakeUrl) -> None:
    """MariaDB commits table by table: whoever was killed between two left a part, and no version."""
    engine = create_engine(engines.normalize(make_url()))
    metadata, head = migration.declared("cell")
    with engine.begin() as connection:
        metadata.create_all(connection, tables=list(metadata.sorted_tables)[:3])
    with engine.connect() as connection:
        migration.sync(connection, "cell")
        assert migration.version(connection) == head
        assert set(inspect(connection).get_table_names()) >= set(metadata.tables)
    engine.dispose()


def test_a_new_file_is_ready_at_once(tmp_path: Path) -> None:
    """One command brings a cloud up: its own schemas must not be what one waits for."""
    Database(f"sqlite:///{tmp_path}/warm.db", schema="api").sync()  # loads the libraries
    began = time.monotonic()
    database = Database(f"sqlite:///{tmp_path}/api.db", schema="api")
    database.sync()
    assert time.monotonic() - began < 0.7
    database.close()


def test_an_old_version_is_migrated(make_url: MakeUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    url = make_url()
    database = Database(url, schema="cell")
    database.sync()
    monkeypatch.setattr("kilonova.store.schema_cell.HEAD", "cell9999")
    monkeypatch.setattr(migration, "migrate", lambda connection, schema: called.append(schema))
    database.sync()
    assert called == ["cell"]
    database.close()
