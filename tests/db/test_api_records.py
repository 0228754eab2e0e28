"""What the API database keeps for all cells: flavors, keys, aggregates, groups, limits, requests and decisions."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kilonova.base.errors import AggregateNotFound, BadRequest, Conflict, FlavorNotFound, KeyPairNotFound, NotFound
from kilonova.core.flavor import Flavor
from kilonova.core.request import RequestSpec, Why
from kilonova.store import aggregates, decisions, flavors, keypairs, quotas, request_specs, server_groups
from kilonova.store.session import Database
from tests.contracts.journal_suite import race
from tests.db.records import FLAVOR, NOW, after, fresh


def flavor(**more: Any) -> Flavor:
    name = fresh("f")
    return Flavor(**({"flavorid": name, "name": name, "vcpus": 1, "memory_mb": 512, "root_gb": 1} | more))


def entered(database: Database, wanted: Flavor) -> Flavor:
    return database.write(lambda tx: flavors.insert(tx, wanted))


def test_a_flavor_reads_back(api_shared: Database) -> None:
    wanted = flavor(
        extra_specs={"hw:numa_nodes": "2", "A": ""}, is_public=False, projects=["p2", "p1"], rxtx_factor=2.5, swap=64
    )
    kept = entered(api_shared, wanted)
    with api_shared.read() as tx:
        found = flavors.get(tx, wanted.flavorid)
        assert flavors.get_by_name(tx, wanted.name) == found
        with pytest.raises(FlavorNotFound):
            flavors.get(tx, wanted.flavorid.upper())
    assert found == msgspec.structs.replace(wanted, id=kept.id, created_at=kept.created_at, projects=["p1", "p2"])


@pytest.mark.parametrize("attribute", ["flavorid", "name"])
def test_a_second_flavor_of_an_id_or_name_conflicts(api_shared: Database, attribute: str) -> None:
    one = entered(api_shared, flavor())
    with pytest.raises(Conflict, match="already exists"):
        entered(api_shared, flavor(**{attribute: getattr(one, attribute)}))


def test_flavors_listed(api: Database) -> None:
    for name, memory, public in (("b", 64, True), ("a", 128, True), ("c", 64, False), ("d", 256, False)):
        entered(api, flavor(flavorid=name, name=name * 2, memory_mb=memory, is_public=public, root_gb=memory // 64))
    entered(api, flavor(flavorid="off", disabled=True))
    api.write(lambda tx: flavors.add_access(tx, "c", "p"))

    def ids(**more: Any) -> str:
        with api.read() as tx:
            return "".join(each.flavorid for each in flavors.listing(tx, **more))

    assert ids() == "ab"
    assert ids(project_id="p") == "abc"
    assert ids(is_public=None) == "abcd"
    assert ids(is_public=False) == "cd"
    assert ids(is_public=None, min_ram=128) == "ad"
    assert ids(is_public=None, min_disk=3) == "d"
    assert ids(is_public=None, sort_key="memory_mb", sort_dir="desc") == "dacb"
    assert ids(is_public=None, sort_key="memory_mb", marker="b") == "cad"
    assert ids(is_public=None, sort_key="memory_mb", sort_dir="desc", marker="c") == "b"
    assert ids(is_public=None, limit=2, marker="a") == "bc"
    for wrong in ({"marker": "x"}, {"sort_key": "x"}):
        with pytest.raises(BadRequest):
            ids(**wrong)


def test_extra_specs_and_access(api_shared: Database) -> None:
    one = entered(api_shared, flavor(extra_specs={"a": "1", "b": "2"})).flavorid
    api_shared.write(lambda tx: flavors.put_specs(tx, one, {"b": "3", "c": "4"}))
    api_shared.write(lambda tx: flavors.delete_spec(tx, one, "a"))
    api_shared.write(lambda tx: flavors.add_access(tx, one, "p"))
    with api_shared.read() as tx:
        assert flavors.get(tx, one).extra_specs == {"b": "3", "c": "4"}
        assert flavors.access(tx, one) == ["p"]
    refusals: list[tuple[type[Exception], Callable[[Any], object]]] = [
        (NotFound, lambda tx: flavors.delete_spec(tx, one, "a")),
        (Conflict, lambda tx: flavors.add_access(tx, one, "p")),
        (NotFound, lambda tx: flavors.remove_access(tx, one, "q")),
        (FlavorNotFound, lambda tx: flavors.put_specs(tx, fresh(), {"a": "1"})),
    ]
    for kind, refused in refusals:
        with pytest.raises(kind):
            api_shared.write(refused)
    api_shared.write(lambda tx: flavors.remove_access(tx, one, "p"))
    assert api_shared.write(lambda tx: flavors.update_description(tx, one, "new")).description == "new"
    api_shared.write(lambda tx: flavors.delete(tx, one))
    with pytest.raises(FlavorNotFound):
        api_shared.write(lambda tx: flavors.delete(tx, one))


def test_keys(api_shared: Database) -> None:
    user = fresh("u")
    pairs = [
        keypairs.KeyPair(user_id=user, name=name, fingerprint="f", public_key="ssh-rsa A", created_at=NOW)
        for name in ("b", "a", "B")
    ]
    for pair in pairs:
        pair.id = api_shared.write(lambda tx, pair=pair: keypairs.insert(tx, pair)).id  # type: ignore[misc]
    with pytest.raises(Conflict, match="Key pair 'a' already exists"):
        api_shared.write(lambda tx: keypairs.insert(tx, pairs[1]))
    with api_shared.read() as tx:
        assert keypairs.get(tx, user, "b") == pairs[0]
        assert [each.name for each in keypairs.listing(tx, user)] == ["B", "a", "b"]
        assert [each.name for each in keypairs.listing(tx, user, marker="B", limit=1)] == ["a"]
        assert (keypairs.count(tx, user), keypairs.count(tx, fresh("u"))) == (3, 0)
        with pytest.raises(BadRequest, match="marker"):
            keypairs.listing(tx, user, marker="x")
    api_shared.write(lambda tx: keypairs.delete(tx, user, "b"))
    for gone in (keypairs.get, keypairs.delete):
        with pytest.raises(KeyPairNotFound):
            api_shared.write(lambda tx, gone=gone: gone(tx, user, "b"))  # type: ignore[misc]


def test_of_many_who_import_one_key_one_succeeds(api_shared: Database) -> None:
    pair = keypairs.KeyPair(user_id=fresh("u"), name="k", fingerprint="f", public_key="k", created_at=NOW)
    results = race([lambda: api_shared.write(lambda tx: keypairs.insert(tx, pair))] * 5)
    assert sorted(type(each).__name__ for each in results) == ["Conflict"] * 4 + ["KeyPair"]


def test_aggregates(api_shared: Database) -> None:
    name, host, other = fresh("a"), fresh("h"), fresh("h")
    zone = {"availability_zone": fresh("z"), "ssd": "true"}
    one = api_shared.write(lambda tx: aggregates.insert(tx, name, metadata=zone, at=NOW))
    assert (one.name, one.metadata, one.created_at, one.hosts) == (name, zone, NOW, [])
    with pytest.raises(Conflict):
        api_shared.write(lambda tx: aggregates.insert(tx, name))
    api_shared.write(lambda tx: aggregates.add_host(tx, one.id, host))
    assert api_shared.write(lambda tx: aggregates.add_host(tx, one.id, other)).hosts == [host, other]
    with pytest.raises(Conflict):
        api_shared.write(lambda tx: aggregates.add_host(tx, one.id, host))
    assert api_shared.write(lambda tx: aggregates.remove_host(tx, one.id, other)).hosts == [host]
    with pytest.raises(NotFound):
        api_shared.write(lambda tx: aggregates.remove_host(tx, one.id, other))
    with api_shared.read() as tx:
        assert aggregates.zones_by_host(tx)[host] == zone["availability_zone"]
        assert other not in aggregates.zones_by_host(tx)
        assert one.id in [each.id for each in aggregates.listing(tx)]
    changed = api_shared.write(lambda tx: aggregates.put_metadata(tx, one.id, {"ssd": None, "x": "y"}))
    assert changed.metadata == {"availability_zone": zone["availability_zone"], "x": "y"}
    assert changed.updated_at is not None
    assert api_shared.write(lambda tx: aggregates.update(tx, one.id, name=name + "2")).name == name + "2"
    api_shared.write(lambda tx: aggregates.delete(tx, one.id))
    with pytest.raises(AggregateNotFound):
        api_shared.write(lambda tx: aggregates.get(tx, one.id))


def test_server_groups(api_shared: Database) -> None:
    project, members = fresh("p"), [fresh(), fresh()]
    wanted = [
        server_groups.ServerGroup(
            uuid=fresh(), name=name, policy="anti-affinity", project_id=project, user_id="u", created_at=NOW
        )
        for name in ("one", "two")
    ]
    wanted[0].rules = {"max_server_per_host": 2}
    for each in wanted:
        api_shared.write(lambda tx, each=each: server_groups.insert(tx, each))  # type: ignore[misc]
    for _ in range(2):
        api_shared.write(lambda tx: server_groups.add_members(tx, wanted[0].uuid, members))
    wanted[0].members = members
    with api_shared.read() as tx:
        assert server_groups.get(tx, wanted[0].uuid) == wanted[0]
        assert server_groups.listing(tx, project) == wanted
        assert server_groups.listing(tx, project, limit=1, offset=1) == wanted[1:]
        assert server_groups.of_server(tx, members[1]) == wanted[0]
        assert server_groups.of_server(tx, fresh()) is None
        assert server_groups.count(tx, project) == 2
        assert server_groups.count(tx, project, "v") == 0
    api_shared.write(lambda tx: server_groups.remove_member(tx, members[0]))
    with api_shared.read() as tx:
        assert server_groups.get(tx, wanted[0].uuid).members == members[1:]
    api_shared.write(lambda tx: server_groups.delete(tx, wanted[0].uuid))
    for refused in (server_groups.get, server_groups.delete):
        with pytest.raises(NotFound):
            api_shared.write(lambda tx, refused=refused: refused(tx, wanted[0].uuid))  # type: ignore[misc]
    with pytest.raises(NotFound):
        api_shared.write(lambda tx: server_groups.add_members(tx, fresh(), members))


def test_limits(api_shared: Database) -> None:
    project = fresh("p")
    api_shared.write(lambda tx: quotas.put_project(tx, project, {"cores": 5, "ram": -1}))
    api_shared.write(lambda tx: quotas.put_project(tx, project, {"cores": 6}))
    api_shared.write(lambda tx: quotas.put_user(tx, project, "u", {"cores": 1}))
    api_shared.write(lambda tx: quotas.put_class(tx, project, {"cores": 9}))
    with api_shared.read() as tx:
        assert quotas.get_project(tx, project) == {"cores": 6, "ram": -1}
        assert quotas.get_user(tx, project, "u") == {"cores": 1}
        assert quotas.get_class(tx, project) == {"cores": 9}
        assert quotas.get_class(tx, fresh("c")) == {}
    api_shared.write(lambda tx: quotas.delete_user(tx, project, "u"))
    with api_shared.read() as tx:
        assert quotas.get_user(tx, project, "u") == {}
        assert quotas.get_project(tx, project) != {}
    api_shared.write(lambda tx: quotas.delete_project(tx, project))
    with api_shared.read() as tx:
        assert quotas.get_project(tx, project) == {}


def test_request_specs(api_shared: Database) -> None:
    server = fresh()
    for tries in ("a", "b"):
        spec = RequestSpec(project_id="p", user_id="u", flavor=FLAVOR, ignore_hosts=[tries], hints={"group": ["g"]})
        api_shared.write(lambda tx, spec=spec: request_specs.put(tx, server, spec))  # type: ignore[misc]
    with api_shared.read() as tx:
        assert request_specs.get(tx, server) == spec
        assert request_specs.get(tx, fresh()) is None
    assert api_shared.write(lambda tx: request_specs.delete(tx, server))
    assert not api_shared.write(lambda tx: request_specs.delete(tx, server))


def test_decisions_are_bounded_in_number_and_age(api: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    server, old = fresh(), fresh()

    def at(moment: datetime.datetime, subject: str, number: int) -> None:
        monkeypatch.setattr(decisions, "utcnow", lambda: moment)
        why = Why(query=f"q{number}", weights=[("h", 1.5, {"ram": 1.0})])
        api.write(lambda tx: decisions.put(tx, subject, "req-1", why))

    at(after(-40 * 86400), old, 0)
    for number in range(8):
        at(after(number), server, number)
    with api.read() as tx:
        found = decisions.latest(tx, server)
        assert found is not None
        assert (found.query, found.weights) == ("q7", [("h", 1.5, {"ram": 1.0})])
        assert decisions.latest(tx, old) is None
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar() == 5
