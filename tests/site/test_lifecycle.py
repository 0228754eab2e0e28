"""A server's life on a site whose programs are processes of their own."""

from __future__ import annotations

import hashlib
import hmac

import requests
from openstack.connection import Connection

from tests.site.people import User
from tests.site.site import Site, wait_for


def test_a_server_lives(site: Site, demo: User) -> None:
    compute = demo.connection.compute
    server = demo.boot("whole-life", metadata={"colour": "blue"})
    assert server.addresses["private"][0]["addr"]
    assert [found.id for found in compute.servers(name="whole-life")] == [server.id]
    compute.stop_server(server.id)
    assert demo.settled(server.id).status == "SHUTOFF"
    compute.start_server(server.id)
    assert demo.settled(server.id).status == "ACTIVE"
    for kind in ("SOFT", "HARD"):
        compute.reboot_server(server.id, kind)
        assert demo.settled(server.id).status == "ACTIVE"
    wait_for(lambda: "login" in compute.get_server_console_output(server.id)["output"], what="the guest is up")
    actions = [action.action for action in compute.server_actions(server.id)]
    assert actions == ["reboot", "reboot", "start", "stop", "create"]
    demo.delete(server.id)
    assert not list(compute.servers(name="whole-life"))


def test_the_metadata_service_answers_for_a_server(site: Site, demo: User) -> None:
    server = demo.boot("asks-metadata")
    secret = site.neighbours.credentials.metadata_proxy_shared_secret
    signature = hmac.new(secret.encode(), server.id.encode(), hashlib.sha256).hexdigest()
    headers = {
        "X-Instance-ID": server.id,
        "X-Tenant-ID": server.project_id,
        "X-Instance-ID-Signature": signature,
        "X-Forwarded-For": server.addresses["private"][0]["addr"],
    }
    url = f"http://127.0.0.1:{site.neighbours.ports.metadata}/openstack/latest/meta_data.json"
    answer = requests.get(url, headers=headers, timeout=10)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["uuid"], answer.json()["name"]) == (server.id, "asks-metadata")
    forged = requests.get(url, headers={**headers, "X-Instance-ID-Signature": "0" * 64}, timeout=10)
    assert forged.status_code == 403
    demo.delete(server.id)


def test_what_finds_no_host_is_buried_with_its_reason(site: Site, demo: User, admin: Connection) -> None:
    flavor = admin.compute.create_flavor(name="too-large", ram=64 << 20, vcpus=1, disk=1)
    server = demo.settled(demo.create("unplaceable", flavor_id=flavor.id))
    assert server.status == "ERROR"
    assert "No valid host was found" in server.fault["message"]
    demo.delete(server.id)
    admin.compute.delete_flavor(flavor.id)
