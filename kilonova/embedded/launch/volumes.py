"""The volume service in one process: API, scheduler and volume agent over in-process RPC: `volumes.py PORT CONFIG`."""

import importlib
import sys

from kilonova.embedded.launch.lean import keep_out

keep_out("cinder")
importlib.import_module("cinder.monkey_patch").patch()

import time  # noqa: E402 - after the patch
from types import SimpleNamespace  # noqa: E402 - after the patch
from typing import Any  # noqa: E402 - after the patch

from kilonova.embedded.launch.tuning import settle_heap, tune_sqlite  # noqa: E402 - after the patch


class Bell:
    """Wakes those who wait for a message the moment one is sent, where in-process RPC would look every 50 ms."""

    def __init__(self, eventlet: Any) -> None:
        self.eventlet = eventlet
        self.event = eventlet.event.Event()

    def ring(self) -> None:
        """Wake all."""
        rung, self.event = self.event, self.eventlet.event.Event()
        rung.send()

    def sleep(self, seconds: float) -> None:
        """Return after that time or at the next ring."""
        with self.eventlet.Timeout(seconds, False):
            self.event.wait()


def hasten_rpc() -> None:
    """Put a bell into the in-process RPC driver."""
    bell = Bell(importlib.import_module("eventlet"))
    driver: Any = importlib.import_module("oslo_messaging._drivers.impl_fake")
    deliver = driver.FakeExchange.deliver_message

    def deliver_and_ring(*arguments: Any, **named: Any) -> None:
        deliver(*arguments, **named)
        bell.ring()

    driver.FakeExchange.deliver_message = deliver_and_ring
    driver.time = SimpleNamespace(time=time.time, sleep=bell.sleep)


def start_agents(conf: Any) -> list[Any]:
    """The scheduler and one volume agent for each backend; kept by the caller so that they live."""
    service: Any = importlib.import_module("cinder.service")
    agents = [
        service.Service.create(
            binary="cinder-scheduler", topic="cinder-scheduler", manager="cinder.scheduler.manager.SchedulerManager"
        )
    ]
    agents += [
        service.Service.create(
            host=f"{conf.host}@{backend}",
            service_name=backend,
            binary="cinder-volume",
            topic="cinder-volume",
            coordination=True,
            cluster=None,
        )
        for backend in conf.enabled_backends
    ]
    for agent in agents:
        agent.start()
    return agents


def main() -> None:
    """Start all three and serve; SIGTERM ends it at once: what is half done is found at the next start."""
    port, config = int(sys.argv[1]), sys.argv[2]
    sys.argv = ["cinder"]
    tune_sqlite()
    conf: Any = importlib.import_module("oslo_config.cfg").CONF
    importlib.import_module("cinder.common.config")
    importlib.import_module("cinder.cmd.volume")  # registers options of the command line, so before it is parsed
    version: Any = importlib.import_module("cinder.version")
    importlib.import_module("cinder.objects").register_all()
    conf(["--config-file", config], project="cinder", version=version.version_string())
    importlib.import_module("oslo_log.log").setup(conf, "cinder")
    importlib.import_module("os_brick").setup(conf)
    rpc: Any = importlib.import_module("cinder.rpc")
    rpc.init(conf)
    hasten_rpc()
    agents = start_agents(conf)
    application = importlib.import_module("oslo_service.wsgi").Loader(conf).load_app(name="osapi_volume")
    eventlet: Any = importlib.import_module("eventlet")
    server: Any = importlib.import_module("eventlet.wsgi")
    settle_heap()
    server.server(eventlet.listen(("127.0.0.1", port), backlog=256), application, log_output=False, keepalive=True)
    del agents


main()
