"""Port mappings: what is published, what is reported, and what cannot be published at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import portmap
from sexton.core.portmap import BadMapping
from sexton.wire import acs_task


def task(mode=None):
    return acs_task.Task(arn="a", network_mode=mode)


def mapped(*mappings):
    return acs_task.Container(name="app", port_mappings=tuple(acs_task.PortMapping(**one) for one in mappings))


def take(protocol, count):
    return 9000


@pytest.mark.parametrize("mode, published", [(None, 1), ("bridge", 1), ("host", 0), ("none", 0)])
def test_only_a_bridge_publishes_ports(mode, published):
    assert len(portmap.choose(task(mode), mapped({"container_port": 80}), take)) == published


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"container_port": 1, "protocol": "sctp"}, "UnrecognizedTransportProtocol"),
        ({"container_port_range": "1"}, "UnparsablePort"),
        ({"container_port_range": "9-8"}, "UnparsablePort"),
        ({"container_port_range": "0-8"}, "UnparsablePort"),
        ({"container_port_range": "1-70000"}, "UnparsablePort"),
        ({"container_port_range": "1-101"}, "HostConfigError"),
        ({"container_port": 70000}, "UnparsablePort"),
        ({"container_port": 1, "host_port": -1}, "UnparsablePort"),
        ({}, "UnparsablePort"),
    ],
)
def test_ports_that_cannot_be_published(fields, error):
    with pytest.raises(BadMapping, match=error):
        portmap.check(task(), mapped(fields))


ports = st.integers(1, 60000)
mappings = st.one_of(
    st.builds(
        lambda port, protocol: {"container_port": port, "protocol": protocol}, ports, st.sampled_from(["tcp", "udp"])
    ),
    st.builds(
        lambda first, more: {"container_port_range": f"{first}-{first + more}", "protocol": "tcp"},
        ports,
        st.integers(0, 30),
    ),
)


@given(st.lists(mappings, max_size=3, unique_by=lambda one: one.get("container_port", 0) // 100))
def test_what_the_engine_says_afterwards_is_what_was_asked_of_it(asked):
    one = mapped(*asked)
    try:
        portmap.check(task(), one)
    except BadMapping:
        return
    cursor = [40000]

    def take(protocol, count):
        cursor[0] += count
        return cursor[0] - count

    chosen = portmap.choose(task(), one, take)
    published = [(port, host, protocol, "0.0.0.0") for port, host, protocol in portmap.each(chosen)]
    inside = [(port, protocol) for port, _, protocol, _ in published]
    if len(set(inside)) == len(inside):  # mappings that overlap are the engine's to refuse
        assert portmap.seen(one, published) == chosen
