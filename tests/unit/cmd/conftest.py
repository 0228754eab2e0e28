"""A site of SQLite databases with its nova.conf, and the programs run as an operator runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from kilonova.cmd.nova_manage import cli as manage_cli
from kilonova.cmd.nova_manage import run
from kilonova.store.cells import Cells
from kilonova.store.session import Database

PASSWORD = "s3cret"
TRANSPORT = f"rabbit://nova:{PASSWORD}@broker:5672/"


class Ran(NamedTuple):
    """What a program answered."""

    code: int
    out: str
    err: str

    def rows(self) -> list[list[str]]:
        """The cells of the table it printed, without its head."""
        lines = [line for line in self.out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


class Site:
    """``manage("db", "sync")``; ``cells`` to look at and prepare the databases."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capture = folder, capture
        self.conf = folder / "nova.conf"
        self.cell_url = f"sqlite:///{folder}/cell1.db"
        self.write_conf()

    def write_conf(self, more: str = "", *, transport: str = TRANSPORT) -> None:
        self.conf.write_text(
            f"[DEFAULT]\ntransport_url = {transport}\n"
            f"[api_database]\nconnection = sqlite:///{self.folder}/api.db\n"
            f"[database]\nconnection = {self.cell_url}\n{more}\n"
        )

    def run(self, cli: click.Command, *arguments: str) -> Ran:
        self._capture.readouterr()
        code = run(cli, ["--config-file", str(self.conf), *arguments])
        out, err = self._capture.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    def manage(self, *arguments: str) -> Ran:
        return self.run(manage_cli, *arguments)

    def set_up(self) -> None:
        """As the installation guide says."""
        for words in ("api_db sync", "cell_v2 map_cell0", "db sync", "cell_v2 simple_cell_setup"):
            assert self.manage(*words.split()).code == 0, words

    def add_cell(self, name: str) -> str:
        url = f"sqlite:///{self.folder}/{name}.db"
        Database(url, schema="cell").sync()
        broker = f"rabbit://nova:{PASSWORD}@{name}:5672/"
        made = self.manage(
            *f"cell_v2 create_cell --verbose --name {name} --database_connection {url} --transport-url {broker}".split()
        )
        assert made.code == 0
        assert re.fullmatch(r"[0-9a-f-]{36}\n", made.out)
        return made.out.strip()

    @property
    def cells(self) -> Cells:
        return Cells(Database(f"sqlite:///{self.folder}/api.db", schema="api"))

    @property
    def cell(self) -> str:
        """The uuid of the cell that nova.conf speaks of."""
        return next(m.uuid for m in self.cells.all() if m.database_url == self.cell_url)


@pytest.fixture
def fresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Site:
    """Nothing has been done yet."""
    return Site(tmp_path, capsys)


@pytest.fixture
def site(fresh: Site) -> Site:
    """Set up, with one cell."""
    fresh.set_up()
    return fresh
