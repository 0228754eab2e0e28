"""The reader of Neutron's REST API, against answers as Neutron gives them."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

from kilonova.embedded.plane.facts import FixedIp, Gateway, RestFacts, Rule

ANSWERS: dict[str, list[dict[str, object]]] = {
    "networks": [{"id": "n", "mtu": 1450, "router:external": True, "name": "ignored"}],
    "subnets": [
        {"id": "s", "network_id": "n", "cidr": "10.0.0.0/24", "ip_version": 4, "gateway_ip": None, "enable_dhcp": True}
    ],
    "ports": [
        {
            "id": "p",
            "network_id": "n",
            "mac_address": "fa:16:3e:00:00:01",
            "device_owner": "compute:nova",
            "binding:host_id": "here",
            "fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.5"}],
            "allowed_address_pairs": [{"ip_address": "10.0.0.9", "mac_address": "fa:16:3e:00:00:01"}],
            "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}],
        }
    ],
    "routers": [
        {"id": "r1", "external_gateway_info": None, "routes": []},
        {
            "id": "r2",
            "external_gateway_info": {
                "network_id": "n",
                "enable_snat": False,
                "external_fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.7"}],
            },
        },
    ],
    "floatingips": [{"id": "f", "floating_ip_address": "10.0.0.8", "fixed_ip_address": None, "port_id": None}],
    "security_groups": [
        {"id": "g", "security_group_rules": [{"direction": "ingress", "ethertype": "IPv4", "protocol": None}]}
    ],
}


class Answer:
    def __init__(self, body: object) -> None:
        self.content = json.dumps(body).encode()


class Session:
    def __init__(self, answers: dict[str, list[dict[str, object]]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.sent: list[tuple[str, str, object]] = []

    def get(self, url: str, **options: object) -> Answer:
        self.asked.append(url)
        name = urlsplit(url).path.rpartition("/")[2].replace("-", "_")
        return Answer({name: self.answers[name]})

    def post(self, url: str, **options: object) -> Answer:
        self.sent.append(("POST", url, options["json"]))
        return Answer({})

    def put(self, url: str, **options: object) -> Answer:
        self.sent.append(("PUT", url, options["json"]))
        return Answer({})


def test_facts_are_read() -> None:
    session = Session(ANSWERS)
    facts = RestFacts(session).read()
    assert facts.networks[0].external
    (port,) = facts.ports
    assert (port.host, port.is_guests, port.tap) == ("here", True, "tapp")
    assert port.fixed_ips == (FixedIp("s", "10.0.0.5"),)
    assert facts.routers[0].external_gateway_info is None
    assert facts.routers[1].external_gateway_info == Gateway("n", False, (FixedIp("s", "10.0.0.7"),))
    assert facts.security_groups[0].rules == (Rule("ingress"),)
    assert facts.floating_ips[0].port_id is None
    assert len(session.asked) == 6
    fields = parse_qs(urlsplit(next(url for url in session.asked if "/ports?" in url)).query)["fields"]
    assert {"binding:host_id", "fixed_ips", "security_groups", "device_owner"} <= set(fields)


def test_a_dhcp_port_is_made_once_and_then_extended() -> None:
    session = Session(ANSWERS | {"ports": []})
    RestFacts(session).reserve_dhcp_port("n", ["s"], "here")
    ((method, url, body),) = session.sent
    assert (method, url) == ("POST", "/v2.0/ports")
    assert isinstance(body, dict)
    assert body["port"]["device_owner"] == "network:dhcp"
    assert body["port"]["fixed_ips"] == [{"subnet_id": "s"}]

    kept = {"subnet_id": "s", "ip_address": "10.0.0.2"}
    session = Session(ANSWERS | {"ports": [{"id": "d", "fixed_ips": [kept]}]})
    RestFacts(session).reserve_dhcp_port("n", ["s", "t"], "here")
    assert session.sent == [("PUT", "/v2.0/ports/d", {"port": {"fixed_ips": [kept, {"subnet_id": "t"}]}})]
