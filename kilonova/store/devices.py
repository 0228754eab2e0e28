"""The block devices of servers. Their connections are secrets: they are never logged."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete as delete_rows
from sqlalchemy import insert, select
from sqlalchemy import update as update_rows

from kilonova.base.engine import utcnow
from kilonova.base.errors import NotFound
from kilonova.core.device import BlockDevice
from kilonova.store.schema_cell import block_device_mapping, instances
from kilonova.store.session import Tx

_C = block_device_mapping.c


def listing(tx: Tx, server: str) -> list[BlockDevice]:
    """The devices of a server, in the order in which they came."""
    return for_servers(tx, [server]).get(server, [])


def for_servers(tx: Tx, servers: Iterable[str]) -> dict[str, list[BlockDevice]]:
    """The devices of each of ``servers`` that has any."""
    found: dict[str, list[BlockDevice]] = {}
    query = select(_C.instance_uuid, _C.device).where(_C.instance_uuid.in_(list(servers))).order_by(_C.id)
    for row in tx.rows(query):
        found.setdefault(row.instance_uuid, []).append(row.device)
    return found


def of_volume(tx: Tx, volume_id: str) -> list[tuple[str, BlockDevice]]:
    """The living servers that have a volume: (server, device)."""
    query = (
        select(_C.instance_uuid, _C.device)
        .join(instances, instances.c.uuid == _C.instance_uuid)
        .where(_C.volume_id == volume_id, instances.c.deleted == 0)
    )
    return [(row.instance_uuid, row.device) for row in tx.rows(query)]


def replace(tx: Tx, server: str, devices: Iterable[BlockDevice]) -> None:
    """Make these the only devices of a server."""
    tx.execute(delete_rows(block_device_mapping).where(_C.instance_uuid == server))
    for device in devices:
        add(tx, server, device)


def add(tx: Tx, server: str, device: BlockDevice) -> None:
    """Enter one device more."""
    values = {"uuid": device.uuid, "instance_uuid": server, "volume_id": device.volume_id, "device": device}
    tx.execute(insert(block_device_mapping).values(created_at=utcnow(), **values))


def update(tx: Tx, device: BlockDevice) -> None:
    """Record the device's new state; NotFound."""
    values = {"volume_id": device.volume_id, "device": device, "updated_at": utcnow()}
    if tx.changes(update_rows(block_device_mapping).where(_C.uuid == device.uuid).values(values)) == 0:
        raise NotFound(f"Block device {device.uuid} could not be found.")


def delete(tx: Tx, device_uuid: str) -> bool:
    """Remove a device; False when there was none."""
    return tx.changes(delete_rows(block_device_mapping).where(_C.uuid == device_uuid)) > 0
