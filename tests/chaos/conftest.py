"""Clouds of their own for tests that hurt them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.functional.cloud import OFFSET, Cloud
from tests.services import need_neighbours


@pytest.fixture(scope="module")
def make_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cloud]]:
    """Brings a cloud up, with a local.conf of the text given."""
    need_neighbours()
    made: list[Cloud] = []

    def make(local: str = "") -> Cloud:
        cloud = Cloud(tmp_path_factory.mktemp("chaos") / "state", offset=OFFSET + 100)
        made.append(cloud)
        (cloud.state / "etc").mkdir(parents=True)
        (cloud.state / "etc" / "local.conf").write_text(local)
        cloud.up()
        cloud.discover()
        return cloud

    yield make
    for cloud in made:
        cloud.down()
