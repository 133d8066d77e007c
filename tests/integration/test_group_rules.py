"""What the kernel does with packets under a ruleset is what the model says, for groups and packets made at random."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from netlab import Lab, until
from sexton.core import grouprules, nftables, ruleset
from sexton.core.judgement import Packet, judge
from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage, Subnet

TABLE = "sexton-lab"
EXAMPLES = 1000 if os.environ.get("SEXTON_SOAK") else 40
SUBNET = Subnet(
    id="subnet-1",
    vpc="vpc-1",
    cidr="10.213.0.0/20",
    gateway="10.213.0.1",
    vni=7,
    ipv6_cidr="fd00:0:0:1::/64",
    ipv6_gateway="fd00:0:0:1::1",
)
PLACES = {
    "one": ("vt1", "02:00:00:00:00:05", "10.213.0.5", "fd00:0:0:1::5", ""),
    "two": ("vt2", "02:00:00:00:00:06", "10.213.1.6", "fd00:0:0:1::106", ""),
    "far": ("vx0", "02:00:00:00:00:07", "10.213.2.7", "fd00:0:0:1::207", "192.0.2.2"),
}
WORLD = ("198.51.100.9", "2001:db8::9")
DEVICES = {"eni-one": "vt1", "eni-two": "vt2"}
PROTOCOLS = ("tcp", "udp", "icmp", "icmpv6", "47", "-1")
BLOCKS = (
    "0.0.0.0/0", "10.0.0.0/8", "10.213.0.0/20", "10.213.0.0/24", "10.213.0.5/32", "10.213.1.6/32", "10.213.2.0/23",
    "198.51.100.0/24", "::/0", "fd00::/16", "fd00:0:0:1::5/128", "fd00:0:0:1::/120", "2001:db8::/32",
)  # fmt: skip
OUT = Rule(id="sgr-out", protocol="-1", cidr="0.0.0.0/0")
GROUPS = ("sg-a", "sg-b", "sg-c")


@pytest.fixture(scope="module")
def lab():
    with Lab() as made:
        for name, (device, mac, v4, v6, _) in PLACES.items():
            made.wire(name, device, mac, [v4, v6])
        made.wire("world", "up0", "02:00:00:00:00:08", list(WORLD))
        for protocol in (1, 6, 17, 47, 58):
            for place in (*PLACES, "world"):
                for family in (4, 6):
                    if (family, protocol) not in ((4, 58), (6, 1)):
                        made.raw(place, family, protocol, receiving=True)
        yield made


@st.composite
def rules(draw, direction: str) -> tuple[Rule, ...]:
    found = []
    for index in range(draw(st.integers(0, 6))):
        protocol = draw(st.sampled_from(PROTOCOLS))
        first, last = -1, -1
        if protocol in ("tcp", "udp"):
            first = draw(st.integers(78, 90))
            last = draw(st.integers(first, 92))
        elif protocol in ("icmp", "icmpv6"):
            first = draw(st.sampled_from((-1, 8, 128, 13)))
            last = -1 if first == -1 else draw(st.sampled_from((-1, 0, 1)))
        peer = draw(st.sampled_from(BLOCKS + GROUPS))
        found.append(
            Rule(
                id=f"sgr-{direction}{index}", protocol=protocol, from_port=first, to_port=last,
                cidr="" if peer in GROUPS else peer, group=peer if peer in GROUPS else "",
            )
        )  # fmt: skip
    return tuple(found)


@st.composite
def states(draw) -> SextonNetworkMessage:
    groups = tuple(
        Group(
            id=one, vpc="vpc-1", ingress=draw(rules(f"{one}-in")),
            egress=draw(st.one_of(rules(f"{one}-out"), st.just((msgspec.structs.replace(OUT, id=f"sgr-{one}-all"),)))),
        )
        for one in GROUPS
    )  # fmt: skip
    interfaces = tuple(
        Interface(
            id=f"eni-{name}", subnet="subnet-1", mac=mac, ipv4=v4, ipv6=v6, host=host,
            groups=tuple(draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True))),
        )
        for name, (_, mac, v4, v6, host) in PLACES.items()
    )  # fmt: skip
    return SextonNetworkMessage(subnets=(SUBNET,), groups=groups, interfaces=interfaces)


ENDS = {**{name: (v4, v6) for name, (_, _, v4, v6, _) in PLACES.items()}, "world": WORLD}
ROUTES = [(a, b) for a in ENDS for b in ENDS if a != b and {a, b} != {"far", "world"}]
probes = st.lists(
    st.tuples(
        st.sampled_from(ROUTES), st.booleans(), st.sampled_from(("tcp", "udp", "icmp", "47")), st.integers(77, 93),
        st.sampled_from((8, 13)), st.sampled_from((0, 1)),
    ),
    min_size=25, max_size=25,
)  # fmt: skip


class Held:
    """The table that is in force, from example to example: each is put into force as a change of the one before."""

    table: nftables.Table | None = None
    mark = 0


@pytest.mark.timeout(120)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(state=states(), sent=probes, anew=st.booleans())
def test_kernel_and_model_agree(lab, state, sent, anew):
    vpc = grouprules.vpc(state, "vpc-1")
    after = ruleset.table(TABLE, vpc, DEVICES, tunnel="vx0", uplink="up0")
    lab.nft(nftables.whole(after) if anew or Held.table is None else nftables.change(Held.table, after) or "\n")
    Held.table = after
    base = lab.counters(TABLE)
    expected: dict[int, bool] = {}
    where: dict[int, tuple] = {}
    for (source, destination), six, word, port, kind, code in sent:
        Held.mark += 1
        protocol = grouprules.number(word)
        if protocol == 47:  # without ports both directions are one flow, so only one of them is tried
            source, destination = sorted((source, destination), key=list(ENDS).index)
        if protocol == 1:
            protocol, port = (58, grouprules.icmp(128, code)) if six else (1, grouprules.icmp(kind, code))
        flow = Packet(ENDS[source][six], ENDS[destination][six], protocol, port if protocol != 47 else 0)
        expected[Held.mark] = judge(vpc, flow).passes
        where[Held.mark] = (destination, 6 if six else 4, protocol, flow, judge(vpc, flow))
        lab.send(source, flow.source, flow.destination, protocol, port, Held.mark)
    got: set[int] = set()

    def all_told() -> bool:
        for place, family, protocol in {each[:3] for each in where.values()}:
            got.update(mark for mark in lab.received(place, family, protocol) if mark in expected)
        if not {mark for mark, passes in expected.items() if passes} <= got:
            return False
        counted = lab.counters(TABLE)
        refused = sum(counted[each] - base.get(each, 0) for each in counted if each in ("eni-one", "eni-two"))
        return refused >= len(expected) - len(got)

    settled = until(all_told)

    assert not [where[mark] for mark, passes in expected.items() if passes != (mark in got)], msgspec.json.encode(state)
    assert settled


def test_nobody_sends_in_anothers_name(lab):
    """With the address, the hardware address or the device of another, and from outside with one of inside."""
    rule = Rule(id="sgr-all", protocol="-1", cidr="0.0.0.0/0")
    open_group = Group(id="sg-a", vpc="vpc-1", ingress=(rule,), egress=(rule,))
    interfaces = tuple(
        Interface(id=f"eni-{name}", subnet="subnet-1", mac=mac, ipv4=v4, host=host, groups=("sg-a",))
        for name, (_, mac, v4, _, host) in PLACES.items()
    )
    state = SextonNetworkMessage(subnets=(SUBNET,), groups=(open_group,), interfaces=interfaces)
    Held.table = ruleset.table(TABLE, grouprules.vpc(state, "vpc-1"), DEVICES, tunnel="vx0", uplink="up0")
    lab.nft(nftables.whole(Held.table))
    lab.spoof("one", "10.213.1.6")
    lab.spoof("world", "10.213.2.7")
    lab.spoof("far", "198.51.100.9")
    lies = (("one", "10.213.1.6", 900001), ("world", "10.213.2.7", 900002), ("far", "198.51.100.9", 900003))
    for place, source, mark in lies:
        lab.send(place, source, "10.213.0.5" if place != "one" else "198.51.100.9", 17, 80, mark)
    lab.send("world", "198.51.100.9", "10.213.0.5", 17, 80, 900004)
    lab.send("one", "10.213.0.5", "198.51.100.9", 17, 80, 900005)

    got: set[int] = set()
    assert until(
        lambda: got.update(lab.received("one", 4, 17), lab.received("world", 4, 17)) or {900004, 900005} <= got
    )
    assert got & {mark for _, _, mark in lies} == set()
    counted = lab.counters(TABLE)
    assert (counted["eni-one"], counted["outside"], counted["stranger"]) == (1, 1, 1)
