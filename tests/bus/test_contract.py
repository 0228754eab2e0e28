"""What a bus must do, whichever it is."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kilonova.base import context as contexts
from kilonova.base.errors import BusTimeout, NewerPeerNeeded, NoSuchPeer, RemoteError, ServerBusy
from kilonova.base.rpc import client, handler
from tests.bus.conftest import Ends
from tests.bus.contract import LIMIT, Echo, Echoed, Server, fresh, until


class Pair:
    """A server at ``host`` and a client for it."""

    def __init__(self, ends: Ends, *, host: str = "h1", timeout: float = LIMIT, cap: str | None = None) -> None:
        self.contract = fresh()
        self.server = Server(host)
        self.stop = ends.serving.serve(self.contract.topic, host, handler(self.contract, self.server))
        self.peer: Echo = client(self.contract, ends.asking, host=host, timeout=timeout, cap=cap)


def test_calls_carry_arguments_results_and_the_context(ends: Ends) -> None:
    pair = Pair(ends)
    with contexts.acting(contexts.Context(user_id="alice")):
        assert pair.peer.echo(text="żółw \u0000 \U0001f980", number=3) == Echoed("żółw \u0000 \U0001f980", 3, "alice")
    assert pair.peer.echo(text="x") == Echoed("x", 7, "")


def test_large_messages(ends: Ends) -> None:
    text = "y" * 3_000_000
    assert Pair(ends).peer.echo(text=text).text == text


def test_a_fault_is_raised_again_as_its_kind(ends: Ends) -> None:
    with pytest.raises(ServerBusy) as raised:
        Pair(ends).peer.fail(how="busy")
    assert raised.value.message == "Cannot 'stop' instance s while it is in vm_state building"
    assert raised.value.facts["state"] == "building"


def test_any_other_error_is_a_remote_one_that_shows_no_more_than_its_kind(ends: Ends) -> None:
    with pytest.raises(RemoteError) as raised:
        Pair(ends).peer.fail(how="otherwise")
    assert raised.value.message == "KeyError"
    assert "secret-path" in raised.value.facts["details"], "for administrators"


def test_nobody_there(ends: Ends) -> None:
    pair = Pair(ends)
    for host in ("h2", None):
        contract = pair.contract if host else fresh()
        with pytest.raises(NoSuchPeer):
            client(contract, ends.asking, host=host, timeout=5.0).place()
    client(fresh(), ends.asking, host="h").tell(text="is lost, as any cast to nobody")
    client(fresh(), ends.asking, fanout=True).tell(text="is lost too")


def test_a_call_that_takes_too_long(ends: Ends) -> None:
    pair = Pair(ends, timeout=1.0)
    begun = time.monotonic()
    with pytest.raises(BusTimeout, match=r"No answer to linger came from echo\d+\.h1"):
        pair.peer.linger(text="late")
    assert time.monotonic() - begun < 5
    pair.server.gate.set()
    until(lambda: pair.server.told == ["late"])
    assert pair.peer.place() == "h1", "a late answer is not taken for that of the next call"


def test_casts_wait_for_nobody_and_do_not_fail(ends: Ends) -> None:
    pair = Pair(ends)
    threading.Thread(target=lambda: pair.peer.linger(text="slow"), daemon=True).start()
    pair.server.begun.wait(LIMIT)
    pair.peer.tell(text="fail")
    pair.peer.tell(text="one")
    until(lambda: pair.server.told == ["one"])
    pair.server.gate.set()
    until(lambda: "slow" in pair.server.told)


def test_fanout_reaches_all(ends: Ends) -> None:
    contract, servers = fresh(), [Server(f"h{i}") for i in range(3)]
    for server in servers:
        ends.serving.serve(contract.topic, server.name, handler(contract, server))
    client(contract, ends.asking, fanout=True).tell(text="all")
    until(lambda: [server.told for server in servers] == [["all"]] * 3)


def test_without_a_host_any_server_answers(ends: Ends) -> None:
    contract = fresh()
    for name in ("h1", "h2"):
        ends.serving.serve(contract.topic, name, handler(contract, Server(name)))
    peer = client(contract, ends.asking)
    assert {peer.place() for _ in range(20)} == {"h1", "h2"}


def test_a_cap_keeps_newer_methods_from_being_sent(ends: Ends) -> None:
    pair = Pair(ends, cap="1.1")
    with pytest.raises(NewerPeerNeeded, match=r"newest needs version 1\.2 of echo\d+; the oldest one running has 1\.1"):
        pair.peer.newest()
    assert pair.peer.echo(text="x").text == "x"
    assert Pair(ends, cap="1.2").peer.newest() == "new"


def test_peers_of_other_versions(ends: Ends) -> None:
    """An older server drops what it does not know; a newer one puts defaults for what is not sent."""

    class Older:
        topic, version = fresh().topic, "1.0"

        def echo(self, *, text: str) -> str:
            raise NotImplementedError

        def fail(self, *, how: str) -> str:
            raise NotImplementedError

    class Newer:
        topic, version = Older.topic, "1.1"

        def echo(self, *, text: str, loud: bool = False) -> str:
            raise NotImplementedError

        def fail(self, *, how: str) -> str:
            raise NotImplementedError

        def added(self) -> str:
            raise NotImplementedError

    class OlderServer:
        def echo(self, *, text: str) -> str:
            return text

    class NewerServer:
        def echo(self, *, text: str, loud: bool) -> str:
            return f"{text}{loud}"

    ends.serving.serve(Older.topic, "old", handler(Older, OlderServer()))
    ends.serving.serve(Older.topic, "new", handler(Newer, NewerServer()))
    assert client(Newer, ends.asking, host="old").echo(text="x", loud=True) == "x"
    assert client(Older, ends.asking, host="new").echo(text="x") == "xFalse"
    with pytest.raises(NewerPeerNeeded):
        client(Newer, ends.asking, host="old").added()


def test_twenty_callers_at_once(ends: Ends) -> None:
    pair = Pair(ends)

    def ask(caller: int) -> list[str]:
        return [pair.peer.echo(text=f"{caller}-{number}").text for number in range(10)]

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(20)))
    assert answers == [[f"{caller}-{number}" for number in range(10)] for caller in range(20)]


def test_a_server_that_was_stopped_takes_nothing_more(ends: Ends) -> None:
    pair = Pair(ends, timeout=2.0)
    assert pair.peer.place() == "h1"
    pair.stop()
    pair.stop()
    with pytest.raises((NoSuchPeer, BusTimeout)):
        pair.peer.place()


def test_closing_waits_for_the_work_under_way(ends: Ends) -> None:
    pair = Pair(ends)
    pair.peer.tell(text="first")
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(pair.peer.linger(text="ends")))
    caller.start()
    assert pair.server.begun.wait(LIMIT)
    closer = threading.Thread(target=ends.serving.close)
    closer.start()
    assert closer.is_alive()
    pair.server.gate.set()
    closer.join(LIMIT)
    caller.join(LIMIT)
    assert answers == ["ends"]
    assert "ends" in pair.server.told
