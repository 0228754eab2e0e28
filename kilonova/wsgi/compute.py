"""The Compute API for any WSGI server: ``kilonova.wsgi.compute:application``.

The configuration is read at the first request, so that importing this costs and needs nothing, and a server that forks
its workers opens each one's connections in it. Files: those of ``--config-file`` in the server's arguments for us, of
NOVA_CONF (separated by colons), of the folder OS_NOVA_CONFIG_DIR by the names OS_NOVA_CONFIG_FILES (separated by
semicolons; nova.conf), or /etc/nova/nova.conf.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kilonova.base.errors import Fault

StartResponse = Callable[..., Any]


def config_files(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> list[Path]:
    """The files that the environment and the command line name; none for the usual one."""
    named = _named(arguments)
    if not named:
        named = [name for name in environment.get("NOVA_CONF", "").split(":") if name]
    if not named and "OS_NOVA_CONFIG_DIR" in environment:
        names = environment.get("OS_NOVA_CONFIG_FILES", "nova.conf").split(";")
        named = [str(Path(environment["OS_NOVA_CONFIG_DIR"]) / name.strip()) for name in names if name.strip()]
    return [Path(name) for name in named]


def _named(arguments: Sequence[str]) -> list[str]:
    found = []
    for index, argument in enumerate(arguments):
        if argument.startswith("--config-file="):
            found.append(argument.partition("=")[2])
        elif argument == "--config-file" and index + 1 < len(arguments):
            found.append(arguments[index + 1])
    return found


class Lazy:
    """A WSGI application that is made when it is first asked, once for all threads.

    While it cannot be made (a configuration that does not fit) the error goes to the server's log, and a client hears
    that the service is not available.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: Any = None

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if self._made is None:
            try:
                with self._lock:
                    if self._made is None:
                        self._made = self._make()
            except (ValueError, OSError, Fault) as error:
                environ["wsgi.errors"].write(f"nova-api: {error}\n")
                return _unavailable(start_response)
        answer: Iterable[bytes] = self._made(environ, start_response)
        return answer


def _unavailable(start_response: StartResponse) -> list[bytes]:
    body = b'{"computeFault": {"code": 503, "message": "The service is not configured; its log says why."}}'
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("503 Service Unavailable", headers)
    return [body]


def _application() -> Any:
    from kilonova.cmd import compose
    from kilonova.cmd.program import read_site

    return compose.api_application(read_site(config_files(os.environ, sys.argv), service="nova-api"))


application = Lazy(_application)
