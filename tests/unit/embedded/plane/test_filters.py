"""Security group rules as nftables matches, and that nothing a user says gets out of its place."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.embedded.plane import filters
from kilonova.embedded.plane.facts import AddressPair, Rule
from tests.unit.embedded.plane.cloud import GROUP, guest

GROUPS = {GROUP: frozenset({"10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"})}


def text_of(*rules: Rule, **changes: object) -> str:
    port = filters.GuestPort(guest(0, **changes), rules)
    return filters.guest_filters([port], GROUPS, ())


@pytest.mark.parametrize(
    "rule,match",
    [
        (Rule("ingress"), "ether type ip accept"),
        (Rule("ingress", "IPv6"), "ether type ip6 accept"),
        (Rule("ingress", protocol="tcp"), "ether type ip meta l4proto 6 accept"),
        (Rule("ingress", protocol="tcp", port_range_min=22, port_range_max=80), "ether type ip tcp dport 22-80 accept"),
        (Rule("ingress", protocol="17", port_range_min=53, port_range_max=53), "ether type ip udp dport 53-53 accept"),
        (Rule("ingress", protocol="icmp"), "ether type ip meta l4proto 1 accept"),
        (
            Rule("ingress", protocol="icmp", port_range_min=8, port_range_max=0),
            "ether type ip icmp type 8 icmp code 0 accept",
        ),
        (Rule("ingress", "IPv6", "icmp"), "ether type ip6 meta l4proto 58 accept"),
        (Rule("ingress", "IPv6", "ipv6-icmp", 128), "ether type ip6 icmpv6 type 128 accept"),
        (Rule("ingress", protocol="vrrp"), "ether type ip meta l4proto 112 accept"),
        (Rule("ingress", remote_ip_prefix="10.0.0.0/8"), "ether type ip ip saddr 10.0.0.0/8 accept"),
        (Rule("egress", remote_ip_prefix="10.0.0.0/8"), "ether type ip ip daddr 10.0.0.0/8 accept"),
        (Rule("ingress", remote_ip_prefix="0.0.0.0/0", protocol="any"), "ether type ip accept"),
        (Rule("ingress", remote_group_id=GROUP), "ether type ip ip saddr { 10.0.0.1/32, 10.0.0.2/31 } accept"),
        (Rule("ingress", "IPv6", remote_group_id=GROUP), "ether type ip6 ip6 saddr { 2001:db8::1/128 } accept"),
    ],
)
def test_rules(rule: Rule, match: str) -> None:
    without, lines = text_of().splitlines(), text_of(rule).splitlines()
    assert [line for line in lines if line not in without] == [match]


@pytest.mark.parametrize(
    "rule",
    [
        Rule("ingress", remote_group_id="empty"),
        Rule("ingress", remote_ip_prefix="2001:db8::/32"),
        Rule("ingress", remote_address_group_id="unknown kind"),
    ],
)
def test_rules_that_can_match_nothing_open_nothing(rule: Rule) -> None:
    assert text_of(rule) == text_of()


def test_allowed_address_pairs_may_be_used_too() -> None:
    text = text_of(allowed_address_pairs=(AddressPair("10.9.0.0/24", "fa:16:3e:77:77:77"), AddressPair("10.211.0.10")))
    assert "ether saddr != { fa:16:3e:00:01:00, fa:16:3e:77:77:77 } drop" in text
    assert "ip saddr != { 10.9.0.0/24, 10.211.0.10/32 } drop" in text
    open_text = text_of(allowed_address_pairs=(AddressPair("0.0.0.0/0"),))
    assert "ip saddr !=" not in open_text
    assert "arp saddr ip" not in open_text


def test_a_port_that_is_down_or_has_a_strange_mac_is_silent() -> None:
    for text in (text_of(admin_state_up=False), text_of(mac_address="x } accept")):
        assert "sent_11111111_10 {\ndrop\n}" in text


def test_link_local() -> None:
    assert filters.link_local("fa:16:3e:00:01:02") == "fe80::f816:3eff:fe00:102"


rules = st.builds(
    Rule,
    direction=st.sampled_from(["ingress", "egress"]),
    ethertype=st.sampled_from(["IPv4", "IPv6"]),
    protocol=st.one_of(st.none(), st.sampled_from([*filters.PROTOCOLS, "any", "0", "99", "255"])),
    port_range_min=st.one_of(st.none(), st.integers(0, 100)),
    port_range_max=st.one_of(st.none(), st.integers(100, 255)),
    remote_ip_prefix=st.sampled_from([None, "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32"]),
    remote_group_id=st.sampled_from([None, None, GROUP, "empty"]),
)


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft is missing")
@settings(max_examples=25, deadline=None)
@given(wanted=st.lists(rules, max_size=12))
def test_nft_understands_whatever_rules_there_are(wanted: list[Rule]) -> None:
    bodies = {
        "bridge": text_of(*wanted),
        "inet": filters.connection_marks(["brq1", "brq2"], {"brq1": 7}),
        "ip": filters.masquerade(["172.31.4.0/24"], ["brq1", "brq2"]),
    }
    text, _ = filters.rules_text("kn_test", bodies)
    # In a user namespace of its own nobody needs to be root, and nothing is loaded.
    done = subprocess.run(
        ["unshare", "-rn", "nft", "-c", "-f", "-"], input=text, capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr:
        pytest.skip("user namespaces are not allowed here")
    assert done.returncode == 0, done.stderr
