"""Say why a part does not run in words that help: a full disk, a damaged database, or the last words of its log."""

import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from kilonova.embedded.failures import EmbeddedError

NEEDED = 100 * 2**20
CHECKED = 64 * 2**20
TAIL = 64 * 1024


def check_room(state: Path) -> None:
    """EmbeddedError when the file system of the state directory is all but full."""
    free = shutil.disk_usage(state).free
    if free < NEEDED:
        raise EmbeddedError(
            f"the file system of {state} has {free // 2**20} MiB left and {NEEDED // 2**20} MiB are "
            "needed to run: make room or choose another state directory"
        )


def check_databases(databases: Mapping[str, Path]) -> None:
    """EmbeddedError when a database is damaged; the pages of large ones are not all looked at, to start in time."""
    for name, path in databases.items():
        try:
            connection = sqlite3.connect(path, timeout=10)
            try:
                check = "quick_check(1)" if path.stat().st_size <= CHECKED else "schema_version"
                answer = connection.execute(f"PRAGMA {check}").fetchone()[0]
            finally:
                connection.close()
        except sqlite3.DatabaseError as error:
            raise _damaged(name, path, str(error)) from error
        if answer != "ok" and not isinstance(answer, int):
            raise _damaged(name, path, str(answer))


def _damaged(name: str, path: Path, reason: str) -> EmbeddedError:
    return EmbeddedError(
        f"the database of {name}, {path}, is damaged ({reason}): put back a copy of it, or start with "
        "a new state directory"
    )


def explain(log: Path) -> str:
    """Why a child failed, from the end of its log; one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"its log cannot be read: {error}"
    for sign, meaning in (
        ("No space left on device", "the disk is full"),
        ("disk is full", "the disk is full"),
        ("disk image is malformed", "its database is damaged"),
        ("file is not a database", "its database is damaged"),
        ("Address already in use", "its port is taken by another program"),
    ):
        if sign in text:
            return meaning
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "its log is empty"
