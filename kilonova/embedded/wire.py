"""A small HTTP client for the neighbours' JSON interfaces: enough to bootstrap them and to ask for their health."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kilonova.embedded.failures import EmbeddedError

TIMEOUT = 60.0


class Refused(EmbeddedError):
    """A neighbour answered with an error; `code` is its HTTP status."""

    def __init__(self, name: str, request: str, code: int, text: str) -> None:
        super().__init__(f"{name} answered {code} to {request}: {text[:400]}")
        self.code = code


class Wire:
    """One connection to one neighbour, with a token; for one thread."""

    def __init__(self, name: str, url: str, token: str | None = None, headers: dict[str, str] | None = None) -> None:
        self.name = name
        parts = urlsplit(url)
        self._base = parts.path.rstrip("/")
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT)
        self._headers = {"Accept": "application/json", **({"X-Auth-Token": token} if token else {}), **(headers or {})}

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Any:
        """GET; the decoded body."""
        return self.send("GET", path)[1]

    def post(self, path: str, body: object) -> Any:
        """POST; the decoded body."""
        return self.send("POST", path, body)[1]

    def put(self, path: str, body: object | None = None) -> Any:
        """PUT; the decoded body."""
        return self.send("PUT", path, body)[1]

    def delete(self, path: str, body: object | None = None) -> Any:
        """DELETE; the decoded body."""
        return self.send("DELETE", path, body)[1]

    def upload(self, path: str, file: Path) -> None:
        """PUT a file's bytes."""
        with file.open("rb") as data:
            self._ask(
                "PUT",
                path,
                data,
                {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)},
            )

    def send(
        self, method: str, path: str, body: object | None = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, Any]:
        """One request with a JSON body; the response and its decoded body. Refused for 4xx and 5xx."""
        data = None if body is None else json.dumps(body).encode()
        return self._ask(method, path, data, ({"Content-Type": "application/json"} if data else {}) | (headers or {}))

    def _ask(self, method: str, path: str, data: Any, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, Any]:
        try:
            self._connection.request(method, self._base + path, data, self._headers | headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = str(error) or type(error).__name__
            raise EmbeddedError(f"{self.name} does not answer {method} {path}: {reason}") from error
        if response.status >= 400:
            raise Refused(self.name, f"{method} {path}", response.status, text.decode(errors="replace"))
        return response, json.loads(text) if text[:1] in (b"{", b"[") else None


def log_in(auth_url: str, user: str, password: str, project: str) -> str:
    """A token of a user of the default domain for a project."""
    domain = {"id": "default"}
    body = {
        "auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "domain": domain, "password": password}},
            },
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    with Wire("keystone", auth_url) as wire:
        response, _ = wire.send("POST", "/auth/tokens", body)
        return response.headers["X-Subject-Token"]


def is_healthy(port: int, path: str, timeout: float) -> bool:
    """Whether something on a local port answers GET with less than a server error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
