"""One API for each test, on databases of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilonova.api.options import Options
from tests.api.cloud import Cloud
from tests.api.server_cloud import ServerCloud
from tests.conftest import SHARED


@pytest.fixture
def make_cloud(tmp_path: Path) -> Iterator[Callable[..., Cloud]]:
    """Makes an API with these options."""
    made: list[Cloud] = []

    def make(options: Options | None = None) -> Cloud:
        reference = SHARED / "reference"
        made.append(Cloud(tmp_path, reference=reference if reference.is_dir() else None, options=options))
        return made[-1]

    yield make
    for cloud in made:
        cloud.close()


@pytest.fixture
def cloud(make_cloud: Callable[..., Cloud]) -> Cloud:
    """An API with the default options."""
    return make_cloud()


@pytest.fixture
def make_server_cloud(tmp_path: Path) -> Iterator[Callable[..., ServerCloud]]:
    """Makes an API that can make servers, with these options."""
    made: list[ServerCloud] = []

    def make(options: Options | None = None) -> ServerCloud:
        reference = SHARED / "reference"
        made.append(ServerCloud(tmp_path, reference=reference if reference.is_dir() else None, options=options))
        return made[-1]

    yield make
    for cloud in made:
        cloud.close()


@pytest.fixture
def servers(make_server_cloud: Callable[..., ServerCloud]) -> ServerCloud:
    """An API that can make servers."""
    return make_server_cloud()
