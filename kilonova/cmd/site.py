"""What a process can build of a configuration: its buses, its neighbours' clients, its databases, each when asked.

A host's program builds its site without the store: nothing here imports it before a database is asked for.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kilonova.base import config, log
from kilonova.base.bus_local import LocalBus
from kilonova.base.rpc import Bus, client
from kilonova.base.timers import Timers
from kilonova.clients.neighbours import Neighbours, connect
from kilonova.clients.neighbours import read_options as read_neighbours
from kilonova.clients.options import VendorDataOptions, VendorLoginOptions
from kilonova.clients.vendordata import VendorData, configured
from kilonova.cmd.options import ApiDatabaseOptions, DatabaseOptions, ProcessOptions, UpgradeOptions
from kilonova.contracts.compute import Compute
from kilonova.contracts.conductor import Conductor
from kilonova.contracts.scheduler import Scheduler
from kilonova.core.options import HeartbeatOptions

if TYPE_CHECKING:
    from kilonova.conductor.caps import Caps
    from kilonova.store.cells import Cells

LOG = log.of(__name__)

LOCAL = "local:"
API_PREFIX = "kilonova-api"
SCHEDULING_SECONDS = 60.0
CLOSING_SECONDS = 30.0


class Buses:
    """The API's bus, and the bus of each cell, opened when first needed."""

    def __init__(self, api: Bus, open_cell: Callable[[str], Bus]) -> None:
        self.api, self._open = api, open_cell
        self._cells: dict[str, Bus] = {}
        self._lock = threading.Lock()

    def cell(self, uuid: str) -> Bus:
        """The bus of a cell; the API's for "" and for cell0, which has no services."""
        if uuid == "" or _is_cell0(uuid):
            return self.api
        with self._lock:
            if uuid not in self._cells:
                self._cells[uuid] = self._open(uuid)
            return self._cells[uuid]

    def close(self) -> None:
        """Close all."""
        for bus in [*self._cells.values(), self.api]:
            bus.close()


def _is_cell0(uuid: str) -> bool:
    from kilonova.store.cell_mappings import CELL0_UUID

    return uuid == CELL0_UUID


class Site:
    """What a process can build of its configuration."""

    def __init__(self, conf: config.Conf, *, timers: Timers | None = None) -> None:
        self.conf = conf
        self.timers = timers or Timers(workers=8)
        self.process = config.read(ProcessOptions, conf)
        self.heartbeats = config.read(HeartbeatOptions, conf)

    @functools.cached_property
    def cells(self) -> Cells:
        """The cells, through the API database; BadConfig when none is configured."""
        from kilonova.store.cells import Cells
        from kilonova.store.session import Database

        options = config.read(ApiDatabaseOptions, self.conf)
        if options.connection is None:
            raise config.BadConfig("[api_database] connection is not set")
        return Cells(Database(options.connection, schema="api", name="the API", pool_size=options.max_pool_size))

    @functools.cached_property
    def buses(self) -> Buses:
        """The buses. The one of a cell is where its mapping says.

        Queues of the API's bus bear a name of their own: on a small site a cell may share its virtual host.
        """
        if self._transport_url.startswith(LOCAL):
            return Buses(LocalBus(), lambda uuid: LocalBus())
        from kilonova.base.bus_oslo import OsloBus

        return Buses(
            OsloBus(self.conf, url=self._transport_url, prefix=API_PREFIX),
            lambda uuid: OsloBus(self.conf, url=self.cells.get(uuid).transport_url),
        )

    @functools.cached_property
    def cell_bus(self) -> Bus:
        """For a host: the bus of its cell, which is all that it knows of the cell."""
        from kilonova.base.bus_oslo import OsloBus

        return OsloBus(self.conf, url=self._transport_url)

    @property
    def _transport_url(self) -> str:
        return self.process.transport_url or "rabbit://"

    @functools.cached_property
    def neighbours(self) -> Neighbours:
        """The neighbours' clients."""
        return connect(read_neighbours(self.conf))

    @functools.cached_property
    def caps(self) -> Caps:
        """The contract versions that the hosts of each cell understand."""
        from kilonova.conductor.caps import Caps

        return Caps(self.cells.database, fixed=config.read(UpgradeOptions, self.conf).compute)

    @functools.cached_property
    def vendor(self) -> VendorData:
        """The operator's additions to guests' metadata."""
        options = config.read(VendorDataOptions, self.conf)
        try:
            return configured(options, config.read(VendorLoginOptions, self.conf))
        except ValueError as error:
            raise config.BadConfig(f"[api] {error}") from None

    def conductor(self, cell: str) -> Conductor:
        """The conductor of a cell; the super conductor for "" and for cell0."""
        return client(Conductor, self.buses.cell(cell))

    def compute(self, cell: str, host: str) -> Compute:
        """A host, asked for nothing that the oldest host of its cell does not know."""
        return client(Compute, self.buses.cell(cell), host=host, cap=self.caps.compute(cell))

    @functools.cached_property
    def scheduler(self) -> Scheduler:
        """The scheduler, from outside of it."""
        return client(Scheduler, self.buses.api, timeout=SCHEDULING_SECONDS)

    @functools.cached_property
    def all_schedulers(self) -> Scheduler:
        """For what every scheduler is to hear."""
        return client(Scheduler, self.buses.api, fanout=True)

    @functools.cached_property
    def own_cell(self) -> str:
        """The uuid of the cell that this process serves."""
        real = [m for m in self.cells.all() if not _is_cell0(m.uuid)]
        wanted = self.process.cell
        found = [m.uuid for m in real if wanted is None or wanted in (m.uuid, m.name)]
        if wanted is None and len(real) > 1:
            url = config.read(DatabaseOptions, self.conf).connection
            found = [m.uuid for m in real if m.database_url == url]
        if len(found) != 1:
            raise config.BadConfig("[DEFAULT] cell must name the cell that this process serves")
        return found[0]

    def close(self) -> None:
        """End the timers and leave the brokers, which waits for the calls being answered, but not for ever."""
        self.timers.close(CLOSING_SECONDS / 3)
        opened = [bus for name, bus in vars(self).items() if name in ("buses", "cell_bus")]
        thread = threading.Thread(target=lambda: [bus.close() for bus in opened], name="closing", daemon=True)
        thread.start()
        thread.join(CLOSING_SECONDS)
        if thread.is_alive():
            LOG.warning("the message broker was left without a word")
