"""What the verbs work on: the configuration, the databases it names, and how they tell their results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from kilonova.base import config, log
from kilonova.cmd.config_file import files_to_read
from kilonova.cmd.options import ApiDatabaseOptions, DatabaseOptions, ProcessOptions
from kilonova.store.cells import Cells
from kilonova.store.session import Database

C = TypeVar("C", bound=Callable[..., int])


class Operator:
    """Reads the configuration when it is first needed; BadConfig where what is needed is not set."""

    def __init__(self, files: Sequence[Path] = (), *, debug: bool = False) -> None:
        self._files, self._debug = files, debug

    @functools.cached_property
    def conf(self) -> config.Conf:
        """The configuration."""
        log.configure(service="nova-manage", level="DEBUG" if self._debug else "ERROR")
        return config.load(files_to_read(self._files))

    @functools.cached_property
    def cells(self) -> Cells:
        """All cells, through the API database."""
        return Cells(self.api)

    @functools.cached_property
    def api(self) -> Database:
        """The API database."""
        url = config.read(ApiDatabaseOptions, self.conf).connection
        if url is None:
            raise config.BadConfig("[api_database] connection is not set")
        return Database(url, schema="api", name="the API", pool_size=2)

    @property
    def cell_url(self) -> str | None:
        """[database] connection: the cell's database."""
        return config.read(DatabaseOptions, self.conf).connection

    @property
    def transport_url(self) -> str | None:
        """[DEFAULT] transport_url: the cell's broker."""
        return config.read(ProcessOptions, self.conf).transport_url

    def cell_database(self) -> Database:
        """The database of [database] connection."""
        if self.cell_url is None:
            raise config.BadConfig("[database] connection is not set")
        return Database(self.cell_url, schema="cell", name="the cell", pool_size=2)


pass_operator = click.make_pass_decorator(Operator, ensure=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows with borders, as scripts of operators take them apart."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *texts]) for i in range(len(head))]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True)) + "|"

    return "\n".join([rule, line(head), rule, *map(line, texts), rule])
