"""The image cache: fetched once, checked, whole or not at all."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from kilonova.base.errors import BuildFailed, ImageNotFound, NeighbourUnavailable, RunSuperseded
from kilonova.clients.fakes.glance import FakeGlance
from kilonova.compute.images import Images


@pytest.fixture
def glance() -> FakeGlance:
    return FakeGlance()


@pytest.fixture
def images(tmp_path: Path, glance: FakeGlance) -> Images:
    return Images(tmp_path, glance)


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "_base").iterdir() if path.suffix != ".lock"}


def test_an_image_is_fetched_once_by_many(tmp_path: Path, images: Images, glance: FakeGlance) -> None:
    image = glance.add_image(content=b"x" * 5_000_000, disk_format="qcow2")
    with ThreadPoolExecutor(8) as pool:
        staged = set(pool.map(lambda _: images.ensure(image.id, server="s"), range(8)))
    assert len(staged) == 1
    found = staged.pop()
    assert found.path == tmp_path / "_base" / hashlib.sha1(image.id.encode()).hexdigest()
    assert (found.path.read_bytes(), found.format) == (b"x" * 5_000_000, "qcow2")
    assert glance.orders.calls == ["image", "download"]
    assert Images(tmp_path, glance).ensure(image.id, server="s") == found
    assert glance.orders.calls == ["image", "download"]


@pytest.mark.parametrize("change", [{"checksum": "0" * 32}, {"size": 3}])
def test_a_damaged_image_is_not_kept(
    tmp_path: Path, images: Images, glance: FakeGlance, change: dict[str, object]
) -> None:
    image = glance.add_image()
    glance.records[image.id] = msgspec.structs.replace(image, **change)
    with pytest.raises(BuildFailed, match=image.id):
        images.ensure(image.id, server="s")
    assert files(tmp_path) == set()


def test_nothing_is_left_of_a_fetch_that_breaks_off(tmp_path: Path, images: Images, glance: FakeGlance) -> None:
    image = glance.add_image()

    def unwanted() -> None:
        raise RunSuperseded

    with pytest.raises(RunSuperseded):
        images.ensure(image.id, server="s", check=unwanted)
    glance.orders.fail("download")
    with pytest.raises(NeighbourUnavailable, match="glance"):
        images.ensure(image.id, server="s")
    assert files(tmp_path) == set()
    assert images.ensure(image.id, server="s").path.read_bytes() == b"disk"


def test_an_unknown_image(images: Images) -> None:
    with pytest.raises(ImageNotFound):
        images.ensure("none", server="s")


def test_a_disk_that_cannot_be_written(tmp_path: Path, glance: FakeGlance) -> None:
    (tmp_path / "_base").write_text("a file where the folder should be")
    with pytest.raises(BuildFailed, match="cannot be stored"):
        Images(tmp_path, glance).ensure(glance.add_image().id, server="s")
