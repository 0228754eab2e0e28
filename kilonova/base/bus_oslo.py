"""The bus between processes: oslo.messaging over RabbitMQ, with native threads.

A message is one call of one exposed method, ``handle(message) -> answer``, whatever the contract: names, versions,
arguments and errors are ours (``kilonova.base.rpc``), the transport, its reconnecting and its options are
oslo.messaging's. Queues bear a prefix of our own, so that a broker may be shared with other services.

Long calls: when a call may take longer than ``heartbeat`` seconds, the server says twice in that time that it still
works; a server that died is noticed after ``heartbeat`` seconds, however long the call was allowed to take. A broker
that is away is waited for as long as a call may take; a cast is given up after a few tries, for whoever casts has a
journal or a timer that makes up for it.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_service import backend

# Importing oslo.messaging chooses a backend, and eventlet where nobody has chosen before.
with contextlib.suppress(backend.exceptions.BackendAlreadySelected):
    backend.init_backend(backend.BackendType.THREADING)

import kombu.exceptions
import oslo_messaging
from oslo_messaging import opts as messaging_options

from kilonova.base import config, log
from kilonova.base.errors import BusTimeout, NeighbourUnavailable, NoSuchPeer, RemoteError
from kilonova.base.rpc import Handler, Target

LOG = log.of(__name__)

PREFIX = "kilonova"
"""Exchange, and what every topic begins with where nothing else is said."""

HEARTBEAT = 60.0
CAST_TRIES = 3
CANCEL_SECONDS = 5.0


_AWAY = (kombu.exceptions.OperationalError, OSError)
"""What comes through oslo.messaging unwrapped when a first connection cannot be made."""


class _Endpoint:
    """All that a server exposes."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    @oslo_messaging.expose  # type: ignore[untyped-decorator, unused-ignore]  # untyped in some releases
    def handle(self, context: dict[str, Any], message: str) -> str:
        """Answer a message. The caller's context is inside it."""
        del context
        return self._handler(message.encode()).decode()


class OsloBus:
    """Implements ``Bus``. ``url``: the broker, where it is not the configuration's ``transport_url``.

    ``prefix``: what the names of its queues begin with; buses of different prefixes may share a virtual host.
    """

    def __init__(
        self, conf: config.Conf, *, url: str | None = None, heartbeat: float = HEARTBEAT, prefix: str = PREFIX
    ) -> None:
        self._heartbeat, self._prefix = heartbeat, prefix
        self._transport = oslo_messaging.get_rpc_transport(_messaging_conf(conf), url=url)
        self._client = oslo_messaging.get_rpc_client(
            self._transport, oslo_messaging.Target(exchange=PREFIX, version="1.0")
        )
        self._connecting = False
        self._connected = threading.Event()
        self._lock = threading.Lock()
        self._servers: list[Any] = []
        self._begun: set[int] = set()

    def call(self, target: Target, message: bytes, timeout: float) -> bytes:
        """Send and wait; NoSuchPeer when no queue of that name was ever made, BusTimeout when nobody answers."""
        begun = time.monotonic()
        self._await_broker(timeout)
        while True:
            left = max(timeout - (time.monotonic() - begun), 0.1)
            try:
                return self._call_once(target, message, left)
            except oslo_messaging.MessagingTimeout:
                waited = round(time.monotonic() - begun, 1)
                raise BusTimeout(method=target.method, target=str(target), seconds=waited) from None
            except (oslo_messaging.MessageDeliveryFailure, *_AWAY) as error:
                # The broker did not take it. The library counts tries and not seconds, so the waiting is done here.
                if time.monotonic() - begun >= timeout:
                    reason = log.masked(str(error))
                    raise NeighbourUnavailable(neighbour="message broker", reason=reason) from None

    def _call_once(self, target: Target, message: bytes, timeout: float) -> bytes:
        client = self._client.prepare(
            topic=self._topic(target.topic),
            server=target.host,
            timeout=timeout,
            call_monitor_timeout=int(self._heartbeat) if timeout > self._heartbeat else None,
            retry=1,
            transport_options=oslo_messaging.TransportOptions(at_least_once=True),
        )
        try:
            answer: str = client.call({}, "handle", message=message.decode())
        except oslo_messaging.MessageUndeliverable:
            raise NoSuchPeer(target=str(target)) from None
        except oslo_messaging.RemoteError as error:
            raise RemoteError(error.exc_type, text=error.value) from None
        return answer.encode()

    def _await_broker(self, timeout: float) -> None:
        """The library makes its queue of answers at the first call, and would wait for a broker without any limit."""
        if self._connected.is_set():
            return
        with self._lock:
            if not self._connecting:
                self._connecting = True
                threading.Thread(target=self._connect, name="bus-connect", daemon=True).start()
        if not self._connected.wait(timeout):
            raise NeighbourUnavailable(neighbour="message broker", reason=f"no connection in {timeout:.0f} s")

    def _connect(self) -> None:
        make_queue = getattr(self._transport._driver, "_get_reply_q", None)
        try:
            if make_queue is not None:
                make_queue()
            self._connected.set()
        except Exception as error:
            LOG.warning("connecting to the message broker failed: %s", log.masked(str(error)))
            with self._lock:
                self._connecting = False

    def _topic(self, topic: str) -> str:
        return f"{self._prefix}.{topic}"

    def cast(self, target: Target, message: bytes) -> None:
        """Send and go on. What the broker does not take is lost and logged."""
        client = self._client.prepare(
            topic=self._topic(target.topic),
            server=None if target.fanout else target.host,
            fanout=target.fanout,
            retry=CAST_TRIES,
        )
        try:
            client.cast({}, "handle", message=message.decode())
        except (oslo_messaging.MessagingException, *_AWAY) as error:
            LOG.warning("%s to %s was not sent: %s", target.method, target, log.masked(str(error)))

    def serve(self, topic: str, host: str, handler: Handler, *, workers: int = 8) -> Callable[[], None]:
        """Answer for the topic with up to ``workers`` threads. The function answered takes no more messages."""
        server = oslo_messaging.get_rpc_server(
            self._transport,
            oslo_messaging.Target(exchange=PREFIX, topic=self._topic(topic), server=host, version="1.0"),
            [_Endpoint(handler)],
            access_policy=oslo_messaging.ExplicitRPCAccessPolicy,
        )
        server.start(override_pool_size=workers)
        with self._lock:
            self._servers.append(server)
            self._begun.add(id(server))

        return lambda: self._stop(server)

    def _stop(self, server: Any) -> None:
        with self._lock:
            if id(server) not in self._begun:
                return
            self._begun.discard(id(server))
        _cancel_consumers(server)
        server.stop()

    def close(self) -> None:
        """Stop serving, wait for the work under way, and leave the broker."""
        with self._lock:
            servers, self._servers = self._servers, []
        for server in servers:
            self._stop(server)
        for server in servers:
            server.wait()
        self._transport.cleanup()


def _cancel_consumers(server: Any) -> None:
    """Tell the broker to send this server nothing more, and keep what it has sent until then.

    The library only stops to read: what the broker sends until the connection is closed is acknowledged in the closing,
    and lost. The channel belongs to the library's polling thread, so that is asked to do it.
    """
    listener = getattr(server.listener, "_poll_style_listener", None)
    operations = getattr(listener, "_message_operations_handler", None)
    if listener is None or operations is None:
        return
    done = threading.Event()

    def cancel() -> None:
        try:
            connection = listener.conn.connection
            with connection._connection_lock:
                consumers = list(connection._consumers.items())
                connection._consumers.clear()
                for consumer, tag in consumers:
                    consumer.cancel(tag)
        except Exception as error:
            LOG.info("the broker was not told of the stop: %s", log.masked(str(error)))
        finally:
            done.set()

    operations.do(cancel)
    listener.conn.stop_consuming()  # ends the wait for the next message
    done.wait(CANCEL_SECONDS)


def _messaging_conf(conf: config.Conf) -> config.Conf:
    """The same files once more, for the library alone: it registers options that we have declared too.

    Our defaults for its options; what the files say stands over them.
    """
    files, overrides = conf.default_config_files or [], dict(conf.pending)
    conf = config.Conf()
    conf(args=[], project="nova", prog="kilonova", default_config_files=files, default_config_dirs=[])
    conf.pending = overrides
    section = "oslo_messaging_rabbit"
    for name, options in messaging_options.list_opts():
        if name in (None, section):
            conf.register_opts(options, group=name)
    # The library registers these two for the global object only, and reads them from the one that it is given.
    for part in ("metrics", "tracing"):
        name = f"oslo_messaging_{part}"
        module = importlib.import_module(f"oslo_messaging._{part}.client")
        conf.register_opts(getattr(module, name), group=name)
    for name, value in {
        "rabbit_quorum_queue": True,
        "rabbit_transient_quorum_queue": False,
        "rabbit_retry_backoff": 1,
        "rabbit_interval_max": 3,
        "kombu_reconnect_delay": 0.5,
        "heartbeat_timeout_threshold": 30,
    }.items():
        conf.set_default(name, value, group=section)
    config.apply_overrides(conf)
    return conf
