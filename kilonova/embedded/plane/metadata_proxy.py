"""Answers guests at 169.254.169.254 in the networks' namespaces and asks the metadata service for them.

A socket belongs to the namespace in which it was made, whichever thread then serves it: so a short-lived thread enters
the namespace, makes the listening socket and ends, and no process per network is needed. Who asks is known by the
source address, which the packet filters keep true; the service is told by signed headers.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import http.client
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kilonova.embedded.plane.dhcp import METADATA
from kilonova.embedded.plane.facts import Port

LOG = logging.getLogger(__name__)
CLONE_NEWNET = 0x40000000
PORT = 80
GUEST_SECONDS = 15.0
SERVICE_SECONDS = 60.0
BODY_BYTES = 64 * 1024
CONNECTIONS = 64
DROPPED = ("connection", "keep-alive", "transfer-encoding", "content-length", "server", "date")

FindPort = Callable[[str, str], Port | None]


class _ServiceConnection(http.client.HTTPConnection):
    """A connection to the metadata service at `host:port` or at a Unix socket's path."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__("localhost" if "/" in address else address, timeout=SERVICE_SECONDS)

    def connect(self) -> None:
        if "/" not in self._address:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SERVICE_SECONDS)
        self.sock.connect(self._address)


class _Server(ThreadingHTTPServer):
    """Serves one namespace; a guest that opens too many connections has the further ones closed."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((METADATA, PORT), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = METADATA, PORT
        self._free = threading.BoundedSemaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("a guest's metadata request from %s broke off", client_address)


class MetadataProxy:
    """The listeners of all namespaces. `service` is `host:port` or a Unix socket's path."""

    def __init__(self, service: str, secret: str, find_port: FindPort) -> None:
        self._service = service
        self._secret = secret
        self._find_port = find_port
        self._servers: dict[str, tuple[int, _Server]] = {}

    def serve(self, wanted: Mapping[str, frozenset[str]]) -> list[str]:
        """Listen in exactly these namespaces that exist; texts say where it could not."""
        problems: list[str] = []
        present = {name: inode for name in wanted if (inode := _inode(name)) is not None}
        gone = [name for name, (inode, _) in self._servers.items() if present.get(name) != inode]
        _end([self._servers.pop(name)[1] for name in gone])
        for name, inode in present.items():
            if name in self._servers:
                continue
            try:
                server = _Server(_listen_in(name), self._handler(name))
            except OSError as error:
                problems.append(f"metadata cannot be served in {name}: {error.strerror or error}")
                continue
            self._servers[name] = (inode, server)
            threading.Thread(target=server.serve_forever, name=f"metadata {name}", daemon=True).start()
        return problems

    def close(self) -> None:
        """Listen nowhere."""
        self.serve({})

    def headers(self, port: Port, address: str) -> dict[str, str]:
        """What Neutron's proxy says to the service about the guest that asks."""
        signature = hmac.new(self._secret.encode(), port.device_id.encode(), hashlib.sha256).hexdigest()
        return {
            "X-Forwarded-For": address,
            "X-Instance-ID": port.device_id,
            "X-Tenant-ID": port.project_id,
            "X-Instance-ID-Signature": signature,
        }

    def _handler(self, namespace: str) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            timeout = GUEST_SECONDS
            server_version = "metadata"
            sys_version = ""

            def do_GET(self) -> None:
                self._forward(b"")

            def do_HEAD(self) -> None:
                self._forward(b"")

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "0")
                if not length.isdigit() or int(length) > BODY_BYTES:
                    self._answer(413, b"The body is too large.\n", {})
                    return
                self._forward(self.rfile.read(int(length)))

            def _forward(self, body: bytes) -> None:
                address = str(self.client_address[0])
                port = proxy._find_port(namespace, address)
                if port is None or not port.device_id:
                    self._answer(404, b"No port of this network has the address that asks.\n", {})
                    return
                try:
                    self._answer(*proxy.ask(self.command, self.path, body, proxy.headers(port, address)))
                except (OSError, http.client.HTTPException) as error:
                    LOG.warning("the metadata service does not answer: %s", error)
                    self._answer(503, b"The metadata service does not answer; please try again.\n", {})

            def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name for it
                LOG.debug("%s %s", self.client_address[0], format % args)

        return Handler

    def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """Ask the metadata service: status, body and headers of its answer."""
        connection = _ServiceConnection(self._service)
        try:
            connection.request(method, path, body or None, dict(headers))
            response = connection.getresponse()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in DROPPED}
            return response.status, response.read(), kept
        finally:
            connection.close()


def _end(servers: list[_Server]) -> None:
    """Each takes a moment to notice, so all are told at once."""
    threads = [threading.Thread(target=server.shutdown) for server in servers]
    for thread in threads:
        thread.start()
    for thread, server in zip(threads, servers, strict=True):
        thread.join()
        server.server_close()


def _inode(namespace: str) -> int | None:
    try:
        return Path("/run/netns", namespace).stat().st_ino
    except OSError:
        return None


def _listen_in(namespace: str) -> socket.socket:
    """A socket that listens at the metadata address of a namespace; OSError when that cannot be."""
    made: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            _enter(namespace)
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((METADATA, PORT))
            listener.listen(128)
            made.append(listener)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make, name=f"enter {namespace}")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
