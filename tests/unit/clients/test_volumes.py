"""Volumes that a server needs, made in spite of a volume service that fails at times."""

from __future__ import annotations

import pytest

from kilonova.base.errors import BuildAborted
from kilonova.clients import volumes
from kilonova.clients.cinder import Volume
from kilonova.clients.fakes.cinder import FakeCinder
from kilonova.core.device import BlockDevice


class Faltering(FakeCinder):
    """Its first ``failing`` volumes end in error, as those do that a restarted backend was about to make."""

    def __init__(self, failing: int) -> None:
        super().__init__()
        self.failing, self.seen = failing, set[str]()

    def wait_available(self, volume_id: str, *, seconds: float) -> Volume:
        if volume_id not in self.seen and len(self.seen) < self.failing:
            self.seen.add(volume_id)
            self.volumes[volume_id].status = "error"
        return super().wait_available(volume_id, seconds=seconds)


def _device() -> BlockDevice:
    return BlockDevice(uuid="d1", source_type="blank", destination_type="volume", size=1)


def test_a_volume_that_failed_is_made_once_more() -> None:
    cinder = Faltering(failing=1)
    (made,) = volumes.ensure_volumes(cinder, [_device()], server="s1", project_id="p1")
    assert [v.id for v in cinder.volumes.values()] == [made.volume_id]
    assert cinder.volumes[str(made.volume_id)].status == "available"


def test_what_fails_again_and_again_fails_the_build() -> None:
    cinder = Faltering(failing=100)
    with pytest.raises(BuildAborted, match="error"):
        volumes.ensure_volumes(cinder, [_device()], server="s1", project_id="p1")
    assert len(cinder.seen) == volumes.TRIES
