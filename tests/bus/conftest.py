"""Both buses, as pairs of ends: who serves and who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kilonova.base import config
from kilonova.base.bus_local import LocalBus
from kilonova.base.bus_oslo import OsloBus
from kilonova.base.rpc import Bus
from tests.services import RabbitMQ


class Ends(NamedTuple):
    serving: Bus
    asking: Bus


@pytest.fixture
def oslo_bus(rabbitmq_server: RabbitMQ) -> Iterator[Callable[..., OsloBus]]:
    """Makes buses on the broker; closed at the end of the test."""
    made: list[OsloBus] = []

    def make(**more: float) -> OsloBus:
        made.append(OsloBus(config.load(override={"DEFAULT.transport_url": rabbitmq_server.url}), **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for bus in made:
        bus.close()


@pytest.fixture(params=["local", "rabbit"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """The same tests hold for both."""
    if request.param == "local":
        bus = LocalBus()
        yield Ends(bus, bus)
        bus.close()
    else:
        make: Callable[..., OsloBus] = request.getfixturevalue("oslo_bus")
        yield Ends(make(), make())
