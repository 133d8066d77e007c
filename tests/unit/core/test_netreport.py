"""Why a packet passes or does not, in words, from whatever a person calls the two ends."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core import netreport
from sexton.core.netreport import NotUnderstood, Target, target
from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage, Subnet

OUT = (Rule(id="sgr-out", protocol="-1", cidr="0.0.0.0/0"),)
WEB = Group(
    id="sg-web",
    name="web",
    vpc="vpc-1",
    egress=OUT,
    ingress=(
        Rule(id="sgr-80", protocol="tcp", from_port=80, to_port=81, cidr="10.0.0.0/8"),
        Rule(id="sgr-ping", protocol="icmp", from_port=8, to_port=-1, cidr="0.0.0.0/0"),
        Rule(id="sgr-6", protocol="icmpv6", cidr="::/0"),
    ),
)
DB = Group(id="sg-db", vpc="vpc-1", egress=())
STATE = SextonNetworkMessage(
    subnets=(
        Subnet(id="subnet-1", vpc="vpc-1", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=1, ipv6_cidr="fd00::/64"),
        Subnet(id="subnet-2", vpc="vpc-2", cidr="10.9.0.0/24", gateway="10.9.0.1", vni=2),
    ),
    groups=(WEB, DB),
    interfaces=(
        Interface(
            id="eni-web", subnet="subnet-1", mac="02:0", ipv4="10.0.0.5", ipv6="fd00::5", groups=("sg-web",),
            task_arn="arn:aws:ecs:us-east-1:1:task/default/abc123",
        ),
        Interface(
            id="eni-db", subnet="subnet-1", mac="02:1", ipv4="10.0.0.6", groups=("sg-db", "sg-web"),
            task_arn="arn:aws:ecs:us-east-1:1:task/default/ab4456",
        ),
        Interface(id="eni-shut", subnet="subnet-1", mac="02:3", ipv4="10.0.0.8", groups=("sg-db",)),
        Interface(id="eni-far", subnet="subnet-1", mac="02:4", ipv4="10.0.0.7", groups=("sg-x",), host="192.0.2.2"),
        Interface(id="eni-other", subnet="subnet-2", mac="02:5", ipv4="10.9.0.5", groups=()),
    ),
)  # fmt: skip


def why(source, aim):
    return netreport.why(STATE, source, target(aim))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10.0.0.5:80", Target("10.0.0.5", 6, 80)),
        ("abc:53/udp", Target("abc", 17, 53)),
        ("[fd00::5]:443", Target("fd00::5", 6, 443)),
        ("10.0.0.5:icmp", Target("10.0.0.5", 1, 0)),
        ("[fd00::5]:icmp", Target("fd00::5", 1, 0)),
        ("eni-web:80/tcp", Target("eni-web", 6, 80)),
    ],
)
def test_targets(text, wanted):
    assert target(text) == wanted


@pytest.mark.parametrize("text", ["10.0.0.5", "", ":80", "a:http", "a:80/sctp", "a:70000", "fd00::5"])
def test_what_is_no_target(text):
    with pytest.raises(NotUnderstood, match=r"^cannot "):
        why("10.0.0.6", text)


def test_the_rule_that_allows_is_named():
    found = why("ab4", "abc:80")

    assert (found.passes, found.rules) == (True, ("sgr-out", "sgr-80"))
    assert found.headline == "passes: tcp 80 from 10.0.0.6 to 10.0.0.5"
    assert found.sentences == (
        "out of task ab4456 (10.0.0.6): allowed by sgr-out of sg-web (web): everything to 0.0.0.0/0",
        "into task abc123 (10.0.0.5): allowed by sgr-80 of sg-web (web): tcp 80-81 from 10.0.0.0/8",
    )


def test_what_drops_is_named():
    found = why("198.51.100.7", "10.0.0.5:80")

    assert found.passes is False
    assert found.headline == "dropped: tcp 80 from 198.51.100.7 never reaches task abc123 (10.0.0.5)"
    assert found.sentences == (
        "into task abc123 (10.0.0.5): dropped: none of the 3 ingress rules of sg-web (web) allows tcp 80 from "
        "198.51.100.7",
    )
    assert "never leaves eni-shut" in why("eni-shut", "abc:80").headline


def test_a_ping_in_either_protocol():
    assert why("198.51.100.7", "abc:icmp").passes is True
    assert why("fd00::9", "[fd00::5]:icmp").rules == ("sgr-6",)


def test_another_hosts_judgement_is_not_guessed():
    found = why("abc", "10.0.0.7:80")

    assert found.passes is None
    assert found.headline == "undecided here: tcp 80 from 10.0.0.5 to 10.0.0.7"
    assert "judged on its host, 192.0.2.2" in found.sentences[1]


def test_with_its_groups_known_it_is_judged_wherever_it_is():
    known = msgspec.structs.replace(STATE, groups=(*STATE.groups, Group(id="sg-x", vpc="vpc-1")))

    assert netreport.why(known, "abc", target("10.0.0.7:80")).passes is False


def test_two_vpcs_are_two_worlds():
    found = why("abc", "10.9.0.5:80")

    assert found.passes is False
    assert "vpc-1 and vpc-2 are different VPCs" in found.headline


@pytest.mark.parametrize(
    ("source", "aim", "words"),
    [
        ("ab", "10.0.0.5:80", "which of 2 tasks 'ab' is"),
        ("nobody", "10.0.0.5:80", "cannot find 'nobody'"),
        ("192.0.2.1", "192.0.2.2:80", "neither 192.0.2.1 nor 192.0.2.2 is an interface"),
        ("10.0.0.6", "[fd00::5]:80", "one end is an IPv4 address"),
        ("ab4", "[fd00::5]:80", "has no IPv6 address"),
    ],
)
def test_what_cannot_be_judged_says_why(source, aim, words):
    with pytest.raises(NotUnderstood, match=words):
        why(source, aim)
