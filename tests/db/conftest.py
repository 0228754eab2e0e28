"""Databases for tests: each test that asks for one gets it on SQLite, MariaDB and PostgreSQL in turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from kilonova.store.migration import declared
from kilonova.store.session import Database

Schema = Literal["api", "cell"]
KINDS = ["sqlite", "mariadb", "postgresql"]
MakeUrl = Callable[[], str]


@pytest.fixture(params=KINDS, scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def make_url(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MakeUrl:
    """A function that makes an empty database and answers its URL."""
    if kind == "sqlite":
        folder = tmp_path_factory.mktemp("sqlite")
        return lambda: f"sqlite:///{folder}/{uuid.uuid4().hex}.db"
    server = request.getfixturevalue(f"{kind}_server")
    return lambda: str(server.create_database(f"k{uuid.uuid4().hex}"))


def _made(make_url: MakeUrl, schema: Schema) -> Iterator[Database]:
    database = Database(make_url(), schema=schema)
    database.sync()
    yield database
    database.close()


@pytest.fixture(scope="session")
def cell_shared(make_url: MakeUrl) -> Iterator[Database]:
    """A cell's database for all tests: they use uuids, hosts and projects of their own."""
    yield from _made(make_url, "cell")


@pytest.fixture(scope="session")
def api_shared(make_url: MakeUrl) -> Iterator[Database]:
    """An API database for all tests: they use ids and names of their own."""
    yield from _made(make_url, "api")


@pytest.fixture(scope="session")
def cell_cleared(make_url: MakeUrl) -> Iterator[Database]:
    yield from _made(make_url, "cell")


@pytest.fixture(scope="session")
def api_cleared(make_url: MakeUrl) -> Iterator[Database]:
    yield from _made(make_url, "api")


@pytest.fixture
def cell(cell_cleared: Database) -> Database:
    """A cell's database that is empty. (Making one for each test would be most of the tests' time.)"""
    return _clear(cell_cleared)


@pytest.fixture
def api(api_cleared: Database) -> Database:
    """An API database that is empty."""
    return _clear(api_cleared)


def _clear(database: Database) -> Database:
    tables = declared(database.schema)[0].sorted_tables
    database.write(lambda tx: [tx.execute(table.delete()) for table in reversed(tables)])
    return database
