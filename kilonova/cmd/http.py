"""Serves a WSGI application in threads of this process (cheroot), for the one-command mode and the plain programs.

Large sites put any WSGI server in front of ``kilonova.wsgi.compute:application`` instead.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import Any

from cheroot import errors, wsgi

from kilonova.base import log

LOG = log.of(__name__)

HEADERS = 64 << 10
"""Bytes of a request's line and headers: room for a long token and a long query."""
BODY = 1 << 20
"""Bytes of a body that are taken in at all. Applications refuse much smaller ones, with a better text."""
SHUTDOWN_SECONDS = 30
KEPT_SECONDS = 0.3
"""How long a server that stops waits for the next request of connections that clients keep."""


def serve(
    application: Any, address: tuple[str, int] | str, *, name: str, threads: int = 10, limit: int = BODY
) -> Callable[[], None]:
    """Listen on (host, port) or a unix socket's path, answer in ``threads``; returns the function that stops it.

    OSError when the address is taken. ``limit``: bytes of a request's body.
    """
    leaving = threading.Event()
    server = wsgi.Server(
        address,
        _turning_away(application, leaving),
        numthreads=threads,
        request_queue_size=256,
        timeout=60,
        shutdown_timeout=SHUTDOWN_SECONDS,
        server_name=name,
    )
    server.max_request_header_size, server.max_request_body_size = HEADERS, limit
    server.gateway = _Gateway
    vars(server)["error_log"] = _log_error
    vars(server)["put_conn"] = _keeping(server.put_conn)
    server.prepare()
    thread = threading.Thread(target=server.serve, name=f"{name}-http", daemon=True)
    thread.start()

    def stop() -> None:
        leaving.set()
        _answer_what_came(server)
        server.stop()
        thread.join(35)

    return stop


class _Gateway(wsgi.Gateway_10):
    """A request on its way to the application. A body in chunks is read first, all of it: the application then knows
    its length, and nothing of it can be left over and be taken for the next request of the connection."""

    def respond(self) -> None:
        """Call the application."""
        if not self.req.chunked_read or self._take_in():
            super().respond()

    def _take_in(self) -> bool:
        body = self.req.rfile
        try:
            content = body.read()
            for _ in body.read_trailer_lines():
                pass
        except ValueError:
            return self._refuse("400 Bad Request", "Malformed chunks of a request body.")
        except (errors.MaxSizeExceeded, OSError):
            return self._refuse("413 Request Entity Too Large", "The request body is too large.")
        self.env.update({"CONTENT_LENGTH": str(len(content)), "wsgi.input": io.BytesIO(content)})
        del self.env["wsgi.input_terminated"]
        return True

    def _refuse(self, status: str, text: str) -> bool:
        self.req.simple_response(status, text)
        self.req.sent_headers = self.req.close_connection = True
        return False


def _turning_away(application: Any, leaving: threading.Event) -> Any:
    """The application; once the server leaves, every answer tells the client to come by another connection."""

    def serve_request(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            more = [("Connection", "close")] if leaving.is_set() else []
            return start_response(status, [*headers, *more], exc_info)

        return application(environ, start)

    return serve_request


def _keeping(keep: Callable[[Any], None]) -> Callable[[Any], None]:
    """Keep a connection for its next request; close it where the server has been stopped in this very moment."""

    def keep_or_close(connection: Any) -> None:
        try:
            keep(connection)
        except ValueError:  # the selector is closed
            connection.close()

    return keep_or_close


def _answer_what_came(server: Any) -> None:
    """Answer what the library would cut off at its stop.

    Connections that wait to be accepted are taken, and then the port is closed at once: who comes later is refused, and
    knows that nothing was done. Kept connections get a moment in which their next request is answered with the word to
    come by another one.
    """
    connections = server._connections
    connections.stop()
    listening = server.socket
    connections._selector.unregister(listening.fileno())
    listening.setblocking(False)
    while (accepted := connections._from_server_socket(listening)) is not None:
        server.process_conn(accepted)
    listening.close()
    server.socket = None
    until = time.monotonic() + KEPT_SECONDS
    while len(connections._selector) and time.monotonic() < until:
        for descriptor, connection in connections._selector.select(timeout=0.02):
            connections._selector.unregister(descriptor)
            server.process_conn(connection)


def _log_error(message: str = "", level: int = 20, traceback: bool = False) -> None:
    LOG.log(level, "%s", message, exc_info=traceback)
