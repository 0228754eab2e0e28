"""Fixtures for every test: the reference data beside the project, and real servers shared by one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import services

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"the folder ../shared/{name} is not beside the project")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of facts that decide what "compatible" means: ../shared/reference."""
    return _shared("reference")


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of reports from the field: ../shared/cases."""
    return _shared("cases")


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[services.RabbitMQ]:
    """One RabbitMQ for the whole run. A test that stops or restarts it must leave it running."""
    with services.rabbitmq() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[services.MariaDB]:
    """One MariaDB for the whole run; each test makes databases of its own names on it."""
    with services.mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[services.PostgreSQL]:
    """One PostgreSQL for the whole run; each test makes databases of its own names on it."""
    with services.postgresql() as server:
        yield server
