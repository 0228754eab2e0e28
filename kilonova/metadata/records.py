"""Finds the server that asks in the databases: the lookup of the metadata service."""

from __future__ import annotations

from typing import Final

from kilonova.base.errors import ServerNotFound
from kilonova.clients.neutron import Neutron
from kilonova.core.device import BlockDevice
from kilonova.core.metadata import InstanceMetadata
from kilonova.core.metadata_record import record_of
from kilonova.core.server import Guest, Server
from kilonova.store import devices, servers
from kilonova.store.cells import Cells
from kilonova.store.session import Tx

PASSWORD: Final = "password"  # noqa: S105 - a key's name


class StoredRecords:
    """Implements ``Lookup``. Without its headers Neutron is asked whose port an address is."""

    def __init__(self, cells: Cells, neutron: Neutron, *, domain: str) -> None:
        self._cells, self._neutron, self._domain = cells, neutron, domain

    def by_instance_id(self, uuid: str) -> InstanceMetadata | None:
        """The server with this uuid."""
        try:
            found = self._cells.find(uuid)
        except ServerNotFound:
            return None
        held: list[BlockDevice] = []
        if found.cell:
            with self._cells.database(found.cell).read() as tx:
                held = devices.listing(tx, uuid)
        return self._record(found.server, held)

    def _record(self, server: Server, held: list[BlockDevice]) -> InstanceMetadata:
        return record_of(
            Guest(server=server),
            server.nics,
            held,
            domain=self._domain,
            password=server.system_metadata.get(PASSWORD, ""),
        )

    def by_address(self, address: str) -> InstanceMetadata | None:
        """The server that has this fixed address, when just one has."""
        return self._of_ports(self._neutron.ports(fixed_ips=f"ip_address={address}"))

    def by_provider(self, provider: str, address: str) -> InstanceMetadata | None:
        """The server with this address on the network that the provider serves (its id is the provider's)."""
        return self._of_ports(self._neutron.ports(fixed_ips=f"ip_address={address}", network_id=provider))

    def _of_ports(self, ports: list[dict[str, object]]) -> InstanceMetadata | None:
        owners = {str(p["device_id"]) for p in ports if str(p.get("device_owner", "")).startswith("compute:")}
        return self.by_instance_id(owners.pop()) if len(owners) == 1 else None

    def save_password(self, uuid: str, text: str) -> bool:
        """Keep it with the server, once."""
        mapping = self._cells.mapping(uuid)
        if mapping is None or mapping.cell is None:
            return False

        def write(tx: Tx) -> bool:
            server = servers.get(tx, uuid)
            if server.system_metadata.get(PASSWORD):
                return False
            servers.update(tx, uuid, system_metadata={**server.system_metadata, PASSWORD: text})
            return True

        return self._cells.database(mapping.cell).write(write)
