"""Serve one neighbour's WSGI application on the loopback address: `serve.py NAME PORT THREADS [IDENTITY_FILE]`.

Names: keystone, glance, placement, neutron. Their configuration comes from their own environment variables.
Keystone first brings its users, projects, roles and catalog in line with IDENTITY_FILE.
"""

import concurrent.futures.thread  # noqa: F401  glance wants it while it ends, when it can no longer be loaded
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from kilonova.embedded.launch.lean import keep_out
from kilonova.embedded.launch.tuning import settle_heap, tune_sqlite

APPLICATIONS = {name: f"{name}.wsgi.api" for name in ("keystone", "glance", "placement", "neutron")}


def one_writer(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Let requests that only read run side by side, those that may write one after another.

    Else two logins at once are two transactions that read and then write: SQLite refuses the second ("locked").
    """
    lock = threading.Lock()

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        with lock:
            return application(environ, start_response)

    return serve


class Body:
    """A request's body that the application may read, not close: what follows on the connection is needed."""

    def __init__(self, file: Any) -> None:
        self.read, self.readline, self.readlines = file.read, file.readline, file.readlines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def close(self) -> None:
        """Nothing."""


def gateway_for(base: Any) -> Any:
    """Cheroot's gateway, mended for bodies sent in chunks: it neither shields nor finishes reading them itself."""

    class ChunkedGateway(base):  # type: ignore[misc]  # a base known at run time
        def get_environ(self) -> dict[str, Any]:
            environ: dict[str, Any] = super().get_environ()
            if self.req.chunked_read:
                environ["wsgi.input"] = Body(environ["wsgi.input"])
            return environ

        def respond(self) -> None:
            super().respond()
            if self.req.chunked_read:
                try:
                    while self.req.rfile.read(65536):
                        pass
                except (OSError, ValueError):
                    self.req.close_connection = True

    return ChunkedGateway


def leave(_number: int, _frame: FrameType | None) -> None:
    """On SIGTERM: leave the serving loop."""
    raise SystemExit(0)


def main() -> None:
    """Load, serve until SIGTERM, finish what is being answered."""
    name, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    extra = sys.argv[4:]
    sys.argv = [name]
    signal.signal(signal.SIGTERM, leave)
    keep_out(name)
    tune_sqlite(immediate=name == "glance")
    application: Any = importlib.import_module(APPLICATIONS[name]).application
    if extra:
        importlib.import_module("kilonova.embedded.launch.identity").ensure_identity(extra[0])
        application = one_writer(application)
    wsgi: Any = importlib.import_module("cheroot.wsgi")
    server = wsgi.Server(
        ("127.0.0.1", port), application, numthreads=threads, request_queue_size=256, timeout=60, shutdown_timeout=3
    )
    server.keep_alive_conn_limit = 200
    server.gateway = gateway_for(server.gateway)
    settle_heap()
    try:
        server.start()
    except SystemExit:
        server.stop()


main()
