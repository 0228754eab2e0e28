"""A cloud that people and the machine treat badly: hostile requests, long outages, full disks, curious neighbours."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sqlite3
import threading
import time

import requests
import yaml

from tests.functional.cloud import Cloud, User, wait_for

PASSWORD, USER_DATA = "only-the-guest-knows-it", "only for the guest's eyes"


def test_no_expression_of_a_user_holds_the_cloud(cloud: Cloud, demo: User) -> None:
    server = demo.create("a" * 40)
    asked = threading.Thread(target=demo.call, args=("GET", "/servers?name=(a%2B)%2B$b"), daemon=True)
    asked.start()
    begun = time.monotonic()
    assert requests.get(cloud.url("nova").removesuffix("/v2.1"), timeout=20).status_code == 200
    asked.join(20)
    assert not asked.is_alive()
    assert time.monotonic() - begun < 20
    demo.delete(server)


def test_a_request_may_come_in_chunks(cloud: Cloud, demo: User) -> None:
    headers = {"X-Auth-Token": demo.token, "Content-Type": "application/json", "OpenStack-API-Version": "compute 2.90"}
    body = json.dumps({"keypair": {"name": "in-chunks"}}).encode()
    url = cloud.url("nova") + "/os-keypairs"
    with requests.Session() as session:
        for answer in (201, 409):
            pieces = iter([body[:9], body[9:]])
            assert session.post(url, data=pieces, headers=headers, timeout=20).status_code == answer
        assert session.delete(f"{url}/in-chunks", headers=headers, timeout=20).status_code == 204


def test_of_parallel_creates_no_more_come_through_than_the_quota_allows(cloud: Cloud, demo: User, admin: User) -> None:
    had = demo.get("/limits")["limits"]["absolute"]["totalInstancesUsed"]
    admin.set_quota(demo.project, instances=had + 2)
    statuses: list[int] = []

    def create() -> None:
        statuses.append(demo.call("POST", "/servers", demo.wanted("at-the-limit")).status)

    threads = [threading.Thread(target=create) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    admin.set_quota(demo.project)
    assert set(statuses) <= {202, 403}
    made = demo.get("/servers?name=at-the-limit")["servers"]
    assert len(made) == statuses.count(202) <= 2
    for server in made:
        demo.delete(server["id"])


def test_a_locked_database_delays_and_then_goes_on(cloud: Cloud, demo: User) -> None:
    server = demo.boot("waits")["id"]
    with contextlib.closing(sqlite3.connect(cloud.state / "db" / "nova_cell1.db", isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout = 20000")
        other.execute("BEGIN IMMEDIATE")
        assert demo.call("GET", f"/servers/{server}").status == 200
        asked = threading.Thread(target=demo.act, args=(server, "os-stop"))
        asked.start()
        asked.join(1)
        assert asked.is_alive(), "the stop did not wait for the lock"
        other.execute("ROLLBACK")
    asked.join(20)
    demo.await_status(server, "SHUTOFF")
    demo.delete(server)


def test_secrets_are_told_to_nobody(cloud: Cloud, demo: User) -> None:
    encoded = base64.b64encode(USER_DATA.encode()).decode()
    server = demo.boot("secret", adminPass=PASSWORD, user_data=encoded, config_drive=True)["id"]
    refused = demo.call("POST", "/servers", demo.wanted("", adminPass=PASSWORD, user_data=encoded))
    assert refused.status == 400
    assert PASSWORD not in refused.message
    clouds = yaml.safe_load((cloud.state / "clouds.yaml").read_text())["clouds"].values()
    passwords = [entry["auth"]["password"] for entry in clouds]
    for log in (cloud.state / "logs").iterdir():
        text = log.read_text(errors="replace")
        assert not [s for s in (PASSWORD, encoded, USER_DATA, demo.token, *passwords) if s in text], log
    for path in (cloud.state / "clouds.yaml", cloud.state / "etc" / "nova.conf", cloud.state / "db"):
        assert path.stat().st_mode & 0o077 == 0, path
    for name in ("nova_api", "nova_cell1"):
        with contextlib.closing(sqlite3.connect(f"file:{cloud.state}/db/{name}.db?mode=ro", uri=True)) as database:
            wait_for(lambda d=database: PASSWORD not in "\n".join(d.iterdump()), what=f"{name} has forgotten it")
    demo.delete(server)


def test_a_boot_outlives_an_outage_after_which_all_hosts_count_as_down(cloud: Cloud, demo: User) -> None:
    os.kill(cloud.child("placement"), signal.SIGSTOP)
    server = demo.create("in-flight")
    cloud.kill()
    with contextlib.closing(sqlite3.connect(cloud.state / "db" / "nova_cell1.db")) as database, database:
        database.execute("UPDATE services SET last_seen_up = datetime(last_seen_up, '-1 hour')")
    cloud.up()
    demo.await_status(server, "ACTIVE")
    demo.delete(server)
