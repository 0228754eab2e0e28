"""HTTP to a neighbour: retries, time limits, failures; and how Placement's conflicts are met."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kilonova.base.errors import NeighbourUnavailable
from kilonova.clients.options import PlacementOptions
from kilonova.clients.placement_rest import RestPlacement
from kilonova.clients.session import Login, Neighbour

Reply = tuple[int, Any]


class Stub:
    """A server that answers from a list; ``asked`` is what came."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[], Reply]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                stub.asked.append((self.command, self.path, body))
                stub.headers.append(dict(self.headers))
                reply = stub.replies.pop(0)
                code, data = reply() if callable(reply) else reply
                if code == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                raw = json.dumps(data).encode() if data is not None else b""
                self.send_response(code)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


def neighbour(url: str, **options: Any) -> Neighbour:
    section = PlacementOptions(auth_type="none", endpoint_override=url, **options)
    return Neighbour("placement", section, login=Login(section), service_type="placement")


def test_what_may_be_repeated_is(stub: Stub) -> None:
    stub.replies = [(503, {}), (0, None), (200, {"fine": True})]
    answer = neighbour(stub.url).get("/a", params={"b": "c"})
    assert answer.json() == {"fine": True}
    assert stub.asked == [("GET", "/a?b=c", None)] * 3


def test_a_post_is_sent_once(stub: Stub) -> None:
    stub.replies = [(503, {})]
    with pytest.raises(NeighbourUnavailable, match=r"placement service is unavailable.*503"):
        neighbour(stub.url).send("POST", "/a", body={})
    assert len(stub.asked) == 1


def test_retries_are_bounded(stub: Stub) -> None:
    stub.replies = [(503, {})] * 10
    with pytest.raises(NeighbourUnavailable):
        neighbour(stub.url, connect_retries=2).get("/a")
    assert len(stub.asked) == 3


def test_a_server_error_is_not_repeated(stub: Stub) -> None:
    stub.replies = [(500, {})]
    with pytest.raises(NeighbourUnavailable, match="500"):
        neighbour(stub.url).get("/a")


def test_a_slow_neighbour_is_not_waited_for_for_ever(stub: Stub) -> None:
    late = threading.Event()

    def slow() -> Reply:
        late.wait(10)
        return 200, {}

    stub.replies = [slow]
    with pytest.raises(NeighbourUnavailable, match="did not answer in time"):
        neighbour(stub.url, timeout=0.2, connect_retries=0).get("/a")
    late.set()


def test_nobody_there() -> None:
    with pytest.raises(NeighbourUnavailable, match="refuses connections"):
        neighbour("http://127.0.0.1:9", connect_retries=1).get("/a")


def test_an_answer_that_is_no_json(stub: Stub) -> None:
    http = neighbour(stub.url)
    stub.replies = [(200, None)]
    with pytest.raises(NeighbourUnavailable, match="not JSON"):
        http.read(http.get("/a"))


def test_a_login_needs_to_know_where() -> None:
    with pytest.raises(ValueError, match="auth_url"):
        Login(PlacementOptions())


def test_options_do_not_show_passwords() -> None:
    assert "pa55word" not in repr(PlacementOptions(password="pa55word"))


CONFLICT = {
    "errors": [{"status": 409, "code": "placement.concurrent_update", "detail": "consumer generation conflict"}]
}
FULL = {"errors": [{"status": 409, "code": "placement.undefined_code", "detail": "Unable to allocate inventory"}]}
WANTED = {"allocations": {"p1": {"resources": {"VCPU": 1}}}, "mappings": {"": ["p1"]}}


def claim(stub: Stub) -> bool:
    return RestPlacement(neighbour(stub.url)).claim("c1", WANTED, project_id="p", user_id="u")


def test_a_claim_is_one_request(stub: Stub) -> None:
    stub.replies = [(204, None)]
    assert claim(stub)
    body = {**WANTED, "project_id": "p", "user_id": "u", "consumer_generation": None}
    assert stub.asked == [("PUT", "/allocations/c1", body)]
    assert stub.headers[0]["OpenStack-API-Version"] == "placement 1.36"


def test_a_claim_without_room(stub: Stub) -> None:
    stub.replies = [(409, FULL)]
    assert not claim(stub)


def test_a_claim_whose_answer_was_lost_is_held(stub: Stub) -> None:
    held = {"allocations": {"p1": {"resources": {"VCPU": 1}, "generation": 3}}, "consumer_generation": 1}
    stub.replies = [(0, None), (409, CONFLICT), (200, held)]
    assert claim(stub)
    assert [method for method, _, _ in stub.asked] == ["PUT", "PUT", "GET"]


def test_a_claim_beside_others_is_tried_again(stub: Stub) -> None:
    stub.replies = [(409, CONFLICT), (200, {"allocations": {}}), (204, None)]
    assert claim(stub)


def test_a_claim_for_a_consumer_that_a_dying_placement_left_empty(stub: Stub) -> None:
    """It is not shown, and yet it is there, of generation 0."""
    stub.replies = [(409, CONFLICT), (200, {"allocations": {}}), (204, None)]
    assert claim(stub)
    assert [body["consumer_generation"] for method, _, body in stub.asked if method == "PUT"] == [None, 0]


def test_claims_of_a_batch_meet_an_empty_consumer(stub: Stub) -> None:
    nothing = (200, {"allocations": {}})
    stub.replies = [(409, CONFLICT), nothing, nothing, (204, None), (409, CONFLICT), nothing, (204, None)]
    placement = RestPlacement(neighbour(stub.url))
    assert placement.claim_many({"c1": WANTED, "c2": WANTED}, project_id="p", user_id="u")
    puts = [(path, body["consumer_generation"]) for method, path, body in stub.asked if method == "PUT"]
    assert puts == [("/allocations/c1", None), ("/allocations/c2", None), ("/allocations/c2", 0)]


def test_claims_of_a_batch_are_all_or_none(stub: Stub) -> None:
    nothing = (200, {"allocations": {}})
    stub.replies = [(409, CONFLICT), nothing, nothing, (204, None), (409, FULL), (204, None)]
    placement = RestPlacement(neighbour(stub.url))
    assert not placement.claim_many({"c1": WANTED, "c2": WANTED}, project_id="p", user_id="u")
    assert stub.asked[-1][:2] == ("DELETE", "/allocations/c1")


def test_a_claim_of_a_consumer_with_another_host_is_added(stub: Stub) -> None:
    held = {"allocations": {"p0": {"resources": {"VCPU": 1}, "generation": 3}}, "consumer_generation": 7}
    stub.replies = [(409, CONFLICT), (200, held), (204, None)]
    assert claim(stub)
    sent = stub.asked[-1][2]
    assert set(sent["allocations"]) == {"p0", "p1"}
    assert sent["consumer_generation"] == 7


def test_an_unchanged_inventory_costs_nothing(stub: Stub) -> None:
    placement = RestPlacement(neighbour(stub.url))
    inventory: dict[str, dict[str, float]] = {"VCPU": {"total": 4}}
    stub.replies = [
        (200, {"uuid": "p1", "name": "n", "generation": 0}),
        (200, {"resource_provider_generation": 1}),
    ]
    placement.ensure_provider("p1", "n")
    for _ in range(5):
        placement.ensure_inventory("p1", inventory)
    assert [(method, path) for method, path, _ in stub.asked] == [
        ("POST", "/resource_providers"),
        ("PUT", "/resource_providers/p1/inventories"),
    ]
    assert stub.asked[-1][2]["inventories"]["VCPU"] == {
        "total": 4,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 4,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def test_a_generation_conflict_is_met_with_fresh_data(stub: Stub) -> None:
    placement = RestPlacement(neighbour(stub.url))
    stub.replies = [
        (200, {"resource_provider_generation": 4, "inventories": {}}),
        (409, CONFLICT),
        (200, {"resource_provider_generation": 5, "inventories": {}}),
        (200, {"resource_provider_generation": 6}),
    ]
    placement.ensure_inventory("p1", {"VCPU": {"total": 4}})
    assert [body["resource_provider_generation"] for method, _, body in stub.asked if method == "PUT"] == [4, 5]
