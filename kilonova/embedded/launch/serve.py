"""Serve one neighbour's WSGI application on the loopback address: `serve.py NAME PORT THREADS [IDENTITY_FILE]`.

Names: keystone, glance, placement, neutron. Their configuration comes from their own environment variables.
Keystone first brings its users, projects, roles and catalog in line with IDENTITY_FILE.
"""

import importlib
import signal
import sys
from types import FrameType
from typing import Any

from kilonova.embedded.launch.tuning import settle_heap, tune_sqlite

APPLICATIONS = {name: f"{name}.wsgi.api" for name in ("keystone", "glance", "placement", "neutron")}


def leave(_number: int, _frame: FrameType | None) -> None:
    """On SIGTERM: leave the serving loop."""
    raise SystemExit(0)


def main() -> None:
    """Load, serve until SIGTERM, finish what is being answered."""
    name, port, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    extra = sys.argv[4:]
    sys.argv = [name]
    signal.signal(signal.SIGTERM, leave)
    tune_sqlite()
    application: Any = importlib.import_module(APPLICATIONS[name]).application
    if extra:
        importlib.import_module("kilonova.embedded.launch.identity").ensure_identity(extra[0])
    wsgi: Any = importlib.import_module("cheroot.wsgi")
    server = wsgi.Server(("127.0.0.1", port), application, numthreads=threads, request_queue_size=256,
                         timeout=60, shutdown_timeout=3)
    settle_heap()
    try:
        server.start()
    except SystemExit:
        server.stop()


main()
