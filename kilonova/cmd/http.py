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
    server = wsgi.Server(
        address,
        application,
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
        server.stop()
        thread.join(35)

    return stop


def _log_error(message: str = "", level: int = 20, traceback: bool = False) -> None:
    LOG.log(level, "%s", message, exc_info=traceback)
