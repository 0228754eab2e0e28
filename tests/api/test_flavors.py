"""Flavors, their access and extra specs, on both sides of every version that changes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.api.options import ApiOptions, Options
from tests.api.cloud import NO_PROJECT, OTHER_PROJECT, PROJECT, Cloud

NEW = {"name": "m1.x", "ram": 512, "vcpus": 1, "disk": 1, "id": "x1"}


def make(cloud: Cloud, **changes: Any) -> dict[str, Any]:
    answer = cloud.post("/flavors", "2.1", {"flavor": NEW | changes})
    assert answer.code == 200, answer.body
    flavor: dict[str, Any] = answer.body["flavor"]
    return flavor


def test_show_has_the_keys_of_each_version(cloud: Cloud) -> None:
    make(cloud)
    links = [
        {"rel": "self", "href": "http://falconframework.org/v2.1/flavors/x1"},
        {"rel": "bookmark", "href": "http://falconframework.org/flavors/x1"},
    ]
    first = {
        "id": "x1", "name": "m1.x", "ram": 512, "disk": 1, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": False, "vcpus": 1, "os-flavor-access:is_public": True, "rxtx_factor": 1.0,
        "links": links,
    }  # fmt: skip
    described = first | {"description": None}
    full = described | {"extra_specs": {}}
    newest = {k: v for k, v in full.items() if k not in ("OS-FLV-DISABLED:disabled", "rxtx_factor")} | {"swap": 0}
    for version, expected in {
        "2.1": first, "2.54": first, "2.55": described, "2.60": described, "2.61": full, "2.74": full,
        "2.75": full | {"swap": 0}, "2.101": full | {"swap": 0}, "2.102": newest, "2.104": newest,
    }.items():  # fmt: skip
        assert cloud.get("/flavors/x1", version).body == {"flavor": expected}, version


def test_list_is_brief_and_sorted(cloud: Cloud) -> None:
    for number in ("3", "1", "2"):
        make(cloud, id=number, name=f"f{number}", ram=int(number) * 100)
    found = cloud.get("/flavors", "2.1").body["flavors"]
    assert [flavor["id"] for flavor in found] == ["1", "2", "3"]
    assert set(found[0]) == {"id", "name", "links"}
    assert set(cloud.get("/flavors", "2.55").body["flavors"][0]) == {"id", "name", "links", "description"}
    newest = cloud.get("/flavors/detail?sort_key=memory_mb&sort_dir=desc&minRam=200", "2.104").body["flavors"]
    assert [flavor["ram"] for flavor in newest] == [300, 200]


def test_pages_link_on_until_an_empty_one(cloud: Cloud) -> None:
    make(cloud)
    make(cloud, id="x2", name="second")
    page = cloud.get("/flavors?limit=1", "2.1").body
    assert [flavor["id"] for flavor in page["flavors"]] == ["x1"]
    assert page["flavors_links"] == [
        {"rel": "next", "href": "http://falconframework.org/v2.1/flavors?limit=1&marker=x1"}
    ]
    assert cloud.get("/flavors?limit=1&marker=x1").body["flavors_links"][0]["href"].endswith("marker=x2")
    assert cloud.get("/flavors?limit=1&marker=x2").body == {"flavors": []}
    assert cloud.get("/flavors?limit=0").body == {"flavors": []}


def test_max_limit_ends_a_page(make_cloud: Callable[..., Cloud]) -> None:
    options = Options()
    cloud = make_cloud(dataclasses.replace(options, api=ApiOptions(max_limit=1)))
    make(cloud)
    make(cloud, id="x2", name="second")
    assert len(cloud.get("/flavors?limit=5").body["flavors"]) == 1


@pytest.mark.parametrize(
    "query, version, text",
    [
        ("marker=zzz", "2.1", "marker [zzz] not found"),
        ("limit=-1", "2.1", "limit"),
        ("limit=a", "2.104", "limit"),
        ("minRam=a", "2.1", "Invalid min_ram filter [a]"),
        ("minDisk=a", "2.1", "Invalid minDisk filter [a]"),
        ("is_public=a", "2.1", "Invalid is_public filter [a]"),
        ("sort_key=projects", "2.1", "sort_key"),
        ("sort_dir=up", "2.1", "sort_dir"),
        ("sort_key=rxtx_factor", "2.102", "rxtx_factor"),
        ("bogus=1", "2.75", "Additional properties are not allowed ('bogus' was unexpected)"),
        ("name=x", "2.101", "Additional properties are not allowed ('name' was unexpected)"),
    ],
)
def test_bad_queries_say_what_is_wrong(cloud: Cloud, query: str, version: str, text: str) -> None:
    answer = cloud.get(f"/flavors?{query}", version)
    assert (answer.code, text in answer.fault) == (400, True), answer.body


def test_older_versions_pass_over_unknown_parameters(cloud: Cloud) -> None:
    make(cloud)
    for query, version in (("bogus=1", "2.74"), ("sort_key=rxtx_factor", "2.101"), ("name=m1.x", "2.102")):
        assert len(cloud.get(f"/flavors?{query}", version).body["flavors"]) == 1
    assert cloud.get("/flavors?name=other", "2.102").body == {"flavors": []}


@pytest.mark.parametrize(
    "change",
    [
        {"ram": 2147483648}, {"ram": 0}, {"ram": "a"}, {"ram": True}, {"vcpus": 2147483648}, {"vcpus": -1},
        {"disk": 2147483648}, {"swap": 2147483648}, {"swap": None}, {"OS-FLV-EXT-DATA:ephemeral": 2147483648},
        {"rxtx_factor": 3.5e38}, {"rxtx_factor": 0}, {"rxtx_factor": "x"}, {"name": ""}, {"name": " a"},
        {"name": "a" * 256}, {"name": 5}, {"id": ""}, {"id": "a/b"}, {"id": True}, {"id": "a" * 256},
        {"os-flavor-access:is_public": "maybe"}, {"bogus": 1}, {"description": "too early"}, {"ram": "9" * 5000},
    ],
)  # fmt: skip
def test_bad_flavors_are_refused_by_name(cloud: Cloud, change: dict[str, Any]) -> None:
    answer = cloud.post("/flavors", "2.1", {"flavor": NEW | change})
    assert answer.code == 400
    assert next(iter(change)) in answer.fault
    assert cloud.get("/flavors").body == {"flavors": []}


@pytest.mark.parametrize("body", [None, {}, {"flavor": []}, [], {"flavor": {"name": "a"}}, {"flavor": NEW, "x": 1}])
def test_bad_forms_are_refused(cloud: Cloud, body: Any) -> None:
    assert cloud.post("/flavors", "2.1", body).code == 400


def test_spans_of_attributes(cloud: Cloud) -> None:
    assert cloud.post("/flavors", "2.102", {"flavor": NEW | {"rxtx_factor": 1.0}}).code == 400
    answer = cloud.post("/flavors", "2.55", {"flavor": NEW | {"description": "d", "rxtx_factor": "2.5"}})
    assert (answer.body["flavor"]["description"], answer.body["flavor"]["rxtx_factor"]) == ("d", 2.5)
    assert cloud.put("/flavors/x1", "2.54", {"flavor": {"description": "e"}}).code == 404
    assert cloud.put("/flavors/x1", "2.55", {"flavor": {"description": None}}).body["flavor"]["description"] is None
    assert cloud.put("/flavors/nosuch", "2.55", {"flavor": {"description": None}}).code == 404


def test_ids_may_be_numbers_or_left_out(cloud: Cloud) -> None:
    assert make(cloud, id=7)["id"] == "7"
    assert len(make(cloud, id=None, name="n2")["id"]) == 36


def test_names_and_ids_are_unique(cloud: Cloud) -> None:
    make(cloud)
    same_id = cloud.post("/flavors", "2.1", {"flavor": NEW | {"name": "n"}})
    assert (same_id.code, same_id.fault) == (409, "Flavor with ID x1 already exists.")
    same_name = cloud.post("/flavors", "2.1", {"flavor": NEW | {"id": "n"}})
    assert (same_name.code, same_name.fault) == (409, "Flavor with name m1.x already exists.")


def test_delete(cloud: Cloud) -> None:
    make(cloud)
    assert cloud.delete("/flavors/x1").code == 202
    again = cloud.delete("/flavors/x1")
    assert (again.code, again.fault) == (404, "Flavor x1 could not be found.")


def test_only_administrators_manage(cloud: Cloud) -> None:
    make(cloud)
    refused = cloud.post("/flavors", "2.1", {"flavor": NEW}, who="member")
    assert refused.code == 403
    assert refused.fault == "Policy doesn't allow os_compute_api:os-flavor-manage:create to be performed."
    assert cloud.delete("/flavors/x1", who="member").code == 403
    assert cloud.put("/flavors/x1", "2.55", {"flavor": {"description": None}}, who="member").code == 403
    assert cloud.post("/flavors/x1/os-extra_specs", "2.1", {"extra_specs": {}}, who="member").code == 403
    assert cloud.get("/flavors/x1/os-flavor-access", who="member").code == 403
    assert cloud.get("/flavors/x1", who="reader").code == 200


def test_private_flavors_are_seen_by_those_who_may(cloud: Cloud) -> None:
    make(cloud, **{"os-flavor-access:is_public": False})
    action = "/flavors/x1/action"
    assert cloud.get("/flavors/x1", who="other").code == 404
    assert cloud.get("/flavors", who="other").body == {"flavors": []}
    added = cloud.post(action, "2.7", {"addTenantAccess": {"tenant": OTHER_PROJECT}})
    assert added.body == {"flavor_access": [{"flavor_id": "x1", "tenant_id": OTHER_PROJECT}]}
    assert cloud.get("/flavors/x1", who="other").code == 200
    assert len(cloud.get("/flavors", who="other").body["flavors"]) == 1
    assert cloud.get("/flavors", who="member").body == {"flavors": []}
    assert len(cloud.get("/flavors?is_public=none").body["flavors"]) == 1
    assert len(cloud.get("/flavors?is_public=False").body["flavors"]) == 1
    assert cloud.get("/flavors?is_public=None", who="member").body == {"flavors": []}
    twice = cloud.post(action, "2.7", {"addTenantAccess": {"tenant": OTHER_PROJECT}})
    assert (twice.code, "already exists" in twice.fault) == (409, True)
    assert cloud.post(action, "2.1", {"removeTenantAccess": {"tenant": OTHER_PROJECT}}).body == {"flavor_access": []}
    gone = cloud.post(action, "2.1", {"removeTenantAccess": {"tenant": NO_PROJECT}})
    assert (gone.code, gone.fault) == (404, f"Flavor access not found for x1 / {NO_PROJECT} combination.")


def test_access_to_public_flavors_and_for_nobody(cloud: Cloud) -> None:
    make(cloud)
    listed = cloud.get("/flavors/x1/os-flavor-access")
    assert (listed.code, listed.fault) == (404, "Access list not available for public flavors.")
    add = {"addTenantAccess": {"tenant": PROJECT}}
    assert cloud.post("/flavors/x1/action", "2.6", add).code == 200
    refused = cloud.post("/flavors/x1/action", "2.7", add)
    assert (refused.code, refused.fault) == (409, "Can not add access to a public flavor.")
    nobody = cloud.post("/flavors/x1/action", "2.1", {"addTenantAccess": {"tenant": NO_PROJECT}})
    assert (nobody.code, nobody.fault) == (400, f"Project ID {NO_PROJECT} is not a valid project.")
    assert cloud.post("/flavors/x1/action", "2.1", {"addTenantAccess": {"tenant": ""}}).code == 400
    assert cloud.post("/flavors/x1/action", "2.1", {"noSuchAction": {}}).code == 400


def test_extra_specs_come_change_and_go(cloud: Cloud) -> None:
    make(cloud)
    specs = "/flavors/x1/os-extra_specs"
    body = {"extra_specs": {"hw:cpu_policy": "dedicated", "n": 5}}
    assert cloud.post(specs, "2.1", body).body == body
    assert cloud.get(specs).body == {"extra_specs": {"hw:cpu_policy": "dedicated", "n": "5"}}
    assert cloud.get("/flavors/x1", "2.61", who="reader").body["flavor"]["extra_specs"]["n"] == "5"
    assert cloud.put(f"{specs}/n", "2.1", {"n": "6"}).body == {"n": "6"}
    assert cloud.get(f"{specs}/n").body == {"n": "6"}
    assert cloud.delete(f"{specs}/n").code == 200
    missing = cloud.get(f"{specs}/n")
    assert (missing.code, missing.fault) == (404, "Flavor x1 has no extra specs with key n.")
    assert cloud.delete(f"{specs}/n").code == 404
    assert cloud.get("/flavors/none/os-extra_specs").code == 404


@pytest.mark.parametrize(
    "body", [{"a": "b"}, {"n": "1", "a": "b"}, {}, {"n": None}, {"n": True}, {"n": "a" * 256}, {"n!": "1"}, None, [1]]
)
def test_bad_single_specs(cloud: Cloud, body: Any) -> None:
    make(cloud)
    assert cloud.put("/flavors/x1/os-extra_specs/n", "2.1", body).code == 400


def test_known_specs_are_checked_since_2_86(cloud: Cloud) -> None:
    make(cloud)
    specs = "/flavors/x1/os-extra_specs"
    for name, value, text in (
        ("hw:bad", "1", "Validation failed; extra spec 'hw:bad' does not appear to be a valid extra spec."),
        ("hw:cpu_policy", "x", "Validation failed; 'x' is not one of: dedicated, shared, mixed."),
    ):
        refused = cloud.post(specs, "2.86", {"extra_specs": {name: value}})
        assert (refused.code, refused.fault) == (400, text)
        assert cloud.put(f"{specs}/{name}", "2.86", {name: value}).code == 400
        assert cloud.post(specs, "2.85", {"extra_specs": {name: value}}).code == 200
