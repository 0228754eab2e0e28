"""Programs that end in good order: what is under way is finished or handed over, and nobody hears of it."""

from __future__ import annotations

import http.client
import signal
import threading
import time

from tests.site.people import User
from tests.site.site import Site


def slow(seconds: float) -> dict[str, str]:
    """Metadata that makes a simulated host take so long for the guest."""
    return {"kilonova:delay": f"spawn={seconds}"}


def test_boots_go_on_while_their_conductors_and_the_scheduler_end(whole: Site, demo: User) -> None:
    servers = [demo.create(f"drained-{number}", metadata=slow(2)) for number in range(5)]
    ending = [whole.programs[name] for name in ("super-a", "cell1-a", "scheduler", "metadata")]
    for program in ending:
        program.tell(signal.SIGTERM)
    assert [program.wait() for program in ending] == [0, 0, 0, 0]
    whole.programs["scheduler"].start()
    for server in servers:
        demo.active(server)
    demo.delete(*servers)


def test_a_host_finishes_the_guests_that_it_makes(whole: Site, demo: User) -> None:
    server = demo.create("finished", metadata=slow(4))
    seen = demo.building(server)
    program = whole.programs[seen]
    assert program.end() == 0, program.text[-2000:]
    demo.active(server)
    assert demo.admin.compute.get_server(server).compute_host == seen
    program.start()
    demo.delete(server)


def test_no_request_fails_while_the_api_ends(whole: Site, demo: User) -> None:
    """A new connection may be refused, or cut before its first answer, once it is away: nothing was done then. What was
    connected is answered, and told to come by another connection."""
    port = whole.neighbours.ports.nova
    headers = {"X-Auth-Token": demo.connection.auth_token}
    failed: list[str] = []
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            told = 0
            try:
                while not over.is_set():
                    connection.request("GET", "/v2.1/servers/detail", headers=headers)
                    answer = connection.getresponse()
                    answer.read()
                    answers.append(answer.status)
                    told += 1
                    if answer.getheader("Connection", "").lower() == "close":
                        break
            except (OSError, http.client.HTTPException) as error:
                if told:
                    failed.append(f"after {told} answers: {error!r}")
                over.wait(0.05)
            finally:
                connection.close()

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    program = whole.programs["api"]
    for _ in range(2):
        before = len(answers)
        deadline = time.monotonic() + 30
        while len(answers) < before + 20 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(answers) >= before + 20
        assert program.end() == 0, program.text[-2000:]
        program.start()
    over.set()
    for asker in askers:
        asker.join()
    assert not failed, failed[:3]
    assert set(answers) == {200}
