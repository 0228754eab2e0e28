"""Quotas of projects, users and classes, and the limits that clients see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.cloud import NO_PROJECT, OTHER_PROJECT, PROJECT, Cloud

SETS = f"/os-quota-sets/{PROJECT}"
COUNTED = {
    "cores": 20, "instances": 10, "key_pairs": 100, "metadata_items": 128, "ram": 51200, "server_group_members": 10,
    "server_groups": 10,
}  # fmt: skip
FILES = {"injected_file_content_bytes": 10240, "injected_file_path_bytes": 255, "injected_files": 5}
NETWORK = {"fixed_ips": -1, "floating_ips": -1, "security_group_rules": -1, "security_groups": -1}


@pytest.mark.parametrize(
    "version, expected",
    [("2.35", COUNTED | FILES | NETWORK), ("2.36", COUNTED | FILES), ("2.56", COUNTED | FILES), ("2.57", COUNTED)],
)
def test_defaults_by_version(cloud: Cloud, version: str, expected: dict[str, int]) -> None:
    named = {"quota_set": {"id": PROJECT, **expected}}
    assert cloud.get(SETS, version, who="reader").body == named
    assert cloud.get(f"{SETS}/defaults", version, who="other").body == named
    detail = cloud.get(f"{SETS}/detail", version).body["quota_set"]
    assert detail.pop("id") == PROJECT
    assert detail == {name: {"limit": limit, "in_use": 0, "reserved": 0} for name, limit in expected.items()}


def test_limits_are_set_and_forgotten(cloud: Cloud) -> None:
    changed = cloud.put(SETS, "2.57", {"quota_set": {"cores": "7", "ram": -1}})
    assert changed.body == {"quota_set": COUNTED | {"cores": 7, "ram": -1}}
    assert cloud.get(SETS, "2.57").body["quota_set"]["cores"] == 7
    assert cloud.get(f"{SETS}/defaults", "2.57").body["quota_set"]["cores"] == 20
    assert cloud.get(f"/os-quota-sets/{OTHER_PROJECT}", "2.57").body["quota_set"]["cores"] == 20
    assert cloud.delete(SETS).code == 202
    assert cloud.get(SETS, "2.57").body["quota_set"]["cores"] == 20


def test_users_have_their_own_within_the_projects(cloud: Cloud) -> None:
    user = f"{SETS}?user_id=member-user"
    assert cloud.put(user, "2.57", {"quota_set": {"cores": 5}}).body["quota_set"]["cores"] == 5
    assert cloud.get(user, "2.57").body["quota_set"]["cores"] == 5
    assert cloud.get(SETS, "2.57").body["quota_set"]["cores"] == 20
    above = cloud.put(user, "2.57", {"quota_set": {"cores": 21}})
    assert (above.code, above.fault) == (400, "Quota limit 21 for cores must be less than or equal to 20.")
    assert cloud.put(user, "2.57", {"quota_set": {"cores": 21, "force": True}}).code == 200
    assert cloud.delete(user, "2.57").code == 202
    assert cloud.get(user, "2.57").body["quota_set"]["cores"] == 20


@pytest.mark.parametrize("version", ["2.1", "2.36", "2.104"])
def test_force_goes_below_what_is_used(cloud: Cloud, version: str) -> None:
    cloud.add_server()
    low = cloud.put(SETS, version, {"quota_set": {"cores": 1}})
    assert low.code == 400
    assert low.fault == "Quota limit 1 for cores must be greater than or equal to already used and reserved 2."
    assert cloud.put(SETS, version, {"quota_set": {"cores": 1, "force": "True"}}).code == 200
    assert cloud.get(f"{SETS}/detail", version).body["quota_set"]["cores"] == {"limit": 1, "in_use": 2, "reserved": 0}


def test_unknown_projects_are_400(cloud: Cloud) -> None:
    for method, path in (("GET", ""), ("GET", "/detail"), ("GET", "/defaults"), ("PUT", "")):
        answer = cloud.ask(
            method, f"/os-quota-sets/{NO_PROJECT}{path}", "2.57", {"quota_set": {}} if method == "PUT" else None
        )
        assert (answer.code, answer.fault) == (400, f"Project ID {NO_PROJECT} is not a valid project."), path


def test_who_may(cloud: Cloud) -> None:
    assert cloud.get(SETS, who="other").code == 403
    assert cloud.put(SETS, "2.57", {"quota_set": {}}, who="member").code == 403
    assert cloud.delete(SETS, who="member").code == 403
    assert cloud.get("/os-quota-class-sets/default", who="member").code == 403


@pytest.mark.parametrize(
    "values, version",
    [({"cores": -2}, "2.1"), ({"cores": "a"}, "2.1"), ({"cores": 2147483648}, "2.1"), ({"cores": None}, "2.1"),
     ({"cores": 1.5}, "2.1"), ({"bogus": 1}, "2.1"), ({"floating_ips": 1}, "2.36"), ({"injected_files": 1}, "2.57"),
     ({"force": "maybe"}, "2.57"), ({"cores": []}, "2.57")],
)  # fmt: skip
def test_bad_limits_are_refused_by_name(cloud: Cloud, values: dict[str, Any], version: str) -> None:
    answer = cloud.put(SETS, version, {"quota_set": values})
    assert (answer.code, next(iter(values)) in answer.fault) == (400, True), answer.body
    assert cloud.get(SETS, "2.57").body["quota_set"] == {"id": PROJECT, **COUNTED}


def test_network_limits_are_taken_and_count_nothing(cloud: Cloud) -> None:
    assert cloud.put(SETS, "2.35", {"quota_set": {"floating_ips": 9}}).body["quota_set"]["floating_ips"] == -1


GROUPS = ("server_groups", "server_group_members")


def test_classes(cloud: Cloud) -> None:
    path = "/os-quota-class-sets/default"
    early = {name: limit for name, limit in (COUNTED | FILES | NETWORK).items() if name not in GROUPS}
    assert cloud.get(path, "2.49").body == {"quota_class_set": {"id": "default", **early}}
    assert cloud.get(path, "2.50").body == {"quota_class_set": {"id": "default", **COUNTED, **FILES}}
    assert cloud.get(path, "2.57").body == {"quota_class_set": {"id": "default", **COUNTED}}
    assert cloud.put(path, "2.57", {"quota_class_set": {"cores": 3}}).body == {
        "quota_class_set": COUNTED | {"cores": 3}
    }
    assert cloud.get(f"{SETS}/defaults", "2.57").body["quota_set"]["cores"] == 3
    assert cloud.get(SETS, "2.57").body["quota_set"]["cores"] == 3
    assert cloud.put(path, "2.49", {"quota_class_set": {"floating_ips": 3}}).code == 200
    assert cloud.put(path, "2.50", {"quota_class_set": {"floating_ips": 3}}).code == 400


ABSOLUTE = {
    "maxTotalCores": 20, "maxTotalInstances": 10, "maxTotalKeypairs": 100, "maxServerMeta": 128,
    "maxTotalRAMSize": 51200, "maxServerGroups": 10, "maxServerGroupMembers": 10, "totalRAMUsed": 0,
    "totalCoresUsed": 0, "totalInstancesUsed": 0, "totalServerGroupsUsed": 0,
}  # fmt: skip
PERSONALITY = {"maxPersonality": 5, "maxPersonalitySize": 10240}
NETWORK_ABSOLUTE = {
    "maxTotalFloatingIps": -1, "maxSecurityGroups": -1, "maxSecurityGroupRules": -1, "totalFloatingIpsUsed": 0,
    "totalSecurityGroupsUsed": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "version, expected",
    [
        ("2.35", ABSOLUTE | PERSONALITY | NETWORK_ABSOLUTE | {"maxImageMeta": 128}),
        ("2.38", ABSOLUTE | PERSONALITY | {"maxImageMeta": 128}),
        ("2.56", ABSOLUTE | PERSONALITY),
        ("2.57", ABSOLUTE),
    ],
)
def test_limits_by_version(cloud: Cloud, version: str, expected: dict[str, int]) -> None:
    assert cloud.get("/limits", version, who="reader").body == {"limits": {"rate": [], "absolute": expected}}


def test_limits_count_the_projects_own_servers(cloud: Cloud) -> None:
    cloud.add_server()
    cloud.add_server()
    cloud.add_server(project_id=OTHER_PROJECT)
    absolute = cloud.get("/limits", who="member").body["limits"]["absolute"]
    assert (absolute["totalInstancesUsed"], absolute["totalCoresUsed"], absolute["totalRAMUsed"]) == (2, 4, 512)
    others = cloud.get(f"/limits?tenant_id={OTHER_PROJECT}").body["limits"]["absolute"]
    assert others["totalInstancesUsed"] == 1
    refused = cloud.get(f"/limits?tenant_id={OTHER_PROJECT}", who="member")
    assert (refused.code, "os_compute_api:limits:other_project" in refused.fault) == (403, True)
    assert cloud.get("/limits?bogus=1", "2.75").code == 400
