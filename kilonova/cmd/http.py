"""Serves a WSGI application in threads of this process (cheroot), for the one-command mode and the plain programs.

Large sites put any WSGI server in front of ``kilonova.wsgi.compute:application`` instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cheroot import wsgi

from kilonova.base import log

LOG = log.of(__name__)


def serve(
    application: Any, address: tuple[str, int] | str, *, name: str, threads: int = 10, limit: int = 0
) -> Callable[[], None]:
    """Listen on (host, port) or a unix socket's path, answer in ``threads``; returns the function that stops it.

    OSError when the address is taken. ``limit``: bytes of a request's body, 0 for none.
    """
    leaving = threading.Event()
    server = wsgi.Server(
        address,
        _turning_away(application, leaving),
        numthreads=threads,
        request_queue_size=256,
        timeout=60,
        shutdown_timeout=30,
        server_name=name,
    )
    server.max_request_body_size = limit
    vars(server)["error_log"] = _log_error
    server.prepare()
    thread = threading.Thread(target=server.serve, name=f"{name}-http", daemon=True)
    thread.start()

    def stop() -> None:
        leaving.set()
        _answer_what_came(server)
        server.stop()
        thread.join(35)

    return stop


def _turning_away(application: Any, leaving: threading.Event) -> Any:
    """The application; once the server leaves, every answer tells the client to come by another connection."""

    def serve_request(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            more = [("Connection", "close")] if leaving.is_set() else []
            return start_response(status, [*headers, *more], exc_info)

        return application(environ, start)

    return serve_request


def _answer_what_came(server: Any) -> None:
    """Hand to the threads what the library would close unread: requests that have come on kept connections, and
    connections that wait to be accepted."""
    connections = server._connections
    connections.stop()
    for descriptor, connection in connections._selector.select(timeout=0):
        if connection is not server:
            connections._selector.unregister(descriptor)
            server.process_conn(connection)
    server.socket.setblocking(False)
    while (accepted := connections._from_server_socket(server.socket)) is not None:
        server.process_conn(accepted)


def _log_error(message: str = "", level: int = 20, traceback: bool = False) -> None:
    LOG.log(level, "%s", message, exc_info=traceback)
