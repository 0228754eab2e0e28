"""The ordinary clients, as users run them: the ``openstack`` command and openstacksdk."""

from __future__ import annotations

import json
from pathlib import Path

import openstack
import pytest

from tests.functional.cloud import Cloud, User, wait_for


@pytest.mark.timeout(240)
def test_a_server_through_the_openstack_command(cloud: Cloud, tmp_path: Path) -> None:
    run = cloud.openstack
    image = run("image", "list", "-f", "value", "-c", "ID").split()[0]
    key = run("keypair", "create", "cli", "--private-key", str(tmp_path / "key"))
    assert "cli" in key
    assert "PRIVATE KEY" in (tmp_path / "key").read_text()
    words = ["--flavor", "m1.nano", "--image", image, "--network", "private", "--key-name", "cli"]
    made = json.loads(run("server", "create", *words, "--wait", "-f", "json", "cli-1"))
    assert (made["name"], made["status"], made["key_name"]) == ("cli-1", "ACTIVE", "cli")
    assert made["adminPass"]

    listed = json.loads(run("server", "list", "-f", "json"))
    assert [s["Status"] for s in listed if s["Name"] == "cli-1"] == ["ACTIVE"]
    shown = json.loads(run("server", "show", "cli-1", "-f", "json"))
    assert shown["id"] == made["id"]
    assert shown["addresses"]["private"]

    run("server", "stop", "cli-1")
    user = cloud.user()
    user.await_status(made["id"], "SHUTOFF")
    run("server", "start", "cli-1")
    user.await_status(made["id"], "ACTIVE")
    assert run("server", "reboot", "--hard", "--wait", "cli-1").strip() in ("", "Complete")
    assert "login:" in wait_for(lambda: run("console", "log", "show", "cli-1"), what="a console log")

    events = json.loads(run("server", "event", "list", "cli-1", "-f", "json"))
    assert [e["Action"] for e in events] == ["reboot", "start", "stop", "create"]
    shown = json.loads(run("server", "event", "show", "cli-1", events[-1]["Request ID"], "-f", "json"))
    assert shown["action"] == "create"

    run("server", "delete", "--wait", "cli-1")
    assert "cli-1" not in run("server", "list", "-f", "value", "-c", "Name")
    run("keypair", "delete", "cli")
    assert "cli" not in run("keypair", "list", "-f", "value", "-c", "Name").split()


def test_flavors_through_the_openstack_command(cloud: Cloud) -> None:
    def run(*words: str) -> str:
        return cloud.openstack(*words, cloud="kilonova")

    made = json.loads(
        run(*"flavor create cli.flavor --ram 256 --disk 2 --vcpus 2 --property hw:mem_page_size=small -f json".split())
    )
    assert (made["ram"], made["disk"], made["vcpus"]) == (256, 2, 2)
    assert made["properties"] == {"hw:mem_page_size": "small"}
    run("flavor", "set", "cli.flavor", "--property", "hw:cpu_policy=shared")
    shown = json.loads(run("flavor", "show", "cli.flavor", "-f", "json"))
    assert shown["properties"] == {"hw:mem_page_size": "small", "hw:cpu_policy": "shared"}
    run("flavor", "delete", "cli.flavor")
    assert "cli.flavor" not in run("flavor", "list", "--all", "-f", "value", "-c", "Name").split()


def test_a_server_through_openstacksdk(cloud: Cloud) -> None:
    config = openstack.config.OpenStackConfig(config_files=[str(cloud.state / "clouds.yaml")])
    with openstack.connection.Connection(config=config.get_one("kilonova-demo")) as sdk:
        words = {"image": cloud.image, "flavor": "m1.nano", "network": "private"}
        server = sdk.create_server("sdk-1", **words, wait=True, auto_ip=False, timeout=120)
        assert server.status == "ACTIVE"
        assert server.addresses["private"][0]["addr"]
        assert [s.id for s in sdk.compute.servers(name="sdk-1")] == [server.id]
        sdk.compute.set_server_metadata(server, role="web")
        assert sdk.compute.get_server(server.id).metadata == {"role": "web"}
        assert sdk.delete_server(server.id, wait=True, timeout=120)
        assert sdk.compute.find_server("sdk-1") is None


def test_the_kilonova_command_tells_of_a_server(cloud: Cloud, demo: User) -> None:
    server = demo.boot("told")
    state = ["--state-dir", str(cloud.state)]
    why = cloud.kilonova("why", server["id"], *state)
    assert why.returncode == 0, why.stderr
    assert "chosen: host-" in why.stdout
    trace = cloud.kilonova("trace", server["id"], *state)
    assert trace.returncode == 0, trace.stderr
    for step in ("choose_hosts", "plug_ports", "spawn_guest", "set_active"):
        assert step in trace.stdout
    status = cloud.kilonova("status", *state)
    assert status.returncode == 0, status.stdout
    assert "down" not in status.stdout
    demo.delete(server["id"])
