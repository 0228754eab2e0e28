"""Servers on all databases: they read back whole, changes are swaps, and what is deleted stays out of the way."""

from __future__ import annotations

import threading

import pytest

from kilonova.base.errors import Conflict, ServerNotFound
from kilonova.core.device import BlockDevice
from kilonova.core.server import ServerFault
from kilonova.store import devices, servers
from kilonova.store.listing import Listing
from kilonova.store.session import Database
from tests.db.records import NOW, active, after, fresh, nic, server


def test_a_server_reads_back_as_it_was_entered(cell_shared: Database) -> None:
    wanted = server(
        name="Ünï 😀 ",
        metadata={"Key": "a", "key": "b", "key ": "c"},
        tags=["b", "a", "A"],
        nics=[nic("10.0.0.4", "fd00::4")],
        description="d" * 255,
        user_data="x" * 65535,
        image_properties={"os_type": "linux"},
        trusted_certs=["t"],
        config_drive=True,
        launched_at=after(1),
    )
    entered = cell_shared.write(lambda tx: servers.insert(tx, wanted, []))
    assert entered.id > 0
    with cell_shared.read() as tx:
        found = servers.get(tx, wanted.uuid)
    wanted.tags.sort()
    wanted.id, wanted.updated_at = entered.id, NOW
    assert found == wanted
    assert found.created_at.utcoffset() is not None
    with pytest.raises(Conflict):
        cell_shared.write(lambda tx: servers.insert(tx, wanted))


def test_numbers_are_not_given_again(cell: Database) -> None:
    """The instance's name on the hypervisor comes from the number."""
    first = cell.write(lambda tx: servers.insert(tx, server()))
    cell.write(lambda tx: servers.hard_delete(tx, first.uuid))
    assert cell.write(lambda tx: servers.insert(tx, server())).id > first.id


def test_updating(cell_shared: Database) -> None:
    uuid = cell_shared.write(lambda tx: servers.insert(tx, active())).uuid
    cell_shared.write(lambda tx: servers.update(tx, uuid, host="h", power_state=1, metadata={"a": "1"}, tags=["t"]))
    with cell_shared.read() as tx:
        found = servers.get(tx, uuid)
    assert (found.host, found.power_state, found.metadata, found.tags) == ("h", 1, {"a": "1"}, ["t"])
    assert found.updated_at is not None
    assert found.updated_at > NOW
    with pytest.raises(TypeError, match="flavour"):
        cell_shared.write(lambda tx: servers.update(tx, uuid, flavour=1))
    with pytest.raises(ServerNotFound):
        cell_shared.write(lambda tx: servers.update(tx, fresh(), host="h"))


@pytest.mark.parametrize(
    "where, met",
    [
        ({"vm_state": "active"}, True),
        ({"vm_state": "Active"}, False),
        ({"vm_state": ("stopped", "active"), "task_state": None}, True),
        ({"task_state": (None, "deleting")}, True),
        ({"task_state": ("deleting",)}, False),
        ({"task_state": "deleting"}, False),
        ({"locked": False, "host": None}, True),
    ],
)
def test_compare_and_set(cell_shared: Database, where: dict[str, object], met: bool) -> None:
    uuid = cell_shared.write(lambda tx: servers.insert(tx, active())).uuid
    done = cell_shared.write(lambda tx: servers.compare_and_set(tx, uuid, where=where, task_state="rebooting"))
    assert done is met
    with cell_shared.read() as tx:
        assert servers.get(tx, uuid).task_state == ("rebooting" if met else None)


def test_of_many_who_swap_one_wins(cell_shared: Database) -> None:
    uuid = cell_shared.write(lambda tx: servers.insert(tx, active())).uuid
    gate, results = threading.Barrier(6), []

    def swap() -> None:
        gate.wait(10)
        swapped = cell_shared.write(
            lambda tx: servers.compare_and_set(tx, uuid, where={"task_state": None}, task_state="rebooting")
        )
        results.append(swapped)

    threads = [threading.Thread(target=swap) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [False] * 5 + [True]


def test_deleting(cell_shared: Database) -> None:
    project = fresh("p")
    one = cell_shared.write(lambda tx: servers.insert(tx, active(project_id=project, metadata={"a": "b"})))
    assert cell_shared.write(lambda tx: servers.mark_deleted(tx, one.uuid, after(9)))
    assert not cell_shared.write(lambda tx: servers.mark_deleted(tx, one.uuid, after(10)))
    with pytest.raises(ServerNotFound):
        cell_shared.write(lambda tx: servers.update(tx, one.uuid, host="h"))
    with cell_shared.read() as tx:
        with pytest.raises(ServerNotFound):
            servers.get(tx, one.uuid)
        gone = servers.get(tx, one.uuid, deleted=True)
        assert (gone.deleted, gone.deleted_at, gone.vm_state, gone.terminated_at) == (
            True,
            after(9),
            "deleted",
            after(9),
        )
        assert gone.metadata == {"a": "b"}
        assert servers.listing(tx, Listing(project_id=project)) == []
        assert servers.listing(tx, Listing(project_id=project, deleted=True)) == [gone]
        assert servers.listing(tx, Listing(project_id=project, deleted=None)) == [gone]
        assert servers.usage(tx, project).instances == 0
        assert one.uuid in servers.deleted_before(tx, after(10), limit=1000)
        assert one.uuid not in servers.deleted_before(tx, after(9), limit=1000)
    assert cell_shared.write(lambda tx: servers.hard_delete(tx, one.uuid))
    with cell_shared.read() as tx:
        assert servers.get_metadata(tx, one.uuid) == {}


def test_usage_and_hosts(cell_shared: Database) -> None:
    project, host = fresh("p"), fresh("h")
    for user in ("u", "u", "v"):
        cell_shared.write(
            lambda tx, user=user: servers.insert(tx, active(project_id=project, user_id=user, host=host))  # type: ignore[misc]
        )
    with cell_shared.read() as tx:
        assert servers.usage(tx, project) == servers.Usage(instances=3, cores=3, ram=1536)
        assert servers.usage(tx, project, "u") == servers.Usage(instances=2, cores=2, ram=1024)
        assert servers.usage(tx, fresh("p")) == servers.Usage()
        assert [each.user_id for each in servers.on_host(tx, host)] == ["u", "u", "v"]
        assert set(servers.expected(tx, host).values()) == {"active"}


def test_metadata_and_tags(cell_shared: Database) -> None:
    uuid = cell_shared.write(lambda tx: servers.insert(tx, active(metadata={"a": "1", "b": "2"}))).uuid
    assert cell_shared.write(lambda tx: servers.put_metadata(tx, uuid, {"a": "3", "c": "4"})) == {
        "a": "3",
        "b": "2",
        "c": "4",
    }
    assert cell_shared.write(lambda tx: servers.delete_metadata(tx, uuid, "b"))
    assert not cell_shared.write(lambda tx: servers.delete_metadata(tx, uuid, "b"))
    assert cell_shared.write(lambda tx: servers.add_tag(tx, uuid, "x"))
    assert not cell_shared.write(lambda tx: servers.add_tag(tx, uuid, "x"))
    assert cell_shared.write(lambda tx: servers.add_tag(tx, uuid, "X"))
    assert cell_shared.write(lambda tx: servers.delete_tag(tx, uuid, "x"))
    with cell_shared.read() as tx:
        assert servers.get_metadata(tx, uuid) == {"a": "3", "c": "4"}
        assert servers.get_tags(tx, uuid) == ["X"]
    with pytest.raises(ServerNotFound):
        cell_shared.write(lambda tx: servers.put_metadata(tx, fresh(), {"a": "b"}))


def test_the_last_fault_is_shown_and_few_are_kept(cell_shared: Database) -> None:
    one, other = (cell_shared.write(lambda tx: servers.insert(tx, active())).uuid for _ in range(2))
    for number in range(15):
        fault = ServerFault(server=one, code=500, message=f"{number}", created_at=after(number), details="trace")
        cell_shared.write(lambda tx, fault=fault: servers.add_fault(tx, fault))  # type: ignore[misc]
    with cell_shared.read() as tx:
        assert servers.latest_faults(tx, [one, other]) == {one: fault}


def test_devices(cell_shared: Database) -> None:
    volume = fresh()
    root = BlockDevice(uuid=fresh(), source_type="image", destination_type="local", boot_index=0)
    data = BlockDevice(uuid=fresh(), source_type="volume", destination_type="volume", volume_id=volume)
    uuid = cell_shared.write(lambda tx: servers.insert(tx, active(), [root, data])).uuid
    data.connection = {"auth_password": "secret"}
    cell_shared.write(lambda tx: devices.update(tx, data))
    with cell_shared.read() as tx:
        assert devices.listing(tx, uuid) == [root, data]
        assert devices.of_volume(tx, volume) == [(uuid, data)]
    assert cell_shared.write(lambda tx: devices.delete(tx, root.uuid))
    cell_shared.write(lambda tx: servers.mark_deleted(tx, uuid, NOW))
    with cell_shared.read() as tx:
        assert devices.for_servers(tx, [uuid]) == {uuid: [data]}
        assert devices.of_volume(tx, volume) == []
