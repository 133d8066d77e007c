"""Faults of the network: what requests say, and the rules that come of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import fault
from sexton.core.fault import BadFault, Fault, Kind, Place, read

PLACE = Place("0123456789ab", "f" * 32)
PORT = {"Port": 80, "Protocol": "tcp", "TrafficType": "egress"}
LATE = {"DelayMilliseconds": 100, "JitterMilliseconds": 10, "Sources": ["10.0.0.0/8"]}
LOSS = {"LossPercent": 10, "Sources": ["10.0.0.1"]}


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (Kind.BLACKHOLE, None, "required request body is missing"),
        (Kind.BLACKHOLE, {}, "required parameter Port is missing"),
        (Kind.BLACKHOLE, {"Port": 80}, "required parameter Protocol is missing"),
        (Kind.BLACKHOLE, {"Port": 80, "Protocol": "tcp"}, "required parameter TrafficType is missing"),
        (Kind.BLACKHOLE, PORT | {"Port": 65536}, "invalid value 65536 for parameter Port"),
        (Kind.BLACKHOLE, PORT | {"Port": 0}, "invalid value 0 for parameter Port"),
        (Kind.BLACKHOLE, PORT | {"Port": "80"}, "invalid value 80 for parameter Port"),
        (Kind.BLACKHOLE, PORT | {"Port": True}, "invalid value True for parameter Port"),
        (Kind.BLACKHOLE, PORT | {"Protocol": "icmp"}, "invalid value icmp for parameter Protocol"),
        (Kind.BLACKHOLE, PORT | {"Protocol": "tcp dport 22 drop"}, "invalid value tcp dport 22 drop for parameter"),
        (Kind.BLACKHOLE, PORT | {"TrafficType": "both"}, "invalid value both for parameter TrafficType"),
        (
            Kind.BLACKHOLE,
            PORT | {"SourcesToFilter": ["x; drop"]},
            "invalid value x; drop for parameter SourcesToFilter",
        ),
        (
            Kind.BLACKHOLE,
            PORT | {"SourcesToFilter": "10.0.0.1"},
            "invalid value 10.0.0.1 for parameter SourcesToFilter",
        ),
        (Kind.LATENCY, None, "required request body is missing"),
        (Kind.LATENCY, {}, "required parameter DelayMilliseconds is missing"),
        (Kind.LATENCY, {"DelayMilliseconds": 1}, "required parameter JitterMilliseconds is missing"),
        (
            Kind.LATENCY,
            LATE | {"DelayMilliseconds": 0, "JitterMilliseconds": 0},
            "required either DelayMilliseconds or JitterMilliseconds to be non-zero",
        ),
        (Kind.LATENCY, LATE | {"DelayMilliseconds": -1}, "invalid value -1 for parameter DelayMilliseconds"),
        (Kind.LATENCY, LATE | {"Sources": []}, "required parameter Sources is missing"),
        (Kind.LATENCY, LATE | {"Sources": [5]}, "invalid value 5 for parameter Sources"),
        (Kind.LATENCY, LATE | {"FlowsPercent": 0}, "invalid value 0 for parameter FlowsPercent"),
        (Kind.LOSS, {"Sources": ["10.0.0.1"]}, "required parameter LossPercent is missing"),
        (Kind.LOSS, LOSS | {"LossPercent": 101}, "invalid value 101 for parameter LossPercent"),
        (Kind.LOSS, LOSS | {"LossPercent": 1.5}, "invalid value 1.5 for parameter LossPercent"),
        (Kind.LOSS, {"LossPercent": 5}, "required parameter Sources is missing"),
    ],
)
def test_a_request_that_says_what_cannot_be_is_refused_in_the_words_of_amazons_agent(kind, body, said):
    with pytest.raises(BadFault) as refused:
        read(kind, body, start=True)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("kind", [Kind.LATENCY, Kind.LOSS])
def test_to_end_latency_or_loss_nothing_need_be_said(kind):
    assert read(kind, None, start=False) == Fault(kind)
    assert read(kind, {"what": "ever"}, start=False) == Fault(kind)


def test_a_port_must_be_said_to_end_it_too():
    with pytest.raises(BadFault, match="required request body is missing"):
        read(Kind.BLACKHOLE, None, start=False)
    assert read(Kind.BLACKHOLE, PORT, start=False).name == "egress-tcp-80"


def test_a_port_is_blocked_but_for_the_spared_and_never_for_the_endpoint():
    wanted = read(Kind.BLACKHOLE, PORT | {"SourcesToFilter": ["10.1.2.3/8", "::1", "10.0.0.1"]}, start=True)
    assert fault.rules(PLACE, wanted, ()) == (
        f"table inet sexton-fault-0123456789ab-{'f' * 32}-egress-tcp-80\n"
        f"delete table inet sexton-fault-0123456789ab-{'f' * 32}-egress-tcp-80\n"
        f"table inet sexton-fault-0123456789ab-{'f' * 32}-egress-tcp-80 {{\n"
        "chain faults {\n"
        "type filter hook output priority -5; policy accept;\n"
        "ct original ip daddr 169.254.170.2 accept\n"
        "ip daddr { 10.0.0.0/8 } accept\n"
        "ip6 daddr { ::1/128 } accept\n"
        "tcp dport 80 counter drop\n"
        "}\n}\n"
    )
    incoming = fault.rules(PLACE, wanted._replace(traffic="ingress"), ())
    assert "hook input" in incoming and "ip saddr { 10.0.0.0/8 } accept" in incoming


def test_loss_and_latency_hit_some_flows_at_every_interface():
    lost = fault.rules(PLACE, read(Kind.LOSS, LOSS | {"FlowsPercent": 20}, start=True), ("eth0", "eth1"))
    assert lost.count("type filter hook egress device") == 2
    assert (
        "ip daddr { 10.0.0.1/32 } jhash ip saddr . ip daddr . @th,0,32 mod 100 seed 0x5e78 < 20 "
        "numgen random mod 100 < 10 counter drop"
    ) in lost
    late = read(Kind.LATENCY, LATE | {"Sources": ["0.0.0.0/0"], "SourcesToFilter": ["10.0.0.1"]}, start=True)
    text = fault.rules(PLACE, late, ("eth0",))
    assert text.index("ip daddr { 10.0.0.1/32 } accept") < text.index("ip daddr 0.0.0.0/0 counter meta priority set")
    assert fault.queue(late, "eth0")[-1] == (
        *("qdisc", "add", "dev", "eth0", "parent", "5e78:1", "netem"),
        *("delay", "100ms", "10ms", "limit", "100000"),
    )


def test_a_fault_is_found_by_its_name_and_those_of_others_are_not():
    wanted = read(Kind.BLACKHOLE, PORT, start=True)
    listed = "\n".join(
        [
            "table ip nat",
            f"table inet {fault.table(PLACE, wanted)}",
            f"table netdev {fault.table(PLACE, Fault(Kind.LOSS))}",
            f"table inet {fault.table(Place('other0other0', 'f' * 32), wanted)}",
            "table inet sexton-fault-",
        ]
    )
    assert fault.mine(PLACE.agent, listed) == {
        f"inet {fault.table(PLACE, wanted)}": "f" * 32,
        f"netdev {fault.table(PLACE, Fault(Kind.LOSS))}": "f" * 32,
    }
    assert fault.removal(PLACE, wanted) == fault.removal_of(next(iter(fault.mine(PLACE.agent, listed))))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("Port", "Protocol", "TrafficType", "SourcesToFilter", "Sources", "LossPercent", "FlowsPercent")
LIKELY = st.sampled_from([80, "tcp", "egress", ["10.0.0.1"], ["0.0.0.0/0", "::/0"], 10, "10.0.0.1; drop"])


@given(st.sampled_from(Kind), st.booleans(), st.dictionaries(st.sampled_from(NAMES), VALUES | LIKELY))
def test_whatever_a_task_sends_no_word_of_it_reaches_the_filter_unread(kind, start, body):
    try:
        wanted = read(kind, body, start=start)
    except BadFault:
        return
    if start or kind is Kind.BLACKHOLE:
        text = fault.rules(PLACE, wanted, ("eth0",))
        assert all(one in 'abcdefghijklmnopqrstuvwxyz0123456789 \n{},.:;-/<@"x' for one in text)
        assert text.count("{") == text.count("}")
