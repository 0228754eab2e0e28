"""All neighbours in memory together."""

from __future__ import annotations

from typing import NamedTuple

from kilonova.clients.fakes.cinder import FakeCinder
from kilonova.clients.fakes.glance import FakeGlance
from kilonova.clients.fakes.keystone import FakeKeystone
from kilonova.clients.fakes.neutron import FakeNeutron
from kilonova.clients.fakes.placement import FakePlacement
from kilonova.clients.neighbours import Neighbours


class FakeNeighbours(NamedTuple):
    """The fakes, typed so that tests can set the scene; ``typed`` is what services take."""

    placement: FakePlacement
    neutron: FakeNeutron
    cinder: FakeCinder
    glance: FakeGlance
    keystone: FakeKeystone

    def typed(self) -> Neighbours:
        """The same as clients."""
        return Neighbours(self.placement, self.neutron, self.cinder, self.glance, self.keystone)


def fake_neighbours() -> FakeNeighbours:
    """Fresh ones, empty."""
    return FakeNeighbours(FakePlacement(), FakeNeutron(), FakeCinder(), FakeGlance(), FakeKeystone())
