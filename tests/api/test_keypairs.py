"""Key pairs: import, generation, owners, pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.api.options import Options, QuotaOptions
from kilonova.core.keypair import generate_x509
from tests.api.cloud import Cloud
from tests.unit.core.test_keypair import ED25519, RSA


def make(cloud: Cloud, version: str = "2.1", *, who: str = "member", **values: Any) -> dict[str, Any]:
    answer = cloud.post("/os-keypairs", version, {"keypair": {"name": "k1"} | values}, who=who)
    assert answer.code in (200, 201), answer.body
    made: dict[str, Any] = answer.body["keypair"]
    return made


def test_import_shows_no_private_key(cloud: Cloud) -> None:
    made = make(cloud, public_key=RSA)
    assert made == {
        "name": "k1",
        "public_key": RSA,
        "fingerprint": "1e:2c:9b:56:79:4b:45:77:f9:ca:7a:98:2c:b0:d5:3c",
        "user_id": "member-user",
    }


def test_codes_and_type_change_at_2_2(cloud: Cloud) -> None:
    body = {"keypair": {"name": "k1", "public_key": ED25519}}
    assert cloud.post("/os-keypairs", "2.1", body).code == 200
    assert cloud.delete("/os-keypairs/k1", "2.1").code == 202
    new = cloud.post("/os-keypairs", "2.2", body)
    assert (new.code, new.body["keypair"]["type"]) == (201, "ssh")
    assert "type" not in cloud.get("/os-keypairs", "2.1").body["keypairs"][0]["keypair"]
    assert cloud.delete("/os-keypairs/k1", "2.2").code == 204
    gone = cloud.delete("/os-keypairs/k1", "2.2")
    assert (gone.code, gone.fault) == (404, "Keypair k1 not found for user admin-user")
    assert cloud.post("/os-keypairs", "2.1", {"keypair": {"name": "k1", "type": "ssh"}}).code == 400


def test_show_has_everything_kept(cloud: Cloud) -> None:
    make(cloud, "2.2", public_key=RSA)
    shown = cloud.get("/os-keypairs/k1", "2.10", who="member").body["keypair"]
    assert set(shown) == {
        "name", "public_key", "fingerprint", "type", "user_id", "id", "created_at", "updated_at", "deleted",
        "deleted_at",
    }  # fmt: skip
    assert cloud.get("/os-keypairs/k1", who="other").code == 404


def test_generation_ends_at_2_92(cloud: Cloud) -> None:
    made = make(cloud, "2.91")
    assert made["private_key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert "private_key" not in cloud.get("/os-keypairs/k1", "2.91", who="member").body["keypair"]
    certificate = make(cloud, "2.2", name="win", type="x509")
    assert certificate["public_key"].startswith("-----BEGIN CERTIFICATE-----")
    refused = cloud.post("/os-keypairs", "2.92", {"keypair": {"name": "k2"}})
    assert (refused.code, "public_key" in refused.fault) == (400, True)


def test_certificates_are_imported(cloud: Cloud) -> None:
    text = generate_x509("me").public_key
    assert make(cloud, "2.2", type="x509", public_key=text)["public_key"] == text
    bad = cloud.post("/os-keypairs", "2.2", {"keypair": {"name": "k2", "type": "x509", "public_key": RSA}})
    assert (bad.code, bad.fault.startswith("Keypair data is invalid: failed to generate X509 fingerprint")) == (
        400,
        True,
    )


def test_wider_names_since_2_92(cloud: Cloud) -> None:
    body = {"keypair": {"name": "me@here.org", "public_key": RSA}}
    assert cloud.post("/os-keypairs", "2.91", body).code == 400
    assert cloud.post("/os-keypairs", "2.92", body).body["keypair"]["name"] == "me@here.org"
    assert cloud.delete("/os-keypairs/me@here.org", "2.92").code == 204


@pytest.mark.parametrize(
    "values",
    [{"name": ""}, {"name": " a"}, {"name": "a/b"}, {"name": "a" * 256}, {"name": 1}, {"name": None}, {"public_key": 1},
     {"type": "rsa"}, {"type": None}, {"user_id": 1}, {"bogus": 1}],
)  # fmt: skip
def test_bad_bodies_are_refused_by_name(cloud: Cloud, values: dict[str, Any]) -> None:
    answer = cloud.post("/os-keypairs", "2.10", {"keypair": {"name": "k1", "public_key": RSA} | values})
    assert (answer.code, next(iter(values)) in answer.fault) == (400, True), answer.body
    assert cloud.get("/os-keypairs").body == {"keypairs": []}


def test_bad_keys_and_duplicates(cloud: Cloud) -> None:
    bad = cloud.post("/os-keypairs", "2.1", {"keypair": {"name": "k1", "public_key": "garbage"}})
    assert (bad.code, bad.fault) == (400, "Keypair data is invalid: failed to generate fingerprint")
    make(cloud, public_key=RSA, who="admin")
    twice = cloud.post("/os-keypairs", "2.1", {"keypair": {"name": "k1", "public_key": RSA}})
    assert (twice.code, twice.fault) == (409, "Key pair 'k1' already exists.")


def test_administrators_act_for_others_since_2_10(cloud: Cloud) -> None:
    make(cloud, "2.10", who="admin", public_key=RSA, user_id="member-user")
    assert cloud.get("/os-keypairs/k1", "2.1", who="member").code == 200
    assert cloud.get("/os-keypairs/k1?user_id=member-user", "2.9").code == 404
    assert cloud.get("/os-keypairs/k1?user_id=member-user", "2.10").code == 200
    assert len(cloud.get("/os-keypairs?user_id=member-user", "2.10").body["keypairs"]) == 1
    assert cloud.get("/os-keypairs/k1?user_id=member-user", "2.10", who="other").code == 403
    assert cloud.delete("/os-keypairs/k1?user_id=member-user", "2.10", who="other").code == 403
    assert cloud.delete("/os-keypairs/k1?user_id=member-user", "2.10").code == 204
    assert cloud.get("/os-keypairs", "2.1", who="member").body == {"keypairs": []}


def test_pages_since_2_35(cloud: Cloud) -> None:
    for name in "bac":
        make(cloud, name=name, public_key=RSA, who="admin")
    page = cloud.get("/os-keypairs?limit=2", "2.35").body
    assert [pair["keypair"]["name"] for pair in page["keypairs"]] == ["a", "b"]
    assert page["keypairs_links"][0]["href"].endswith("/os-keypairs?limit=2&marker=b")
    assert [p["keypair"]["name"] for p in cloud.get("/os-keypairs?limit=2&marker=b", "2.35").body["keypairs"]] == ["c"]
    unknown = cloud.get("/os-keypairs?marker=zzz", "2.35")
    assert (unknown.code, unknown.fault) == (400, "marker [zzz] not found")
    assert len(cloud.get("/os-keypairs?limit=2", "2.34").body["keypairs"]) == 3
    assert cloud.get("/os-keypairs?bogus=2", "2.75").code == 400


def test_quota_ends_it(make_cloud: Callable[..., Cloud]) -> None:
    cloud = make_cloud(dataclasses.replace(Options(), quota=QuotaOptions(key_pairs=1)))
    make(cloud, public_key=RSA)
    refused = cloud.post("/os-keypairs", "2.1", {"keypair": {"name": "k2", "public_key": RSA}}, who="member")
    assert (refused.code, refused.fault) == (403, "Quota exceeded, too many key pairs.")
    assert make(cloud, public_key=RSA, who="other")["name"] == "k1"
