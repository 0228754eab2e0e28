"""Aggregates and the zones they make; server groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from kilonova.api.options import Options, QuotaOptions
from kilonova.store import instance_mappings, server_groups
from tests.api.cloud import OTHER_PROJECT, PROJECT, Cloud


def make(cloud: Cloud, name: str = "a", zone: str | None = None) -> str:
    body = {"aggregate": {"name": name, "availability_zone": zone}}
    return f"/os-aggregates/{cloud.post('/os-aggregates', '2.41', body).body['aggregate']['id']}"


def act(cloud: Cloud, path: str, **action: Any) -> Any:
    return cloud.post(f"{path}/action", "2.41", action)


def test_create_shows_neither_hosts_nor_metadata(cloud: Cloud) -> None:
    made = cloud.post("/os-aggregates", "2.41", {"aggregate": {"name": "a", "availability_zone": "east"}})
    body = made.body["aggregate"]
    assert (made.code, len(body.pop("uuid")), len(body.pop("created_at"))) == (200, 36, 26)
    assert body == {
        "id": 1, "name": "a", "updated_at": None, "deleted_at": None, "deleted": False, "availability_zone": "east"
    }  # fmt: skip
    shown = cloud.get("/os-aggregates/1", "2.40").body["aggregate"]
    assert (shown["hosts"], shown["metadata"], "uuid" in shown) == ([], {"availability_zone": "east"}, False)
    twice = cloud.post("/os-aggregates", "2.1", {"aggregate": {"name": "a"}})
    assert (twice.code, twice.fault) == (409, "Aggregate a already exists.")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("number, code", [("abc", 400), ("1.5", 400), ("99999999999999999999", 400), ("99", 404)])
def test_ids_are_numbers(cloud: Cloud, method: str, number: str, code: int) -> None:
    body = {"aggregate": {"name": "b"}} if method == "PUT" else None
    answer = cloud.ask(method, f"/os-aggregates/{number}", "2.1", body)
    assert answer.code == code
    assert answer.fault == ("id must be an integer" if code == 400 else "Aggregate 99 could not be found.")


@pytest.mark.parametrize(
    "values",
    [{"name": ""}, {"name": " a"}, {"name": "a" * 256}, {"name": None}, {"availability_zone": "a:b"},
     {"availability_zone": ""}, {"availability_zone": 5}, {"hosts": []}],
)  # fmt: skip
def test_bad_aggregates_are_refused_by_name(cloud: Cloud, values: dict[str, Any]) -> None:
    answer = cloud.post("/os-aggregates", "2.1", {"aggregate": {"name": "a"} | values})
    assert (answer.code, next(iter(values)) in answer.fault) == (400, True), answer.body
    assert cloud.get("/os-aggregates").body == {"aggregates": []}


def test_changes(cloud: Cloud) -> None:
    path = make(cloud)
    make(cloud, "taken")
    changed = cloud.put(path, "2.41", {"aggregate": {"name": "b", "availability_zone": "west"}}).body["aggregate"]
    assert (changed["name"], changed["availability_zone"]) == ("b", "west")
    assert cloud.put(path, "2.41", {"aggregate": {"name": "taken"}}).code == 409
    assert cloud.put(path, "2.41", {"aggregate": {}}).code == 400
    metadata = act(cloud, path, set_metadata={"metadata": {"k": "v", "availability_zone": None}}).body["aggregate"]
    assert (metadata["metadata"], metadata["availability_zone"]) == ({"k": "v"}, None)
    for bad in ({"k!": "v"}, {"k": 5}, {"k": "v" * 256}, {"availability_zone": "a:b"}):
        assert act(cloud, path, set_metadata={"metadata": bad}).code == 400
    assert cloud.delete(path).code == 200
    assert cloud.get(path).code == 404


def test_hosts_come_and_go_also_in_placement(cloud: Cloud) -> None:
    node = cloud.add_host("one")
    path = make(cloud)
    added = act(cloud, path, add_host={"host": "one"}).body["aggregate"]
    assert added["hosts"] == ["one"]
    assert cloud.placement.aggregates == {node.uuid: [added["uuid"]]}
    twice = act(cloud, path, add_host={"host": "one"})
    assert (twice.code, twice.fault) == (409, "Aggregate 1 already has host one.")
    unknown = act(cloud, path, add_host={"host": "two"})
    assert (unknown.code, unknown.fault) == (404, "Compute host two could not be found.")
    full = cloud.delete(path)
    assert (full.code, "not empty" in full.fault) == (400, True)
    assert act(cloud, path, remove_host={"host": "one"}).body["aggregate"]["hosts"] == []
    assert cloud.placement.aggregates == {node.uuid: []}
    assert act(cloud, path, remove_host={"host": "one"}).code == 404
    assert act(cloud, path, add_host={"host": "a b"}).code == 400


def test_a_host_is_in_one_zone(cloud: Cloud) -> None:
    cloud.add_host("one")
    east, west, none = make(cloud, "e", "east"), make(cloud, "w", "west"), make(cloud, "n")
    act(cloud, east, add_host={"host": "one"})
    refused = act(cloud, west, add_host={"host": "one"})
    assert (refused.code, "already in availability zone(s) ['east']" in refused.fault) == (409, True)
    assert act(cloud, none, add_host={"host": "one"}).code == 200
    for change in (
        act(cloud, none, set_metadata={"metadata": {"availability_zone": "west"}}),
        cloud.put(none, "2.1", {"aggregate": {"availability_zone": "west"}}),
    ):
        assert (change.code, "already in availability zone(s) ['east']" in change.fault) == (400, True)
    assert act(cloud, none, set_metadata={"metadata": {"availability_zone": "east"}}).code == 200


def test_zones_do_not_change_under_servers(cloud: Cloud) -> None:
    cloud.add_host("one")
    path = make(cloud, zone="east")
    act(cloud, path, add_host={"host": "one"})
    cloud.add_server(host="one", zone="east")
    renamed = cloud.put(path, "2.1", {"aggregate": {"availability_zone": "west"}})
    assert (renamed.code, "contain instances in this zone" in renamed.fault) == (400, True)
    assert act(cloud, path, set_metadata={"metadata": {"availability_zone": "west"}}).code == 400
    assert act(cloud, path, remove_host={"host": "one"}).code == 409
    assert cloud.put(path, "2.1", {"aggregate": {"name": "b"}}).code == 200
    assert cloud.put(path, "2.1", {"aggregate": {"availability_zone": "east"}}).code == 200


def test_only_administrators_have_aggregates(cloud: Cloud) -> None:
    path = make(cloud)
    assert cloud.get("/os-aggregates", who="member").code == 403
    assert cloud.post("/os-aggregates", "2.1", {"aggregate": {"name": "b"}}, who="member").code == 403
    assert cloud.post(f"{path}/action", "2.1", {"add_host": {"host": "x"}}, who="member").code == 403


GROUPS = "/os-server-groups"


def group(cloud: Cloud, version: str = "2.64", *, who: str = "member", **values: Any) -> Any:
    return cloud.post(GROUPS, version, {"server_group": {"name": "g"} | values}, who=who)


def test_groups_by_version(cloud: Cloud) -> None:
    first = group(cloud, "2.1", policies=["affinity"]).body["server_group"]
    assert first == {"id": first["id"], "name": "g", "policies": ["affinity"], "metadata": {}, "members": []}
    owned = first | {"project_id": PROJECT, "user_id": "member-user"}
    newest = {k: v for k, v in owned.items() if k not in ("policies", "metadata")} | {"policy": "affinity", "rules": {}}
    for version, expected in (("2.12", first), ("2.13", owned), ("2.63", owned), ("2.64", newest), ("2.104", newest)):
        path = f"{GROUPS}/{first['id']}"
        assert cloud.get(path, version, who="reader").body == {"server_group": expected}
        assert cloud.get(GROUPS, version, who="reader").body == {"server_groups": [expected]}
    assert cloud.delete(path, who="member").code == 204
    gone = cloud.delete(path, who="member")
    assert (gone.code, gone.fault) == (404, f"Instance group {first['id']} could not be found.")


@pytest.mark.parametrize(
    "version, values",
    [("2.14", {"policies": ["soft-affinity"]}), ("2.1", {"policies": []}), ("2.1", {"policies": ["affinity"] * 2}),
     ("2.1", {"policies": "affinity"}), ("2.1", {}), ("2.1", {"policy": "affinity"}),
     ("2.64", {"policies": ["affinity"]}),
     ("2.64", {"policy": "bogus"}), ("2.64", {"policy": "affinity", "rules": {"bogus": 1}}),
     ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}),
     ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 2}}),
     ("2.64", {"policy": "affinity", "name": ""})],
)  # fmt: skip
def test_bad_groups(cloud: Cloud, version: str, values: dict[str, Any]) -> None:
    assert group(cloud, version, **values).code == 400
    assert cloud.get(GROUPS).body == {"server_groups": []}


def test_good_policies_and_rules(cloud: Cloud) -> None:
    assert group(cloud, "2.15", policies=["soft-affinity"]).code == 200
    made = group(cloud, policy="anti-affinity", rules={"max_server_per_host": "3"}).body["server_group"]
    assert made["rules"] == {"max_server_per_host": 3}


def test_members_are_living_servers(cloud: Cloud) -> None:
    made = group(cloud, policy="affinity").body["server_group"]
    living, dead = cloud.add_server(), cloud.add_server()
    cloud.cells.api.write(lambda tx: server_groups.add_members(tx, made["id"], [living.uuid, dead.uuid, str(uuid4())]))
    cloud.cells.api.write(lambda tx: instance_mappings.mark_deleted(tx, dead.uuid))
    assert cloud.get(f"{GROUPS}/{made['id']}", "2.64").body["server_group"]["members"] == [living.uuid]


def test_groups_of_others(cloud: Cloud) -> None:
    theirs = group(cloud, policy="affinity", who="other").body["server_group"]
    mine = group(cloud, policy="affinity").body["server_group"]
    assert theirs["project_id"] == OTHER_PROJECT
    assert cloud.get(f"{GROUPS}/{theirs['id']}", who="member").code == 403
    assert cloud.delete(f"{GROUPS}/{mine['id']}", who="reader").code == 403
    assert [g["id"] for g in cloud.get(f"{GROUPS}?all_projects=1", who="member").body["server_groups"]] == [mine["id"]]
    assert len(cloud.get(f"{GROUPS}?all_projects=1").body["server_groups"]) == 2
    assert len(cloud.get(f"{GROUPS}?all_projects&limit=1&offset=1").body["server_groups"]) == 1
    assert cloud.get(f"{GROUPS}?limit=a").code == 400
    assert cloud.get(f"{GROUPS}?bogus=1", "2.75").code == 400


def test_quota_of_groups(make_cloud: Callable[..., Cloud]) -> None:
    cloud = make_cloud(dataclasses.replace(Options(), quota=QuotaOptions(server_groups=1)))
    assert group(cloud, policy="affinity").code == 200
    refused = group(cloud, policy="affinity")
    assert (refused.code, refused.fault) == (403, "Quota exceeded, too many server groups.")
    assert cloud.get("/limits").body["limits"]["absolute"]["totalServerGroupsUsed"] == 1
