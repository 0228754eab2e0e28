"""The HTTP server against clients that send what no client should."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.cmd import http

HEAD = b"POST /x HTTP/1.1\r\nHost: here\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers with the method and the body; reads no body of /unread."""
    size = int(environ.get("CONTENT_LENGTH") or 0) if environ["PATH_INFO"] != "/unread" else 0
    said = environ["REQUEST_METHOD"].encode() + b" " + environ["wsgi.input"].read(size) if size else b"nothing"
    start_response("200 OK", [("Content-Length", str(len(said)))])
    return [said]


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Callable[[bytes], bytes]]:
    """Sends bytes, and returns all that is said until the server has no more to say."""
    path = str(tmp_path / "http")
    stop = http.serve(echo, path, name="echo", threads=1, limit=1000)

    def exchange(sent: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(20)
            client.connect(path)
            # The server may hang up before it has taken in all.
            sender = threading.Thread(target=_send, args=(client, sent))
            sender.start()
            heard = b""
            try:
                while piece := client.recv(65536):
                    heard += piece
            except ConnectionResetError:
                pass
            sender.join(20)
            return heard

    yield exchange
    stop()


def _send(client: socket.socket, sent: bytes) -> None:
    try:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_body_in_chunks_arrives_whole(talk: Callable[[bytes], bytes]) -> None:
    assert talk(CHUNKED + b"3\r\nabc\r\n2;note\r\nde\r\n0\r\nTrailer: x\r\n\r\n").endswith(b"POST abcde")


@pytest.mark.parametrize("line", [b"POST /x HTTP/1.1\r\n", b"POST /unread HTTP/1.1\r\n"])
def test_nothing_of_a_chunked_body_is_taken_for_a_request(talk: Callable[[bytes], bytes], line: bytes) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: here\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
    sent = CHUNKED.replace(b"POST /x HTTP/1.1\r\n", line) + body
    assert talk(sent).count(b"HTTP/1.1 200") == 1
    assert talk(sent + HEAD + b"Content-Length: 2\r\n\r\nzz").endswith(b"POST zz")


@pytest.mark.parametrize("body", [b"zz\r\nabc\r\n0\r\n\r\n", b"3\r\nabcXX0\r\n\r\n", b"9\r\nabc", b"3\r\nabc\r\n", b""])
def test_broken_chunks_are_refused_and_the_connection_ends(talk: Callable[[bytes], bytes], body: bytes) -> None:
    said = talk(CHUNKED + body)
    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "sent, status",
    [
        (CHUNKED + b"fffffffffff\r\nabc", b"413"),
        (CHUNKED + b"200\r\n" + b"a" * 512 + b"\r\n200\r\n" + b"a" * 512 + b"\r\n0\r\n\r\n", b"413"),
        (HEAD + b"Content-Length: 99999999999999999999\r\n\r\nabc", b"413"),
        (HEAD + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n", b"413"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n", b"414"),
    ],
)
def test_what_is_too_large_is_not_taken_in(talk: Callable[[bytes], bytes], sent: bytes, status: bytes) -> None:
    assert talk(sent).startswith(b"HTTP/1.1 " + status)
