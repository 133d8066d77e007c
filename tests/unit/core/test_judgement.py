"""What becomes of a packet: the groups of both ends, and only where they are."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core import grouprules
from sexton.core.grouprules import icmp
from sexton.core.judgement import EGRESS, INGRESS, Matched, Packet, judge
from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage, Subnet

SUBNET = Subnet(id="subnet-1", vpc="vpc-1", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=1)
OUT = (Rule(id="sgr-out", protocol="-1", cidr="0.0.0.0/0"),)
WEB = Group(
    id="sg-web", vpc="vpc-1", egress=OUT,
    ingress=(
        Rule(id="sgr-80", protocol="tcp", from_port=80, to_port=81, cidr="0.0.0.0/0"),
        Rule(id="sgr-ping", protocol="icmp", from_port=8, to_port=-1, group="sg-friends"),
        Rule(id="sgr-six", protocol="6", from_port=90, to_port=90, cidr="fd00::/64"),
    ),
)  # fmt: skip
FRIENDS = Group(id="sg-friends", vpc="vpc-1", egress=OUT)
HERE = Interface(id="eni-here", subnet="subnet-1", mac="02:0", ipv4="10.0.0.5", ipv6="fd00::5", groups=("sg-web",))
PEER = Interface(id="eni-peer", subnet="subnet-1", mac="02:1", ipv4="10.0.0.6", groups=("sg-friends",))
FAR = Interface(id="eni-far", subnet="subnet-1", mac="02:2", ipv4="10.0.0.7", groups=("sg-friends",), host="192.0.2.2")
VPC = grouprules.vpc(
    SextonNetworkMessage(subnets=(SUBNET,), groups=(WEB, FRIENDS), interfaces=(HERE, PEER, FAR)), "vpc-1"
)


@pytest.mark.parametrize(
    ("packet", "passes"),
    [
        (Packet("10.0.0.6", "10.0.0.5", 6, 80), True),
        (Packet("10.0.0.6", "10.0.0.5", 6, 81), True),
        (Packet("10.0.0.6", "10.0.0.5", 6, 82), False),
        (Packet("10.0.0.6", "10.0.0.5", 17, 80), False),
        (Packet("198.51.100.1", "10.0.0.5", 6, 80), True),
        (Packet("10.0.0.6", "10.0.0.5", 1, icmp(8, 3)), True),
        (Packet("10.0.0.6", "10.0.0.5", 1, icmp(13)), False),
        (Packet("10.0.0.7", "10.0.0.5", 1, icmp(8)), True),
        (Packet("198.51.100.1", "10.0.0.5", 1, icmp(8)), False),
        (Packet("fd00::9", "fd00::5", 6, 90), True),
        (Packet("fd00:0:0:1::9", "fd00::5", 6, 90), False),
        (Packet("10.0.0.5", "10.0.0.6", 6, 80), False),
        (Packet("10.0.0.5", "198.51.100.1", 6, 80), True),
        (Packet("fd00::5", "2001:db8::1", 6, 80), False),
        (Packet("fd00::5", "169.254.170.2", 6, 80), True),
    ],
)
def test_passes_as_the_groups_say(packet, passes):
    assert judge(VPC, packet).passes is passes


def test_both_sides_say_which_rules_allow():
    found = judge(VPC, Packet("10.0.0.6", "10.0.0.5", 6, 80))

    assert [(side.direction, side.interface.id, side.rules) for side in found.sides] == [
        (EGRESS, "eni-peer", (Matched("sg-friends", "sgr-out"),)),
        (INGRESS, "eni-here", (Matched("sg-web", "sgr-80"),)),
    ]


def test_another_hosts_side_is_not_guessed():
    found = judge(VPC, Packet("10.0.0.5", "10.0.0.7", 6, 80))

    assert found.passes
    assert [one.id for one in found.elsewhere] == ["eni-far"]
    assert [side.direction for side in found.sides] == [EGRESS]


def test_a_group_that_is_not_known_allows_nothing():
    lost = msgspec.structs.replace(HERE, groups=("sg-gone",))
    state = SextonNetworkMessage(subnets=(SUBNET,), groups=(), interfaces=(lost,))

    assert not judge(grouprules.vpc(state, "vpc-1"), Packet("10.0.0.6", "10.0.0.5", 6, 80)).passes
