"""What surrounds every operation: versions, faults, headers, the order of checks, policy.

Expectations were seen on the wire of the original.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from falcon import testing

from kilonova.api.application import Served, load_operations, make_application
from kilonova.api.call import Answer, Call, Services
from kilonova.api.identity import Headers, Keystone
from kilonova.api.inputs import NoQuery
from kilonova.api.options import ApiOptions, Options
from kilonova.api.policy import Enforcer
from kilonova.api.rules import RULES
from kilonova.base.body import Body
from kilonova.base.config import load
from kilonova.base.context import Context, current
from kilonova.base.errors import DatabaseUnavailable, NeighbourUnavailable
from kilonova.base.operation import Table, operation

PROJECT = "abcdef0123456789abcdef0123456789"
WHO = {"X-User-Id": "u", "X-Project-Id": PROJECT, "X-Roles": "member"}
BASE = "http://falconframework.org"


class Thing(Body):
    name: str


def make_table() -> Table:
    """Operations that do what tests want, beside the real version document."""
    table = Table()
    for known in load_operations().operations:
        if known.path == "/versions/{id}":
            table.add(known)

    @operation("GET", "/things", rule="@", query=NoQuery, table=table)
    def things(call: Call[None]) -> dict[str, Any]:
        call.authorize()
        return {"links": call.links("things", "1"), "request": current().request_id, "legacy": call.root == "v2"}

    @operation("GET", "/things/late", rule="@", since="2.50", table=table)
    def late(call: Call[None]) -> dict[str, Any]:
        call.authorize()
        return {}

    @operation("POST", "/things", rule="@", body=Thing, success=202, table=table)
    def make(call: Call[Thing]) -> Answer:
        call.authorize()
        return Answer({"name": call.body.name}, headers={"Location": f"{call.link_base}/things/1"})

    @operation("POST", "/things/{thing_id}/action", rule="@", action="go", table=table)
    def go(call: Call[None]) -> None:
        call.authorize()

    @operation("GET", "/things/{thing_id}", rule="os_compute_api:os-hosts:list", table=table)
    def show(call: Call[None]) -> dict[str, Any]:
        match call.params["thing_id"]:
            case "broken":
                raise ZeroDivisionError("secret text")
            case "neighbour":
                raise NeighbourUnavailable(neighbour="image", reason="it is away")
            case "database":
                raise DatabaseUnavailable(where="cell1")
            case "forgotten":
                return {}
        call.authorize()
        return {}

    return table


class Edge:
    """The edge with those operations; ``served`` is what it told of each request."""

    def __init__(self, *, options: Options | None = None, authenticate: Any = None) -> None:
        self.served: list[Served] = []
        options = options or Options()
        parts: dict[str, Any] = dict.fromkeys(
            ("cells", "placement", "neutron", "cinder", "glance", "keystone", "conductor", "compute")
        )
        services = Services(policy=Enforcer(), options=options, **parts)
        self.application = make_application(
            services,
            options,
            authenticate=authenticate or Headers(),
            observe=self.served.append,
            table=make_table(),
        )

    def ask(self, method: str, path: str, *, body: Any = None, who: bool = True, **headers: Any) -> testing.Result:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, str | None) else json.dumps(body)
        return testing.TestClient(self.application).simulate_request(
            method, path, headers={**(WHO if who else {}), **given}, body=content
        )


@pytest.fixture
def edge() -> Edge:
    return Edge()


def test_version_documents(edge: Edge) -> None:
    answer = edge.ask("GET", "/", who=False, OpenStack_API_Version="compute 9.9")
    assert answer.status_code == 200
    assert [version["id"] for version in answer.json["versions"]] == ["v2.0", "v2.1"]
    assert answer.json["versions"][1] == {
        "id": "v2.1", "status": "CURRENT", "version": "2.104", "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z", "links": [{"rel": "self", "href": f"{BASE}/v2.1/"}],
    }  # fmt: skip
    assert "x-compute-request-id" not in answer.headers
    for path in ("/v2.1", "/v2.1/"):
        answer = edge.ask("GET", path, who=False, OpenStack_API_Version="compute latest")
        assert answer.headers["openstack-api-version"] == "compute 2.104"
        assert answer.json["version"]["links"][0] == {"rel": "self", "href": f"{BASE}/v2.1/"}
        kind = "application/vnd.openstack.compute+json;version=2.1"
        assert answer.json["version"]["media-types"] == [{"base": "application/json", "type": kind}]
    old = edge.ask("GET", "/v2/", who=False)
    assert (old.json["version"]["id"], old.json["version"]["version"]) == ("v2.0", "")
    assert "openstack-api-version" not in old.headers
    for path, inner in (("/foo", "foo"), ("/v3/", "v3")):
        answer = edge.ask("GET", path, who=False)
        assert answer.status_code == 300
        assert answer.json["choices"][1]["links"] == [{"rel": "self", "href": f"{BASE}/v2.1/{inner}"}]
    assert edge.ask("GET", "/v2.1/versions/v2.1").json == edge.ask("GET", "/v2.1").json
    assert edge.ask("GET", "/v2.1/versions/v9").status_code == 404


@pytest.mark.parametrize(
    "headers, status, shown",
    [
        ({}, 200, "2.1"),
        ({"OpenStack-API-Version": "compute 2.50"}, 200, "2.50"),
        ({"OpenStack-API-Version": "identity 3.0"}, 200, "2.1"),
        ({"OpenStack-API-Version": "identity 3.0, compute 2.9"}, 200, "2.9"),
        ({"OpenStack-API-Version": "compute latest"}, 200, "2.104"),
        ({"X-OpenStack-Nova-API-Version": "2.7"}, 200, "2.7"),
        ({"X-OpenStack-Nova-API-Version": "2.7", "OpenStack-API-Version": "compute 2.8"}, 200, "2.8"),
        ({"X-OpenStack-Nova-API-Version": "3.0"}, 406, "3.0"),
        ({"X-OpenStack-Nova-API-Version": "2.105"}, 406, "2.105"),
        ({"X-OpenStack-Nova-API-Version": "2.0"}, 406, "2.0"),
        ({"X-OpenStack-Nova-API-Version": "abc"}, 400, None),
        ({"OpenStack-API-Version": "compute 2.01"}, 400, None),
    ],
)
def test_negotiation(edge: Edge, headers: dict[str, Any], status: int, shown: str | None) -> None:
    answer = edge.ask("GET", "/v2.1/things", **{k.replace("-", "_"): v for k, v in headers.items()})
    assert answer.status_code == status
    if shown is None:
        assert "openstack-api-version" not in answer.headers
        assert answer.json["badRequest"]["message"].endswith("Must be of format MajorNum.MinorNum.")
        return
    assert answer.headers["openstack-api-version"] == f"compute {shown}"
    assert answer.headers["x-openstack-nova-api-version"] == shown
    if status == 406:
        text = f"Version {shown} is not supported by the API. Minimum is 2.1 and maximum is 2.104."
        assert answer.json == {"computeFault": {"code": 406, "message": text}}


def test_both_names_of_vary_travel(edge: Edge) -> None:
    seen: list[tuple[str, str]] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        seen.extend(headers)

    environ = testing.create_environ("/v2.1/things", headers=WHO)
    list(edge.application(environ, start_response))
    names = [value for name, value in seen if name.lower() == "vary"]
    assert names == ["OpenStack-API-Version", "X-OpenStack-Nova-API-Version"]


PLAIN_404 = {"message": "The resource could not be found.<br /><br />\n\n\n", "code": "404 Not Found",
             "title": "Not Found"}  # fmt: skip
GENERIC_404 = {"itemNotFound": {"code": 404, "message": "The resource could not be found."}}


def bad(text: str) -> dict[str, Any]:
    return {"badRequest": {"code": 400, "message": text}}


@pytest.mark.parametrize(
    "method, path, headers, body, status, expected",
    [
        ("GET", "/v2.1/nosuch", {}, None, 404, PLAIN_404),
        ("PATCH", "/v2.1/things", {}, None, 404, PLAIN_404),
        ("DELETE", "/v2.1/things", {}, None, 404, PLAIN_404),
        ("GET", "/v2.1/things/", {}, None, 404, PLAIN_404),
        ("GET", "/v2.1/xyz-not-hex/things", {}, None, 404, PLAIN_404),
        ("GET", "/v2.1/nosuch", {"OpenStack_API_Version": "compute 9.9"}, None, 404, PLAIN_404),
        ("GET", "/v2.1/things/late", {}, None, 404, GENERIC_404),
        ("GET", "/v2.1/os-cells", {}, None, 410, {"computeFault": {"code": 410, "message":
         "This resource is no longer available. No forwarding address is given."}}),
        ("POST", "/v2.1/things", {}, "{bad", 400, bad("Malformed request body")),
        ("POST", "/v2.1/things", {"Content_Type": "application/xml"}, "<a/>", 415,
         {"badMediaType": {"code": 415, "message": "Unsupported Content-Type"}}),
        ("GET", "/v2.1/things", {"Content_Type": "application/xml"}, None, 415,
         {"badMediaType": {"code": 415, "message": "Unsupported Content-Type"}}),
        ("POST", "/v2.1/things", {}, None, 400, bad("None is not of type 'object'")),
        ("POST", "/v2.1/things", {}, {}, 400, bad("'name' is a required property")),
        ("POST", "/v2.1/things/x/action", {}, {"nosuch": None}, 400, bad("There is no such action: nosuch")),
        ("POST", "/v2.1/things/x/action", {}, {"a": None, "b": 1}, 400, bad("Malformed request body")),
        ("POST", "/v2.1/things/x/action", {}, None, 400, bad("Malformed request body")),
        ("POST", "/v2.1/things/x/action", {}, [], 400, bad("Malformed request body")),
        ("GET", "/v2.1/ffff0000ffff/things", {}, None, 400, bad(
         f"Malformed request URL: URL's project_id 'ffff0000ffff' doesn't match Context's project_id '{PROJECT}'")),
        ("GET", "/v2.1/things?x=1", {"OpenStack_API_Version": "compute 2.102"}, None, 400,
         bad("Additional properties are not allowed ('x' was unexpected)")),
        ("GET", "/v2.1/things/x", {}, None, 403, {"forbidden": {"code": 403, "message":
         "Policy doesn't allow os_compute_api:os-hosts:list to be performed."}}),
        ("GET", "/v2.1/things/broken", {}, None, 500, {"computeFault": {"code": 500, "message":
         "Unexpected API Error. Please contact the administrator\n<class 'ZeroDivisionError'>"}}),
        ("GET", "/v2.1/things/forgotten", {}, None, 500, {"computeFault": {"code": 500, "message":
         "Unexpected API Error. Please contact the administrator\n<class 'AssertionError'>"}}),
        ("GET", "/v2.1/things/neighbour", {}, None, 503, {"serviceUnavailable": {"code": 503, "message":
         "The image service is unavailable: it is away"}}),
        ("GET", "/v2.1/things/database", {}, None, 503, {"serviceUnavailable": {"code": 503, "message":
         "The database of cell1 is unavailable."}}),
    ],
)  # fmt: skip
def test_faults(
    edge: Edge, method: str, path: str, headers: dict[str, Any], body: Any, status: int, expected: dict[str, Any]
) -> None:
    answer = edge.ask(method, path, body=body, **headers)
    shown = answer.json
    if "class" in str(shown):
        shown["computeFault"]["message"] = shown["computeFault"]["message"].replace("builtins.", "")
    assert (answer.status_code, shown) == (status, expected)
    assert answer.headers["x-compute-request-id"] == answer.headers["x-openstack-request-id"]
    is_fault = expected is not PLAIN_404
    assert answer.headers["content-type"] == ("application/json; charset=UTF-8" if is_fault else "application/json")
    assert ("openstack-api-version" in answer.headers) is is_fault


def test_the_order_of_checks(edge: Edge) -> None:
    """Each request has all the later faults too; the first check that fails answers."""
    wrong: dict[str, Any] = {"OpenStack_API_Version": "compute 9.9", "Content_Type": "application/xml"}
    assert edge.ask("POST", "/v2.1/ffff/nosuch", body="{", who=False, **wrong).status_code == 401
    assert edge.ask("POST", "/v2.1/ffff/nosuch", body="{", **wrong).status_code == 404
    assert edge.ask("POST", "/v2.1/ffff/things", body="{", **wrong).status_code == 406
    del wrong["OpenStack_API_Version"]
    assert edge.ask("POST", "/v2.1/ffff/things", body="{", **wrong).status_code == 415
    assert "Malformed request body" in edge.ask("POST", "/v2.1/ffff/things", body="{").text
    assert "Malformed request URL" in edge.ask("POST", "/v2.1/ffff/things", body="{}").text
    assert "required" in edge.ask("POST", "/v2.1/things", body="{}").text


def test_html_for_who_wants_it(edge: Edge) -> None:
    answer = edge.ask("GET", "/v2.1/nosuch", Accept="text/html")
    assert answer.headers["content-type"] == "text/html; charset=UTF-8"
    assert "<h1>404 Not Found</h1>" in answer.text


def test_bodies_that_are_too_large(edge: Edge) -> None:
    answer = edge.ask("POST", "/v2.1/things", body="x" * 114689)
    assert (answer.status_code, answer.json["title"]) == (413, "Request Entity Too Large")
    assert edge.ask("POST", "/v2.1/things", body="x" * 114688).json == bad("Malformed request body")


def test_request_ids(edge: Edge) -> None:
    known = "req-11111111-2222-3333-4444-555555555555"
    answer = edge.ask("GET", "/v2.1/things", X_OpenStack_Request_ID=known)
    assert answer.json["request"] == answer.headers["x-compute-request-id"] != known


def test_links_and_the_project_in_the_url(edge: Edge) -> None:
    assert edge.ask("GET", "/v2.1/things").json["links"][0]["href"] == f"{BASE}/v2.1/things/1"
    links = edge.ask("GET", f"/v2.1/{PROJECT}/things").json["links"]
    assert [link["href"] for link in links] == [f"{BASE}/v2.1/{PROJECT}/things/1", f"{BASE}/{PROJECT}/things/1"]
    other = Edge(options=Options(api=ApiOptions(compute_link_prefix="https://api.example/compute/")))
    assert other.ask("GET", "/v2.1/things").json["links"][0]["href"] == "https://api.example/compute/v2.1/things/1"


def test_the_legacy_endpoint(edge: Edge) -> None:
    answer = edge.ask("POST", "/v2/things", body={"name": " x ", "unknown": 1}, OpenStack_API_Version="compute 9.9")
    assert (answer.status_code, answer.json) == (202, {"name": "x"})
    assert answer.headers["location"] == f"{BASE}/v2/things/1"
    assert "openstack-api-version" not in answer.headers
    assert edge.ask("POST", "/v2.1/things", body={"name": "x", "unknown": 1}).status_code == 400


def test_requests_are_told_of(edge: Edge) -> None:
    edge.ask("GET", "/v2.1/things/broken")
    edge.ask("GET", "/v2.1/nosuch")
    assert [(s.method, s.route, s.status) for s in edge.served] == [
        ("GET", "/things/{thing_id}", 500),
        ("GET", "", 404),
    ]


def test_no_traceback_reaches_users_but_the_log(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    answer = edge.ask("GET", "/v2.1/things/broken")
    assert "secret text" not in answer.text
    assert "secret text" in caplog.text


def test_without_a_token_keystone_refuses(tmp_path: Any) -> None:
    (tmp_path / "nova.conf").write_text("[keystone_authtoken]\nwww_authenticate_uri = http://keystone.example\n")
    answer = Edge(authenticate=Keystone(load([tmp_path / "nova.conf"]))).ask("GET", "/v2.1/things", who=True)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Keystone uri=")
    assert "x-compute-request-id" in answer.headers


# --- policy


def test_the_rules_are_those_of_the_reference(reference: Any) -> None:
    expected = {rule["name"]: rule for rule in json.loads((reference / "policies.json").read_text())}
    taken = [rule for rule in RULES if not rule.name.startswith("os_compute_api:kilonova:")]
    assert {rule.name for rule in taken} == set(expected)
    for rule in taken:
        known = expected[rule.name]
        assert (rule.check, rule.scoped) == (known["check_str"], known["scope_types"] is not None)
        before = known.get("deprecated_rule")
        assert (rule.before[:2] if rule.before else None) == (before and (before["name"], before["check_str"]))


def test_every_operation_has_a_rule_that_is_declared() -> None:
    known = {rule.name for rule in RULES} | {"@"}
    assert {operation.rule for operation in load_operations().operations} - known == set()


@pytest.mark.parametrize(
    "roles, project, rule, allowed",
    [
        (("reader",), "p", "os_compute_api:servers:index", True),
        (("reader",), "q", "os_compute_api:servers:show", False),
        (("reader",), "p", "os_compute_api:servers:create", False),
        (("member",), "p", "os_compute_api:servers:create", True),
        (("admin",), "q", "os_compute_api:servers:create", True),
        (("member",), "p", "os_compute_api:os-migrate-server:migrate", False),
        (("manager",), "p", "os_compute_api:os-migrate-server:migrate", True),
        (("service",), "q", "os_compute_api:os-server-external-events:create", True),
        (("admin",), "p", "compute:servers:resize:cross_cell", False),
        (("member",), "p", "os_compute_api:nosuch", False),
    ],
)
def test_defaults(roles: tuple[str, ...], project: str, rule: str, allowed: bool) -> None:
    context = Context(user_id="u", project_id="p", roles=roles)
    assert Enforcer().allows(rule, context, {"project_id": project, "user_id": "u"}) is allowed


def test_system_scoped_tokens_are_refused() -> None:
    context = Context(user_id="u", system_scope="all", roles=("admin",))
    assert not Enforcer().allows("os_compute_api:servers:index", context, {"project_id": "p"})


def test_an_operators_policy_file_counts(tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('"os_compute_api:servers:create": "!"\n')
    (tmp_path / "nova.conf").write_text(f"[oslo_policy]\npolicy_file = {file}\n")
    enforcer = Enforcer(load([tmp_path / "nova.conf"]))
    context = Context(user_id="u", project_id="p", roles=("member", "reader"))
    assert not enforcer.allows("os_compute_api:servers:create", context, {"project_id": "p"})
    assert enforcer.allows("os_compute_api:servers:index", context, {"project_id": "p"})
