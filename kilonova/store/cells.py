"""The cells as one: their databases, where a server is, and questions to all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from kilonova.base.errors import DatabaseUnavailable, NotFound, ServerNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.server import Server
from kilonova.store import build_requests, cell_mappings, devices, gather, instance_mappings, servers
from kilonova.store.build_requests import BuildRequest
from kilonova.store.cell_mappings import CELL0_UUID, CellMapping
from kilonova.store.gather import Gathered
from kilonova.store.instance_mappings import InstanceMapping
from kilonova.store.session import Database, Tx

__all__ = ["CELL0_UUID", "CellMapping", "Cells", "Found", "Gathered", "InstanceMapping"]

R = TypeVar("R")
_FRESH_SECONDS = 10.0


class Found(msgspec.Struct, kw_only=True):
    """A server and the uuid of its cell; "" while it is a build request, which is then given too."""

    server: Server
    cell: str
    devices: list[BlockDevice] = []
    request: BuildRequest | None = None


class Cells:
    """All cells. Threads share it.

    ``timeout``: seconds that a cell has for an answer. ``open_database`` makes a cell's database from its mapping.
    """

    def __init__(
        self,
        api: Database,
        *,
        timeout: float = 10.0,
        open_database: Callable[[CellMapping], Database] | None = None,
    ) -> None:
        self.api = api
        self._timeout = timeout
        self._open = open_database or _open
        self._lock = threading.Lock()
        self._mappings: dict[str, CellMapping] = {}
        self._read_at = float("-inf")
        self._databases: dict[str, tuple[str, Database]] = {}
        self._places = gather.Places()

    # --- the cells

    def all(self, disabled: bool = False) -> list[CellMapping]:
        """The cells (cell0 too), oldest first; ``disabled``: also those that get no new servers."""
        return [mapping for mapping in self._current().values() if disabled or not mapping.disabled]

    @property
    def cell0(self) -> CellMapping:
        """Where servers are buried that no host could take; NotFound while it is not mapped."""
        return self.get(CELL0_UUID)

    def get(self, uuid: str) -> CellMapping:
        """The mapping of a cell; NotFound."""
        mapping = self._current().get(uuid) or self._current(fresh=True).get(uuid)
        if mapping is None:
            raise NotFound(f"Cell {uuid} could not be found.")
        return mapping

    def database(self, uuid: str) -> Database:
        """The database of a cell; NotFound."""
        mapping = self.get(uuid)
        with self._lock:
            url, database = self._databases.get(uuid, ("", None))
            if database is None or url != mapping.database_url:
                if database is not None:
                    database.close()
                database = self._open(mapping)
                self._databases[uuid] = (mapping.database_url, database)
            return database

    def add(self, mapping: CellMapping) -> None:
        """Enter a cell; Conflict when its uuid is known."""
        self.api.write(lambda tx: cell_mappings.insert(tx, mapping))
        self._current(fresh=True)

    def update(self, mapping: CellMapping) -> None:
        """Record a cell's new name and URLs; NotFound."""
        self.api.write(lambda tx: cell_mappings.update(tx, mapping))
        self._current(fresh=True)

    def remove(self, uuid: str) -> None:
        """Remove a cell; NotFound; Conflict while it has hosts or servers."""
        self.api.write(lambda tx: cell_mappings.remove(tx, uuid))
        self._current(fresh=True)

    def close(self) -> None:
        """Close the cells' databases; the API database is its owner's to close."""
        with self._lock:
            for _, database in self._databases.values():
                database.close()
            self._databases.clear()

    def _current(self, *, fresh: bool = False) -> dict[str, CellMapping]:
        """The mappings, not older than some seconds. Readers go on with the old ones while the API database is away."""
        if not fresh and time.monotonic() - self._read_at < _FRESH_SECONDS:
            return self._mappings
        try:
            found = {mapping.uuid: mapping for mapping in self.api.query(cell_mappings.listing)}
        except DatabaseUnavailable:
            if fresh or not self._mappings:
                raise
            return self._mappings
        self._mappings, self._read_at = found, time.monotonic()
        return found

    # --- their hosts

    def host_mapping(self, host: str) -> str | None:
        """The uuid of the cell that a host is in."""
        return self.api.query(lambda tx: cell_mappings.of_host(tx, host))

    def host_mappings(self, cell: str | None = None) -> dict[str, str]:
        """The cell of each host (of one cell, or all)."""
        return self.api.query(lambda tx: cell_mappings.hosts(tx, cell))

    def map_host(self, host: str, cell: str) -> None:
        """Say in which cell a host is."""
        self.api.write(lambda tx: cell_mappings.map_host(tx, host, cell))

    def unmap_host(self, host: str) -> bool:
        """Forget in which cell a host is; False when nobody knew."""
        return self.api.write(lambda tx: cell_mappings.unmap_host(tx, host))

    # --- their servers

    def gather(
        self, fn: Callable[[Tx], R], *, cells: Iterable[str] | None = None, timeout: float | None = None
    ) -> Gathered[R]:
        """Ask cells (None: all, cell0 and disabled ones too). One that gives no answer in time is among ``down``."""
        wanted = list(cells) if cells is not None else [mapping.uuid for mapping in self.all(disabled=True)]
        databases = {uuid: self.database(uuid) for uuid in wanted}
        limit = self._timeout if timeout is None else timeout
        return gather.gather(databases, fn, timeout=limit, places=self._places)

    def ask(self, cell: str, fn: Callable[[Tx], R]) -> R:
        """Ask one cell, within the time limit; DatabaseUnavailable."""
        gathered = self.gather(fn, cells=[cell])
        if cell in gathered.down:
            raise DatabaseUnavailable(where=self.get(cell).name)
        return gathered.found[cell]

    def mapping(self, server: str) -> InstanceMapping | None:
        """In which cell a server is, and whose it is."""
        return self.api.query(lambda tx: instance_mappings.get(tx, server))

    def find(self, server: str, *, deleted: bool = False) -> Found:
        """The server, wherever it is; ServerNotFound; DatabaseUnavailable when its cell gives no answer.

        A server moves from its build request into a cell: the cell's row is written, then in one transaction the
        mapping names the cell and the build request goes. Who looked at the API database before that and at the cell
        after it (or a server that goes while one looks) finds neither; so who finds nothing looks once more.
        """
        return self._look(server, deleted=deleted) or self._look(server, deleted=deleted) or _missing(server)

    def _look(self, server: str, *, deleted: bool) -> Found | None:
        mapping, request = self.api.query(lambda tx: (instance_mappings.get(tx, server), _request(tx, server)))
        if mapping is not None and mapping.cell is not None:
            found = self.ask(mapping.cell, lambda tx: _in_cell(tx, server, deleted=deleted))
            if found is not None:
                return Found(server=found[0], cell=mapping.cell, devices=found[1])
        if request is not None:
            return Found(server=request.server, cell="", devices=request.devices, request=request)
        return None


def _open(mapping: CellMapping) -> Database:
    return Database(mapping.database_url, schema="cell", name=mapping.name or mapping.uuid)


def _request(tx: Tx, server: str) -> BuildRequest | None:
    try:
        return build_requests.get(tx, server)
    except ServerNotFound:
        return None


def _in_cell(tx: Tx, server: str, *, deleted: bool) -> tuple[Server, list[BlockDevice]] | None:
    try:
        return servers.get(tx, server, deleted=deleted), devices.listing(tx, server)
    except ServerNotFound:
        return None


def _missing(server: str) -> Found:
    raise ServerNotFound(server=server)
