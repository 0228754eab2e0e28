"""What goes wrong with real databases: deadlocks, killed connections, restarts, locks held by others, silence."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from kilonova.base.errors import Conflict, DatabaseUnavailable
from kilonova.store import quotas
from kilonova.store.session import Database, Tx
from tests.contracts.journal_suite import race
from tests.db.conftest import MakeUrl
from tests.db.records import fresh


def put(tx: Tx, name: str, limit: int) -> None:
    quotas.put_project(tx, name, {"cores": limit})


def raise_limit(tx: Tx, name: str) -> None:
    tx.connection.execute(
        text("UPDATE quotas SET hard_limit = hard_limit + 1 WHERE project_id = :name"), {"name": name}
    )


def limit_of(database: Database, name: str) -> int | None:
    with database.read() as tx:
        return quotas.get_project(tx, name).get("cores")


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> object:
    """The real server behind the database; there is none behind a file."""
    if kind == "sqlite":
        pytest.skip("SQLite has no server")
    return request.getfixturevalue(f"{kind}_server")


def kill_connection(server: object, tx: Tx) -> None:
    """As an administrator, or a failing proxy, would."""
    if tx.dialect == "mysql":
        number = tx.scalar(text("SELECT CONNECTION_ID()"))
        server.execute(f"KILL {number}")  # type: ignore[attr-defined]
    else:
        number = tx.scalar(text("SELECT pg_backend_pid()"))
        server.execute(f"SELECT pg_terminate_backend({number}, 5000)")  # type: ignore[attr-defined]


# --- everyday use


def test_a_failing_write_changes_nothing(api_shared: Database) -> None:
    name = fresh("p")

    def fail(tx: Tx) -> None:
        put(tx, name, 1)
        raise Conflict("no")

    with pytest.raises(Conflict):
        api_shared.write(fail)
    assert limit_of(api_shared, name) is None
    api_shared.write(lambda tx: put(tx, name, 2))
    assert limit_of(api_shared, name) == 2


def test_a_read_cannot_write(api_shared: Database) -> None:
    name = fresh("p")
    with pytest.raises(Exception, match=r"(?i)read.?only|unavailable"), api_shared.read() as tx:
        put(tx, name, 1)
    assert limit_of(api_shared, name) is None


def test_a_write_within_a_write_is_refused(api_shared: Database) -> None:
    with pytest.raises(RuntimeError, match="within a write"):
        api_shared.write(lambda tx: api_shared.write(lambda inner: None))
    api_shared.write(lambda tx: None)


def test_a_read_sees_one_state(api_shared: Database) -> None:
    name = fresh("p")
    api_shared.write(lambda tx: put(tx, name, 1))
    with api_shared.read() as tx:
        before = quotas.get_project(tx, name)
        api_shared.write(lambda other: put(other, name, 2))
        assert quotas.get_project(tx, name) == before
    assert limit_of(api_shared, name) == 2


def test_many_writers_lose_nothing(make_url: MakeUrl) -> None:
    """Two openers of one database, as two processes would be, with several threads each."""
    url, name = make_url(), fresh("p")
    databases = [Database(url, schema="api") for _ in range(2)]
    databases[0].sync()
    databases[0].write(lambda tx: put(tx, name, 0))

    def add(database: Database) -> None:
        for _ in range(25):
            database.write(lambda tx: raise_limit(tx, name))

    results = race([lambda database=database: add(database) for database in databases * 4])  # type: ignore[misc]
    assert results == [None] * 8
    assert limit_of(databases[0], name) == 200
    for database in databases:
        database.close()


def test_a_pool_that_is_empty_is_said(make_url: MakeUrl) -> None:
    database = Database(make_url(), schema="api", name="crowded", pool_size=1, patience=0.2)
    database.sync()
    with database.read(), pytest.raises(DatabaseUnavailable, match="crowded"), database.read():
        pass
    with database.read():
        pass
    database.close()


# --- conflicts


def test_a_deadlock_is_tried_again(api_shared: Database, server: object) -> None:
    one, two = fresh("p"), fresh("p")
    for name in (one, two):
        api_shared.write(lambda tx, name=name: put(tx, name, 0))  # type: ignore[misc]
    both_hold_one = threading.Barrier(2)
    attempts = {one: 0, two: 0}

    def update(first: str, second: str) -> None:
        def attempt(tx: Tx) -> None:
            attempts[first] += 1
            raise_limit(tx, first)
            if attempts[first] == 1:
                both_hold_one.wait(10)
            raise_limit(tx, second)

        api_shared.write(attempt)

    assert race([lambda: update(one, two), lambda: update(two, one)]) == [None, None]
    assert sum(attempts.values()) >= 3, "there was no deadlock to speak of"
    assert (limit_of(api_shared, one), limit_of(api_shared, two)) == (2, 2)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.communicate("\n", timeout=20)


def test_a_file_that_another_process_locks(tmp_path: Path) -> None:
    path = tmp_path / "api.db"
    impatient = Database(f"sqlite:///{path}", schema="api", name="ours", patience=0.3)
    patient = Database(f"sqlite:///{path}", schema="api", patience=30)
    impatient.sync()
    with held_by_another_process(path) as holder:
        with pytest.raises(DatabaseUnavailable, match="ours"):
            impatient.write(lambda tx: put(tx, "p", 1))
        assert limit_of(impatient, "p") is None
        results: list[object] = []
        waiting = threading.Thread(target=lambda: results.append(patient.write(lambda tx: put(tx, "p", 2))))
        waiting.start()
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        waiting.join(30)
        assert results == [None]
    assert limit_of(impatient, "p") == 2


# --- connections


def test_a_write_whose_connection_is_killed_is_done_once(api_shared: Database, server: object) -> None:
    name, attempts = fresh("p"), []
    api_shared.write(lambda tx: put(tx, name, 0))

    def attempt(tx: Tx) -> None:
        attempts.append(1)
        raise_limit(tx, name)
        if len(attempts) == 1:
            kill_connection(server, tx)
        raise_limit(tx, name)

    api_shared.write(attempt)
    assert (len(attempts), limit_of(api_shared, name)) == (2, 2)


def test_a_commit_whose_end_nobody_knows_is_not_guessed(api_shared: Database, server: object) -> None:
    name, attempts = fresh("p"), []

    def attempt(tx: Tx) -> None:
        attempts.append(1)
        put(tx, name, 1)
        kill_connection(server, tx)

    with pytest.raises(DatabaseUnavailable, match="being committed"):
        api_shared.write(attempt)
    assert attempts == [1]
    assert limit_of(api_shared, name) is None


def test_a_query_is_tried_again(api_shared: Database, server: object) -> None:
    attempts = []

    def attempt(tx: Tx) -> int:
        attempts.append(1)
        if len(attempts) == 1:
            kill_connection(server, tx)
        tx.scalar(text("SELECT 1"))
        return len(attempts)

    assert api_shared.query(attempt) == 2


def test_a_restart_of_the_server_is_survived(make_url: MakeUrl, server: object) -> None:
    name = fresh("p")
    database = Database(make_url(), schema="api", reach=60)
    database.sync()
    database.write(lambda tx: put(tx, name, 0))
    assert limit_of(database, name) == 0
    server.stop()  # type: ignore[attr-defined]
    try:
        with pytest.raises(DatabaseUnavailable), database.read():
            pass
        results: list[object] = []
        waiting = threading.Thread(target=lambda: results.append(database.write(lambda tx: raise_limit(tx, name))))
        waiting.start()
    finally:
        server.start()  # type: ignore[attr-defined]
    waiting.join(60)
    assert results == [None]
    assert limit_of(database, name) == 1
    server.restart()  # type: ignore[attr-defined]
    assert limit_of(database, name) == 1, "a read finds its pooled connections dead and opens others"
    database.close()


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_nobody_listens(scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"{scheme}://u:hunter2@127.0.0.1:{taken.getsockname()[1]}/db"
        database = Database(url, schema="cell", name="cell7", reach=0.2)
        began = time.monotonic()
        for use in (lambda: database.write(lambda tx: None), lambda: database.query(lambda tx: None)):
            with pytest.raises(DatabaseUnavailable) as failed:
                use()
            assert failed.value.message == "The database of cell7 is unavailable."
            assert failed.value.code == 503
        assert time.monotonic() - began < 10


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/none/x.db", schema="cell", reach=0.1)
    with pytest.raises(DatabaseUnavailable):
        database.sync()
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 100)
    database = Database(f"sqlite:///{tmp_path}/text.db", schema="cell", reach=0.1)
    with pytest.raises(DatabaseUnavailable):
        database.sync()


def test_a_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/api.db", schema="api")
    database.sync()
    with database.read():
        files = sorted(tmp_path.iterdir())
        assert {path.name for path in files} == {"api.db", "api.db-shm", "api.db-wal"}
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    database.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "oracle://x/y"])
def test_databases_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be a file|is none of them"):
        Database(url, schema="cell")


@contextmanager
def frozen(server: object) -> Iterator[None]:
    """The server's processes stand still: its connections stay open and say nothing."""
    first = [psutil.Process(process.pid) for process in server._processes]  # type: ignore[attr-defined]
    processes = first + [child for process in first for child in process.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()
