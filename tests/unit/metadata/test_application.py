"""The metadata service over WSGI: who may ask what, the paths, the password, the memory, vendor data."""

import hashlib
import hmac
import json

import falcon.testing
import msgspec
import pytest

from kilonova.core.metadata import InstanceMetadata, Json
from kilonova.metadata.application import Options, make_application
from kilonova.metadata.identity import Memory
from tests.unit.metadata.records import FULL, PROJECT, UUID

SECRET = "shared"


class Servers:
    """One server, found by everything that belongs to it; counts the look-ups."""

    def __init__(self) -> None:
        self.record: InstanceMetadata | None = FULL
        self.lookups = 0
        self.broken = False

    def _give(self, fits: bool) -> InstanceMetadata | None:
        self.lookups += 1
        if self.broken:
            raise RuntimeError("database password is hunter2")
        return self.record if fits else None

    def by_instance_id(self, uuid: str) -> InstanceMetadata | None:
        return self._give(uuid == UUID)

    def by_address(self, address: str) -> InstanceMetadata | None:
        return self._give(address == "10.0.0.5")

    def by_provider(self, provider: str, address: str) -> InstanceMetadata | None:
        return self._give((provider, address) == ("net-1", "10.0.0.5"))

    def save_password(self, uuid: str, text: str) -> bool:
        assert self.record is not None
        if self.record.password:
            return False
        self.record = msgspec.structs.replace(self.record, password=text)
        return True


class Vendor:
    def static(self) -> dict[str, Json]:
        return {"cloud": "x"}

    def dynamic(self, record: InstanceMetadata) -> dict[str, Json]:
        return {"joiner": record.uuid}


def signature(text: str, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


HEADERS = {
    "X-Instance-ID": UUID,
    "X-Tenant-ID": PROJECT,
    "X-Forwarded-For": "10.0.0.5",
    "X-Instance-ID-Signature": signature(UUID),
}


@pytest.fixture
def servers() -> Servers:
    return Servers()


def client(servers: Servers, options: Options | None = None, secret: str = SECRET) -> falcon.testing.TestClient:
    application = make_application(servers, secret, options, vendor=Vendor())
    return falcon.testing.TestClient(application, headers=HEADERS)


OTHER = "11111111-1378-4288-a2d4-70e13ec132aa"


@pytest.mark.parametrize(
    "changes,status",
    [
        ({}, 200),
        ({"X-Instance-ID": ""}, 400),
        ({"X-Tenant-ID": ""}, 400),
        ({"X-Forwarded-For": ""}, 400),
        ({"X-Instance-ID": f"{UUID}, {UUID}"}, 400),
        ({"X-Instance-ID-Signature": ""}, 403),
        ({"X-Instance-ID-Signature": signature(UUID, "other")}, 403),
        ({"X-Instance-ID-Signature": "\u00fc"}, 403),
        ({"X-Instance-ID": OTHER, "X-Instance-ID-Signature": signature(OTHER)}, 404),
        ({"X-Tenant-ID": "other"}, 404),
        ({"X-Metadata-Provider": "net-1", "X-Metadata-Provider-Signature": signature("net-1")}, 200),
        ({"X-Metadata-Provider": "net-1", "X-Metadata-Provider-Signature": "x"}, 403),
        ({"X-Metadata-Provider": "net-2", "X-Metadata-Provider-Signature": signature("net-2")}, 404),
        ({"X-Metadata-Provider": "net-1", "X-Forwarded-For": ""}, 400),
    ],
)
def test_signed_headers(servers: Servers, changes: dict[str, str], status: int) -> None:
    answer = client(servers).simulate_get("/openstack/latest/meta_data.json", headers=HEADERS | changes)
    assert answer.status_code == status
    if status == 200:
        assert answer.json["uuid"] == UUID


def test_an_empty_secret_admits_nobody(servers: Servers) -> None:
    headers = HEADERS | {"X-Instance-ID-Signature": signature(UUID, "")}
    assert client(servers, secret="").simulate_get("/latest/meta-data/", headers=headers).status_code == 403


def test_without_proxy_the_source_address_counts_and_headers_do_not(servers: Servers) -> None:
    direct = client(servers, Options(behind_proxy=False))
    assert direct.simulate_get("/latest/meta-data/instance-id", remote_addr="10.0.0.5").text == "i-0000001a"
    assert direct.simulate_get("/latest/meta-data/instance-id", remote_addr="10.0.0.6").status_code == 404


@pytest.mark.parametrize(
    "path,text",
    [
        (
            "/",
            "1.0\n2007-01-19\n2007-03-01\n2007-08-29\n2007-10-10\n2007-12-15\n2008-02-01\n2008-09-01\n2009-04-04\nlatest",
        ),
        ("/latest", "meta-data/\nuser-data"),
        ("/latest/user-data", "#!/bin/sh\necho hello\n"),
        ("/ec2/2009-04-04/meta-data/hostname", "web-1.novalocal"),
        ("/latest/meta-data/public-keys/", "0=mykey"),
        ("/latest/meta-data/public-keys/0/", "openssh-key"),
        ("/latest/meta-data/public-keys/0/openssh-key", "ssh-ed25519 AAAA me"),
        ("/latest/meta-data/block-device-mapping/", "ami\nroot\nswap"),
        ("/latest/meta-data/placement/availability-zone/", "nova"),
        ("/openstack/2012-08-10/", "meta_data.json\nuser_data"),
        (
            "/openstack/latest/",
            "meta_data.json\nuser_data\npassword\nvendor_data.json\nnetwork_data.json\nvendor_data2.json",
        ),
        ("/openstack/content/0001", "issue"),
        ("/openstack/latest/password", ""),
    ],
)
def test_paths(servers: Servers, path: str, text: str) -> None:
    answer = client(servers).simulate_get(path)
    assert (answer.status_code, answer.text) == (200, text)


def test_meta_data_index_marks_folders(servers: Servers) -> None:
    names = client(servers).simulate_get("/latest/meta-data/").text.split("\n")
    assert names == sorted(names)
    assert {"placement/", "public-keys/", "block-device-mapping/", "hostname"} <= set(names)


@pytest.mark.parametrize(
    "path",
    [
        "/2009-04-05/",
        "/openstack/2012-08-11/meta_data.json",
        "/openstack/2012-08-10/password",
        "/openstack/2013-04-04/vendor_data.json",
        "/openstack/latest/none",
        "/openstack/latest/meta_data.json/more",
        "/openstack/content/0002",
        "/openstack/content",
        "/1.0/meta-data/instance-type",
        "/latest/meta-data/hostname/more",
        "/latest/dynamic",
    ],
)
def test_unknown_paths_are_404(servers: Servers, path: str) -> None:
    assert client(servers).simulate_get(path).status_code == 404


def test_versions_of_the_future_are_hidden_but_served(servers: Servers) -> None:
    past = client(servers, Options(today=lambda: "2016-07-01"))
    assert past.simulate_get("/openstack").text.split("\n")[-2:] == ["2016-06-30", "latest"]
    assert past.simulate_get("/openstack/2018-08-27/meta_data.json").status_code == 200


def test_password_is_stored_once(servers: Servers) -> None:
    guest = client(servers)
    path = "/openstack/2013-04-04/password"
    assert guest.simulate_post(path, body="x" * 1021).status_code == 400
    assert guest.simulate_post(path, body="encrypted").status_code == 200
    assert guest.simulate_get(path).text == "encrypted"
    assert guest.simulate_post(path, body="again").status_code == 409
    assert guest.simulate_post("/openstack/2012-08-10/password", body="x").status_code == 404
    assert guest.simulate_post("/openstack/latest/user_data", body="x").status_code == 405
    assert guest.simulate_delete(path).status_code == 405


def test_vendor_data_is_asked_for_its_documents(servers: Servers) -> None:
    guest = client(servers)
    assert guest.simulate_get("/openstack/latest/vendor_data.json").json == {"cloud": "x"}
    assert guest.simulate_get("/openstack/latest/vendor_data2.json").json == {"static": {"cloud": "x"}, "joiner": UUID}


def test_a_seed_is_never_given_twice(servers: Servers) -> None:
    guest = client(servers)
    seeds = {json.loads(guest.simulate_get("/openstack/latest/meta_data.json").text)["random_seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_records_are_remembered_for_a_while(servers: Servers) -> None:
    guest = client(servers)
    guest.simulate_get("/latest/")
    guest.simulate_get("/openstack/")
    assert servers.lookups == 1

    now = [0.0]
    memory = Memory(15.0, clock=lambda: now[0])
    found: list[InstanceMetadata | None] = [FULL]
    assert memory.get(("k",), lambda: found[0]) is FULL
    found[0] = None
    now[0] = 14.9
    assert memory.get(("k",), lambda: found[0]) is FULL
    now[0] = 15.1
    assert memory.get(("k",), lambda: found[0]) is None


def test_a_failure_is_a_500_that_tells_nothing(servers: Servers) -> None:
    servers.broken = True
    answer = client(servers).simulate_get("/latest/")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
