"""What is said when a disk is full, a database damaged, a log ends badly."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from kilonova.embedded import diagnosis
from kilonova.embedded.failures import EmbeddedError


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "glance.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table images (id text, content text)")
        connection.executemany("insert into images values (?, ?)", [(str(n), "x" * 500) for n in range(200)])
    connection.close()
    return path


def test_a_sound_database_passes(database: Path) -> None:
    diagnosis.check_databases({"glance": database})


@pytest.mark.parametrize("damage", [0, 4096 * 3], ids=["its header", "a page"])
def test_a_damaged_database_is_named(database: Path, damage: int) -> None:
    with database.open("r+b") as file:
        file.seek(damage)
        file.write(b"\xff" * 4096)
    with pytest.raises(EmbeddedError, match=r"the database of glance, .*glance\.db, is damaged"):
        diagnosis.check_databases({"glance": database})


def test_a_full_disk_is_said_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis.check_room(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 95, 5 * 2**20))
    with pytest.raises(EmbeddedError, match="has 5 MiB left and 100 MiB are needed"):
        diagnosis.check_room(tmp_path)


@pytest.mark.parametrize(
    "text,said",
    [
        ("a\nOSError: [Errno 28] No space left on device\nlater\n", "the disk is full"),
        ("sqlite3.OperationalError: database or disk is full\n", "the disk is full"),
        ("(sqlite3.DatabaseError) database disk image is malformed\n", "its database is damaged"),
        ("OSError: [Errno 98] Address already in use\n", "its port is taken by another program"),
        ("Traceback\n\nValueError: bad option\n\n", "ValueError: bad option"),
        ("", "its log is empty"),
    ],
)
def test_a_log_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.log").write_text(text)
    assert diagnosis.explain(tmp_path / "x.log") == said
