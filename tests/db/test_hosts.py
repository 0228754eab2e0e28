"""Services and nodes of a cell, and the states that scheduling is fed with."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from kilonova.base.errors import BadRequest, HostNotFound, ServiceNotFound
from kilonova.core.host import Node
from kilonova.store import nodes, servers, services
from kilonova.store.session import Database
from tests.db.records import active, after, fresh


def node(host: str, **more: Any) -> Node:
    given = {"uuid": fresh(), "name": host, "host": host, "hypervisor_type": "fake", "vcpus": 8, "memory_mb": 4096}
    return Node(**(given | {"disk_gb": 100, "supported": [("x86_64", "fake", "hvm")]} | more))


def joined(cell: Database, host: str, **more: Any) -> Node:
    cell.write(lambda tx: services.ensure(tx, "nova-compute", host, 3))
    return cell.write(lambda tx: nodes.upsert(tx, node(host, **more)))


def test_a_service_is_one_record_over_its_restarts(cell_shared: Database) -> None:
    host = fresh("h")
    one = cell_shared.write(lambda tx: services.ensure(tx, "nova-compute", host, 3))
    cell_shared.write(lambda tx: services.update(tx, one.uuid, disabled=True, disabled_reason="mend"))
    again = cell_shared.write(lambda tx: services.ensure(tx, "nova-compute", host, 4))
    assert (again.uuid, again.version, again.disabled, again.topic) == (one.uuid, 4, True, "compute")
    other = cell_shared.write(lambda tx: services.ensure(tx, "nova-conductor", host, 4))
    with cell_shared.read() as tx:
        assert [each.uuid for each in services.listing(tx, host=host)] == [one.uuid, other.uuid]
        assert [each.uuid for each in services.listing(tx, host=host, binary="nova-conductor")] == [other.uuid]


def test_heartbeats(cell_shared: Database) -> None:
    host = fresh("h")
    one = cell_shared.write(lambda tx: services.ensure(tx, "nova-compute", host, 3))
    cell_shared.write(lambda tx: services.beat(tx, "nova-compute", host, after(10)))
    seen = cell_shared.write(lambda tx: services.beat(tx, "nova-compute", host, after(20)))
    assert seen is not None
    assert (seen.report_count, seen.last_seen_up, seen.updated_at) == (2, after(20), None)
    cell_shared.write(lambda tx: services.delete(tx, one.uuid))
    assert cell_shared.write(lambda tx: services.beat(tx, "nova-compute", host, after(30))) is None
    for refused in (services.get, services.delete, services.update):
        with pytest.raises(ServiceNotFound):
            cell_shared.write(lambda tx, refused=refused: refused(tx, one.uuid))  # type: ignore[misc]
    assert cell_shared.write(lambda tx: services.ensure(tx, "nova-compute", host, 3)).uuid != one.uuid


def test_of_a_service_only_some_can_be_set(cell_shared: Database) -> None:
    one = cell_shared.write(lambda tx: services.ensure(tx, "nova-compute", fresh("h"), 3))
    with pytest.raises(TypeError, match="host"):
        cell_shared.write(lambda tx: services.update(tx, one.uuid, host="other"))


def test_the_lowest_version_counts(cell: Database) -> None:
    with cell.read() as tx:
        assert services.min_version(tx, "nova-compute") is None
    for number, host in ((5, "a"), (3, "b"), (4, "c")):
        one = cell.write(lambda tx, n=number, h=host: services.ensure(tx, "nova-compute", h, n))  # type: ignore[misc]
        if number == 3:
            cell.write(lambda tx, one=one: services.update(tx, one.uuid, forced_down=True))  # type: ignore[misc]
    with cell.read() as tx:
        assert services.min_version(tx, "nova-compute") == 4


def test_a_node_keeps_its_uuid_and_number(cell_shared: Database) -> None:
    host = fresh("h")
    one = cell_shared.write(lambda tx: nodes.upsert(tx, node(host)))
    again = cell_shared.write(lambda tx: nodes.upsert(tx, node(host, vcpus=16)))
    assert (again.uuid, again.id, again.generation, again.vcpus) == (one.uuid, one.id, one.generation + 1, 16)
    assert again.supported == [("x86_64", "fake", "hvm")]
    renamed = cell_shared.write(lambda tx: nodes.upsert(tx, node(host, uuid=one.uuid, name="other")))
    assert (renamed.id, renamed.name) == (one.id, "other")
    assert cell_shared.write(lambda tx: nodes.delete(tx, one.uuid))
    assert not cell_shared.write(lambda tx: nodes.delete(tx, one.uuid))
    with cell_shared.read() as tx:
        for refused, key in ((nodes.get, one.uuid), (nodes.get_by_number, one.id)):
            with pytest.raises(HostNotFound):
                refused(tx, key)  # type: ignore[operator]
    back = cell_shared.write(lambda tx: nodes.upsert(tx, node(host, uuid=one.uuid)))
    assert (back.id, back.generation) == (one.id, renamed.generation + 1)


def test_nodes_listed(cell: Database) -> None:
    kept = [cell.write(lambda tx, name=name: nodes.upsert(tx, node(name))) for name in ("web1", "Web2", "db")]  # type: ignore[misc]
    with cell.read() as tx:
        assert nodes.listing(tx) == kept
        assert nodes.listing(tx, limit=1, marker=kept[0].uuid) == [kept[1]]
        assert nodes.listing(tx, marker=kept[1].id) == [kept[2]]
        assert nodes.listing(tx, pattern="^web") == kept[:2]
        assert nodes.by_host(tx, "db") == [kept[2]]
        with pytest.raises(BadRequest, match="marker"):
            nodes.listing(tx, marker="x")


def test_states_for_scheduling(cell: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {host: joined(cell, host, memory_mb_used=1024, disk_gb_used=40, building=2) for host in ("a", "b", "c")}
    guest = cell.write(lambda tx: servers.insert(tx, active(host="b"))).uuid
    with cell.read() as tx:
        found = nodes.states(tx, cell="cell")
    assert found.all == [kept[host].uuid for host in "abc"]
    assert [each.host for each in found.changed] == ["a", "b", "c"]
    state = found.changed[1]
    assert (state.node_uuid, state.cell, state.servers, state.num_instances) == (kept["b"].uuid, "cell", [guest], 1)
    assert (state.free_ram_mb, state.free_disk_mb, state.num_io_ops) == (3072, 60 * 1024, 2)
    monkeypatch.setattr(nodes, "_OVERLAP", datetime.timedelta(0))

    def changed() -> list[str]:
        nonlocal found
        with cell.read() as tx:
            found = nodes.states(tx, found.marker)
        return [each.host for each in found.changed]

    assert changed() == []
    cell.write(lambda tx: nodes.upsert(tx, node("a")))
    assert changed() == ["a"]
    cell.write(lambda tx: servers.update(tx, guest, host="c"))
    assert changed() == ["c"]
    cell.write(lambda tx: servers.mark_deleted(tx, guest, datetime.datetime.now(datetime.UTC)))
    assert changed() == ["c"]
    assert found.changed[0].servers == []
    with cell.read() as tx:
        service = services.find(tx, "nova-compute", "b")
    assert service is not None
    cell.write(lambda tx: services.update(tx, service.uuid, disabled=True))
    assert changed() == ["b"]
    assert not found.changed[0].enabled
    cell.write(lambda tx: services.update(tx, service.uuid, forced_down=True))
    assert changed() == []
    assert found.all == [kept["a"].uuid, kept["c"].uuid]


def test_a_silent_host_is_not_among_the_living(cell: Database) -> None:
    joined(cell, "a")
    cell.write(lambda tx: services.beat(tx, "nova-compute", "a", after(-1000)))
    with cell.read() as tx:
        assert nodes.states(tx, down_time=60).all == []
