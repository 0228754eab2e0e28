"""What only a broker can do to us: go away, come back, and outlive the peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import oslo_messaging
import pytest

from kilonova.base import config
from kilonova.base.bus_oslo import OsloBus
from kilonova.base.errors import BusTimeout, Fault, NeighbourUnavailable
from kilonova.base.rpc import client, handler
from tests.bus.contract import LIMIT, Server, fresh, until
from tests.services import RabbitMQ, find_free_ports

MakeBus = Callable[..., OsloBus]


def test_a_long_call_goes_on_while_its_server_says_that_it_lives(oslo_bus: MakeBus) -> None:
    contract, server = fresh(), Server()
    oslo_bus().serve(contract.topic, "h1", handler(contract, server))
    threading.Timer(5.0, server.gate.set).start()
    begun = time.monotonic()
    assert client(contract, oslo_bus(heartbeat=2.0), host="h1", timeout=LIMIT).linger(text="long") == "long"
    assert time.monotonic() - begun > 4.5, "longer than two heartbeats"


PEER = """
import sys
from kilonova.base import config
from kilonova.base.bus_oslo import OsloBus
from kilonova.base.rpc import handler
from tests.bus.contract import Echo, Server
server = Server()
Echo.topic = sys.argv[2]
OsloBus(config.load(override={"DEFAULT.transport_url": sys.argv[1]})).serve(Echo.topic, "h1", handler(Echo, server))
print("serving", flush=True)
server.begun.wait()
print("begun", flush=True)
server.gate.wait()
"""


def test_a_server_that_dies_is_noticed_before_the_call_is_over(oslo_bus: MakeBus, rabbitmq_server: RabbitMQ) -> None:
    contract = fresh()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PEER, rabbitmq_server.url, contract.topic],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "serving\n"
        outcome: list[Fault] = []

        def ask() -> None:
            with pytest.raises(BusTimeout) as raised:
                client(contract, oslo_bus(heartbeat=2.0), host="h1", timeout=600.0).linger(text="never")
            outcome.append(raised.value)

        asking = threading.Thread(target=ask)
        asking.start()
        assert process.stdout.readline() == "begun\n"
        os.kill(process.pid, signal.SIGKILL)
        asking.join(LIMIT)
        assert outcome
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_both_ends_come_back_when_the_broker_does(oslo_bus: MakeBus, rabbitmq_server: RabbitMQ) -> None:
    contract, server = fresh(), Server("h1")
    oslo_bus().serve(contract.topic, "h1", handler(contract, server))
    peer = client(contract, oslo_bus(heartbeat=300.0), host="h1", timeout=120.0)
    everybody = client(contract, oslo_bus(), fanout=True)
    assert peer.place() == "h1"
    rabbitmq_server.stop()
    asked: list[str] = []
    waiting = threading.Thread(target=lambda: asked.append(peer.place()))
    waiting.start()
    try:
        peer.tell(text="lost")
    finally:
        rabbitmq_server.start()
    waiting.join(150)
    assert asked == ["h1"], "a call waits for the broker as long as it may take"
    assert peer.place() == "h1"
    peer.tell(text="one")
    until(lambda: "one" in server.told)

    def heard() -> bool:
        everybody.tell(text="all")
        return "all" in server.told

    until(heard)


def test_a_broker_that_is_not_there() -> None:
    (port,) = find_free_ports(1)
    conf = config.load(override={"DEFAULT.transport_url": f"rabbit://nova:hunter2@127.0.0.1:{port}/"})
    bus = OsloBus(conf)
    begun = time.monotonic()
    with pytest.raises(NeighbourUnavailable) as raised:
        client(fresh(), bus, host="h1", timeout=1.0).place()
    assert "hunter2" not in raised.value.message
    assert time.monotonic() - begun < 10
    client(fresh(), bus, host="h1").tell(text="lost")
    assert time.monotonic() - begun < LIMIT


@pytest.mark.parametrize("method", ["target", "_handler", "__init__", "place"])
def test_nothing_but_messages_can_be_sent(oslo_bus: MakeBus, rabbitmq_server: RabbitMQ, method: str) -> None:
    contract, server = fresh(), Server("h1")
    oslo_bus().serve(contract.topic, "h1", handler(contract, server))
    raw = oslo_messaging.get_rpc_client(
        oslo_bus()._transport,
        oslo_messaging.Target(exchange="kilonova", topic=f"kilonova.{contract.topic}", server="h1", version="1.0"),
    )
    with pytest.raises(oslo_messaging.RemoteError, match="NoSuchMethod"):
        raw.prepare(timeout=LIMIT).call({}, method)
