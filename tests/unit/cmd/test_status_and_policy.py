"""nova-status and nova-policy: reference/services.md, sections 8 and 9."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from kilonova.base.errors import NeighbourUnavailable
from kilonova.clients.fakes.neighbours import fake_neighbours
from kilonova.cmd import nova_policy, nova_status
from kilonova.contracts import GENERATION
from kilonova.core.host import Node
from kilonova.store import nodes, services
from tests.unit.cmd.conftest import Site


class _Status:
    """Checks of a site whose Placement is in memory."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.neighbours = fake_neighbours()
        monkeypatch.setattr(nova_status, "connect", lambda options: self.neighbours)

    def check(self) -> tuple[int, dict[str, str], str]:
        ran = self.site.run(nova_status.cli, "upgrade", "check")
        lines = [line.strip("| ") for line in ran.out.splitlines()]
        names = [line.removeprefix("Check: ") for line in lines if line.startswith("Check: ")]
        results = [line.removeprefix("Result: ") for line in lines if line.startswith("Result: ")]
        return ran.code, dict(zip(names, results, strict=True)), " ".join(lines)

    def join(self, binary: str, host: str, version: int = GENERATION) -> None:
        self.site.cells.database(self.site.cell).write(lambda tx: services.ensure(tx, binary, host, version))


@pytest.fixture
def status(site: Site, monkeypatch: pytest.MonkeyPatch) -> _Status:
    return _Status(site, monkeypatch)


def test_all_is_well(status: _Status) -> None:
    status.join("nova-conductor", "control")
    status.join("nova-compute", "h1")
    code, results, _ = status.check()
    assert code == 0
    assert set(results.values()) == {"Success"}
    assert {"Cells v2", "Placement API", "Policy File JSON to YAML Migration"} <= results.keys()


def test_a_conductor_on_a_hypervisor_is_a_warning_with_its_reason(status: _Status) -> None:
    status.join("nova-conductor", "both")
    status.join("nova-compute", "both")
    code, results, text = status.check()
    assert code == 1
    assert results["Conductors Away From Hypervisors"] == "Warning"
    assert "together on both" in text
    assert "passwords" in text


def test_hosts_that_are_not_mapped_are_a_warning(status: _Status) -> None:
    for host in ("h1", "h2"):
        node = Node(uuid=str(uuid.uuid4()), name=host, host=host, hypervisor_type="fake")
        status.site.cells.database(status.site.cell).write(lambda tx, node=node: nodes.upsert(tx, node))
    assert status.check()[1]["Cells v2"] == "Failure"  # none is mapped at all
    status.site.cells.map_host("h1", status.site.cell)
    code, results, text = status.check()
    assert (code, results["Cells v2"]) == (1, "Warning")
    assert "Not mapped to a cell: h2" in text


def test_older_services_are_a_warning(status: _Status) -> None:
    status.join("nova-compute", "old", GENERATION - 1)
    code, results, text = status.check()
    assert (code, results["Older Services"]) == (1, "Warning")
    assert "nova-compute on old" in text


def test_placement_that_cannot_be_asked_is_a_failure(status: _Status) -> None:
    status.neighbours.placement.orders.fail(
        "candidates", error=NeighbourUnavailable(neighbour="placement", reason="it answered 406")
    )
    code, results, text = status.check()
    assert (code, results["Placement API"]) == (2, "Failure")
    assert "406" in text


def test_nothing_set_up_is_a_failure_and_no_traceback(fresh: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    code, results, text = _Status(fresh, monkeypatch).check()
    assert (code, results["Database Schemas"], results["Cells v2"]) == (2, "Failure", "Failure")
    assert "api_db sync" in text
    fresh.manage("api_db", "sync")
    assert "map_cell0" in _Status(fresh, monkeypatch).check()[2]
    fresh.conf.write_text("[oslo_policy]\npolicy_file = policy.json\n[service_user]\nsend_service_user_token = false\n")
    _, results, text = _Status(fresh, monkeypatch).check()
    assert results["Policy File JSON to YAML Migration"] == results["Service User Token Configuration"] == "Failure"
    assert "[api_database] connection is not set" in text


def _policy(site: Site, *arguments: str) -> tuple[int, set[str]]:
    ran = site.run(nova_policy.cli, *arguments)
    return ran.code, set(ran.out.splitlines())


def test_policy_check_against_the_defaults(site: Site, reference: Path) -> None:
    rules = {rule["name"] for rule in json.loads((reference / "policies.json").read_text())}
    admin = ("--os-roles", "admin,member,reader", "--os-project-id", "p", "--os-user-id", "u")
    member = ("--os-roles", "member,reader", "--os-tenant-id", "p", "--os-user-id", "u")
    code, everything = _policy(site, *admin, "policy", "check")
    assert code == 0
    assert {name for name in everything if ":kilonova:" not in name} <= rules
    assert "os_compute_api:servers:create:forced_host" in everything
    _, own = _policy(site, *member, "policy", "check", "--api-name", "os_compute_api:servers:")
    assert "os_compute_api:servers:create" in own
    assert "os_compute_api:servers:create:forced_host" not in own
    _, others = _policy(site, *member, "policy", "check", "--api-name", "servers:", "--target", "project_id=other")
    assert others == {"No rules matched or all rules failed"}


def test_policy_files_count(site: Site) -> None:
    (site.folder / "policy.yaml").write_text('"os_compute_api:servers:create": "role:builder"\n')
    site.write_conf(f"[oslo_policy]\npolicy_file = {site.folder}/policy.yaml")
    asked = ("policy", "check", "--api-name", "os_compute_api:servers:create")
    assert "os_compute_api:servers:create" in _policy(site, "--os-roles", "builder", *asked)[1]
    assert "os_compute_api:servers:create" not in _policy(site, "--os-roles", "member", *asked)[1]


def test_policy_targets(site: Site) -> None:
    for bad in ("colour=red", "project_id"):
        assert _policy(site, "policy", "check", "--target", bad)[0] == 2
    assert _policy(site, "policy", "check", "--target", "instance_id=unknown")[0] == 1


def test_policy_list_and_help(site: Site) -> None:
    code, lines = _policy(site, "policy", "list", "--api-name", "servers:create:forced_host")
    assert code == 0
    assert any("os_compute_api:servers:create:forced_host" in line for line in lines)
    assert _policy(site)[0] == _policy(site, "policy")[0] == 2
