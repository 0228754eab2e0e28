"""Users who ask for servers and delete half of them, while the cloud is killed under them again and again."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.functional.cloud import BIN, UNREACHABLE, Answer, Cloud, User, boot_from, boot_from_new, wait_for

GIVE_UP = 600.0
AT_START, AFTER_START = (0.0, 2.0), (0.1, 4.0)
"""Seconds after the API first listens, or after the cloud is ready, in which a kill falls."""


@dataclass
class Wish:
    """A server that somebody wants: ``pause`` is how long it may build before it is deleted (None: it is to live)."""

    name: str
    body: dict[str, Any]
    pause: float | None
    volume: str | None = None
    server: str | None = None
    trouble: list[str] = field(default_factory=list)


def wishes(cloud: Cloud, demo: User, draw: random.Random, *, count: int) -> list[Wish]:
    """Plain servers, some from volumes that are made for them, some from volumes that are there; half to be deleted."""
    found = []
    for number in range(count):
        more: dict[str, Any] = {}
        volume = None
        if number % 6 == 2:
            volume = demo.bootable()
            more = boot_from(volume)
        elif number % 6 == 4:
            more = boot_from_new(cloud.image)
        if draw.random() < 0.3:
            more["metadata"] = {"kilonova:delay": f"spawn={draw.uniform(0.3, 2.0):.2f}"}
        pause = draw.uniform(0.0, 2.0) if number % 2 else None
        found.append(Wish(f"storm-{number}", demo.wanted(f"storm-{number}", **more), pause, volume))
    return found


class Storm:
    """Runs the wishes and the kills."""

    def __init__(self, cloud: Cloud, seed: int) -> None:
        self.cloud, self.draw = cloud, random.Random(seed)
        self.user = cloud.user()
        self.deadline = time.monotonic() + GIVE_UP
        self.kills: list[str] = []
        self.starts: list[float] = []

    def run(self, wanted: list[Wish], *, kills: int, threads: int = 16) -> None:
        """Until every wish has been asked for and every kill has been done; the cloud is up at the end."""
        done = threading.Event()
        with ThreadPoolExecutor(threads + 1) as pool:
            killer = pool.submit(self._kill_again_and_again, kills, done)
            jobs = [pool.submit(self._wish, wish) for wish in wanted]
            try:
                for job in jobs:
                    job.result()
                killer.result()
            finally:
                self.deadline = 0.0
                done.set()

    # --- users

    def _wish(self, wish: Wish) -> None:
        self._create(wish)
        if wish.pause is not None and wish.server is not None:
            threading.Event().wait(wish.pause)
            self._delete(wish)

    def _create(self, wish: Wish) -> None:
        while wish.server is None:
            answer = self._send(wish, "POST", "/servers", wish.body)
            if answer is None or answer.status == 503:
                wish.server = self._find(wish)  # a create whose answer was lost may have been taken
            elif answer.status == 202:
                wish.server = str(answer.body["server"]["id"])
            else:
                raise AssertionError(f"{wish.name} was refused: {answer}")

    def _find(self, wish: Wish) -> str | None:
        while True:
            answer = self._send(wish, "GET", f"/servers?name=^{wish.name}$")
            if answer is not None and answer.status == 200:
                return next((str(found["id"]) for found in answer.body["servers"]), None)

    def _delete(self, wish: Wish) -> None:
        sent = False
        while True:
            answer = self._send(wish, "DELETE", f"/servers/{wish.server}")
            if answer is None or answer.status == 503:
                sent = True
            elif answer.status == 204 or (answer.status == 404 and sent):
                return
            else:
                raise AssertionError(f"the delete of {wish.name} was refused: {answer}")

    def _send(self, wish: Wish, method: str, path: str, body: Any = None) -> Answer | None:
        """None when nobody answers, after the API listens again."""
        assert time.monotonic() < self.deadline, f"{wish.name} is at it for too long: {wish.trouble[-5:]}"
        try:
            answer = self.user.call(method, path, body)
        except UNREACHABLE:
            self._await_api()
            return None
        if answer.status >= 500:
            wish.trouble.append(f"{method} {path}: {answer.status} {answer.message}")
            assert answer.status == 503, wish.trouble[-1]
            threading.Event().wait(0.5)
        return answer

    def _await_api(self) -> None:
        def look() -> bool:
            try:
                return self.user.call("GET", "/").status in (200, 300)
            except UNREACHABLE:
                return False

        wait_for(look, what="the API answers", seconds=180, every=0.2)

    # --- the killer

    def _kill_again_and_again(self, kills: int, done: threading.Event) -> None:
        early, seconds = False, self.draw.uniform(*AFTER_START)
        for number in range(kills):
            if done.wait(seconds):
                return
            self.cloud.kill()
            self.kills.append(f"{number + 1}: {seconds:.2f} s after it {'listened' if early else 'was ready'}")
            early = self.draw.random() < 0.3 and number + 1 < kills
            seconds = self.draw.uniform(*(AT_START if early else AFTER_START))
            self._start(early=early)

    def _start(self, *, early: bool) -> None:
        begun = time.monotonic()
        if not early:
            self.starts.append(self.cloud.up())
            return
        words = ["up", "--state-dir", self.cloud.state, "--driver", "fake", "--hosts", self.cloud.hosts]
        command = [BIN / "kilonova", *words, "--port-offset", self.cloud.offset]
        with (self.cloud.state / "logs" / "early.out").open("ab") as output:
            child = subprocess.Popen([str(w) for w in command], stdout=output, stderr=output, start_new_session=True)
        self.cloud.pid = child.pid
        self._await_api()
        self.starts.append(time.monotonic() - begun)
        threading.Thread(target=child.wait, daemon=True).start()
