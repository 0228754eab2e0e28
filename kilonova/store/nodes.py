"""The hypervisors of a cell as their hosts report them, and what scheduling wants to know of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import msgspec
from sqlalchemy import insert as insert_rows
from sqlalchemy import select, union
from sqlalchemy import update as update_rows

from kilonova.base.engine import utcnow
from kilonova.base.errors import BadRequest, HostNotFound
from kilonova.core.host import HostState, Node, Service
from kilonova.store import patterns, services
from kilonova.store.schema_cell import compute_nodes, instances
from kilonova.store.schema_cell import services as service_rows
from kilonova.store.session import AnyRow, Tx

_C = compute_nodes.c
# Changes are looked for this far before the marker: a transaction may commit after one with a later time, and the
# clocks of conductors differ.
_OVERLAP = datetime.timedelta(seconds=30)


def upsert(tx: Tx, node: Node) -> Node:
    """Record a host's report. Its uuid stays what it was at first for this host and name; ``generation`` grows."""
    now = utcnow()
    by_name = (_C.host == node.host, _C.hypervisor_hostname == node.name, _C.deleted == 0)
    row = tx.row(select(compute_nodes).where(*by_name).with_for_update())
    if row is None:
        row = tx.row(select(compute_nodes).where(_C.uuid == node.uuid).with_for_update())
    if row is None:
        values = {"uuid": node.uuid, "host": node.host, "hypervisor_hostname": node.name, "mapped": node.mapped}
        values |= {"generation": 1, "node": node, "created_at": now, "updated_at": now}
        tx.execute(insert_rows(compute_nodes), values)
        return get(tx, node.uuid)
    values = {"host": node.host, "hypervisor_hostname": node.name, "node": node, "updated_at": now}
    values |= {"generation": row.generation + 1, "deleted": 0, "deleted_at": None}
    tx.execute(update_rows(compute_nodes).where(_C.id == row.id).values(values))
    return get(tx, row.uuid)


def get(tx: Tx, uuid: str) -> Node:
    """The node; HostNotFound."""
    row = tx.row(select(compute_nodes).where(_C.uuid == uuid, _C.deleted == 0))
    if row is None:
        raise HostNotFound(host=uuid)
    return _record(row)


def get_by_number(tx: Tx, number: int) -> Node:
    """The node with this ``id``; HostNotFound."""
    row = tx.row(select(compute_nodes).where(_C.id == number, _C.deleted == 0))
    if row is None:
        raise HostNotFound(host=number)
    return _record(row)


def listing(
    tx: Tx, *, limit: int | None = None, marker: str | int | None = None, pattern: str | None = None
) -> list[Node]:
    """The nodes, oldest first. ``marker``: the uuid or ``id`` of the last of the page before, BadRequest if unknown.

    ``pattern``: a regular expression that is found in the name.
    """
    query = select(compute_nodes).where(_C.deleted == 0)
    if marker is not None:
        last = tx.scalar(select(_C.id).where(_C.uuid == marker if isinstance(marker, str) else _C.id == marker))
        if last is None:
            raise BadRequest(f"marker [{marker}] not found")
        query = query.where(_C.id > last)
    if pattern is not None:
        query = query.where(patterns.matches(tx, _C.hypervisor_hostname, pattern))
    query = query.order_by(_C.id)
    return [_record(row) for row in tx.rows(query if limit is None else query.limit(limit))]


def by_host(tx: Tx, host: str) -> list[Node]:
    """The nodes of a host, oldest first."""
    query = select(compute_nodes).where(_C.host == host, _C.deleted == 0).order_by(_C.id)
    return [_record(row) for row in tx.rows(query)]


def set_mapped(tx: Tx, uuids: Iterable[str], *, mapped: bool = True) -> None:
    """Note that the hosts of these nodes are mapped to this cell."""
    tx.execute(update_rows(compute_nodes).where(_C.uuid.in_(list(uuids))).values(mapped=mapped))


def delete(tx: Tx, uuid: str) -> bool:
    """Forget the node (its uuid is known again when it returns); False when there was none."""
    now = utcnow()
    query = update_rows(compute_nodes).where(_C.uuid == uuid, _C.deleted == 0)
    return tx.changes(query.values(deleted=_C.id, deleted_at=now, updated_at=now)) > 0


class States(msgspec.Struct, kw_only=True):
    """``all``: the uuids of the living nodes. ``marker`` is to be given back to get what changes from now on."""

    changed: list[HostState]
    all: list[str]
    marker: str


def states(tx: Tx, marker: str = "", *, cell: str = "", down_time: float = 60.0) -> States:
    """What scheduling needs of the nodes that changed since ``marker`` ("": of all); the aggregates are not known here.

    A change is a report, or one of the service (disabled, forced down) or of a server on the host; some are told twice.
    A node is living while its service was seen within ``down_time`` seconds, and is not forced down.
    """
    now = utcnow()
    living = {
        service.host: service
        for service in services.listing(tx, binary="nova-compute")
        if service.is_up(now=now, down_time=down_time)
    }
    known = tx.rows(select(_C.uuid, _C.host).where(_C.deleted == 0).order_by(_C.id))
    hosts = {row.host for row in known}
    if marker:
        hosts &= _changed_hosts(tx, datetime.datetime.fromisoformat(marker) - _OVERLAP)
    hosts &= living.keys()
    guests = _guests(tx, hosts)
    query = select(compute_nodes).where(_C.deleted == 0, _C.host.in_(hosts)).order_by(_C.id)
    changed = [_state(_record(row), living[row.host], guests.get(row.host, []), cell=cell) for row in tx.rows(query)]
    uuids = [row.uuid for row in known if row.host in living]
    return States(changed=changed, all=uuids, marker=now.isoformat())


def _changed_hosts(tx: Tx, since: datetime.datetime) -> set[str]:
    s, i = service_rows.c, instances.c
    found = union(
        select(_C.host).where(_C.updated_at >= since),
        select(s.host).where(s.updated_at >= since),
        select(s.host).where(s.created_at >= since),
        select(i.host).where(i.updated_at >= since, i.host.is_not(None)),
    )
    return {row[0] for row in tx.rows(found)}


def _guests(tx: Tx, hosts: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    query = select(instances.c.host, instances.c.uuid).where(instances.c.deleted == 0, instances.c.host.in_(hosts))
    for row in tx.rows(query):
        found.setdefault(row.host, []).append(row.uuid)
    return found


def _state(node: Node, service: Service, guests: list[str], *, cell: str) -> HostState:
    return HostState(
        node_uuid=node.uuid,
        node=node.name,
        host=node.host,
        cell=cell,
        enabled=not service.disabled,
        up=True,
        disabled_reason=service.disabled_reason,
        free_ram_mb=node.memory_mb - node.memory_mb_used,
        free_disk_mb=(node.disk_gb - node.disk_gb_used) * 1024,
        vcpus_total=node.vcpus,
        vcpus_used=node.vcpus_used,
        cpu_allocation_ratio=node.cpu_allocation_ratio,
        num_instances=len(guests),
        num_io_ops=node.building,
        failed_builds=node.failed_builds,
        hypervisor_type=node.hypervisor_type,
        hypervisor_version=node.hypervisor_version,
        host_ip=node.host_ip,
        supported=node.supported,
        stats=node.stats,
        servers=guests,
        generation=node.generation,
    )


def _record(row: AnyRow) -> Node:
    node: Node = row.node
    return msgspec.structs.replace(
        node,
        id=row.id,
        uuid=row.uuid,
        generation=row.generation,
        mapped=row.mapped,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
