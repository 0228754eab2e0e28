"""One composed cloud for all tests of this folder, with three simulated hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.cloud import OFFSET, Cloud, User
from tests.services import need_neighbours


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    need_neighbours()
    made = Cloud(tmp_path_factory.mktemp("functional") / "state", offset=OFFSET)
    try:
        made.up()
        made.discover()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session")
def demo(cloud: Cloud) -> User:
    """A plain user."""
    return cloud.user()


@pytest.fixture(scope="session")
def admin(cloud: Cloud) -> User:
    """An administrator, in a project of its own."""
    return cloud.user("kilonova")
