"""A SQLite database that two processes use: a passing one must not take the log away from one that goes on."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from sqlalchemy import text

from kilonova.store.session import Database, Tx

PASSER_BY = """
import sys
from kilonova.store.session import Database
database = Database(sys.argv[1], schema="api")
print(database.version())
database.close()
"""


def _count(tx: Tx) -> int:
    return int(tx.scalar(text("SELECT count(*) FROM quota_classes")))


def test_another_process_comes_and_goes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/api.db"
    database = Database(url, schema="api")
    database.sync()
    with database.read(), database.read() as tx:  # several connections, as threads have them
        _count(tx)
    for number in range(3):
        gone = subprocess.run(
            [sys.executable, "-c", PASSER_BY, url], capture_output=True, text=True, check=True, timeout=60
        )
        assert gone.stdout.startswith("api")
        database.write(
            lambda tx, number=number: tx.execute(
                text("INSERT INTO quota_classes (class_name, resource, hard_limit) VALUES (:name, 'cores', 1)"),
                {"name": str(number)},
            )
        )
        assert database.query(_count) == number + 1
    database.close()
    assert Database(url, schema="api").query(_count) == 3


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path}/api.db", schema="api").sync()
    assert stat.S_IMODE((tmp_path / "api.db").stat().st_mode) == 0o600
