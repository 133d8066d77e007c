"""A short order does what the whole one would, to routers that are as the last one left them."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import wiring, wiringchange
from sexton.wire.network import Interface, SextonNetworkMessage, Subnet

SUBNETS = tuple(
    Subnet(id=f"subnet-{n}", vpc="vpc-1", cidr=f"10.0.{n}.0/24", gateway=f"10.0.{n}.1", vni=n) for n in (1, 2)
)
HERE = Interface(id="eni-0", subnet="subnet-1", mac="02:00", ipv4="10.0.1.9")


def order(others, here=(HERE,), **fields):
    """The whole, with tasks of other hosts: (number, host) each."""
    interfaces = tuple(
        Interface(
            id=f"eni-{number}",
            subnet=f"subnet-{1 + number % 2}",
            mac=f"02:{number}",
            ipv4=f"10.0.{1 + number % 2}.{100 + number}",
            ipv6=f"fd00::{number}" if number % 3 == 0 else "",
            host=f"192.0.2.{host}",
        )
        for number, host in others
    )
    message = SextonNetworkMessage(subnets=SUBNETS, interfaces=(*here, *interfaces))
    return msgspec.structs.replace(wiring.apply(message, "tag", "192.0.2.250", 4789, {"vpc-1": "rules"}), **fields)


def shape(one):
    """What a host is like after a whole order."""
    routes = {
        address: (each.vni, each.host)
        for router in one.routers
        for each in router.remotes
        for address in each.addresses
    }
    ends = {(tunnel.vni, host) for router in one.routers for tunnel in router.tunnels for host in tunnel.hosts}
    return routes, ends, {host for _, host in ends}


def done(before, change):
    """What it is like after a short one."""
    routes, ends, peers = shape(before)
    for router in change.routers:
        for each in router.gone:
            for address in each.addresses:
                del routes[address]
        routes |= {address: (each.vni, each.host) for each in router.remotes for address in each.addresses}
        for tunnel in router.tunnels:
            ends = (ends | {(tunnel.vni, host) for host in tunnel.hosts}) - {(tunnel.vni, host) for host in tunnel.gone}
    return routes, ends, set(change.peers) or peers


others = st.dictionaries(st.integers(1, 12), st.integers(1, 4), min_size=1).map(lambda found: sorted(found.items()))


@given(others, others)
def test_a_short_order_leads_to_the_same(first, second):
    before, after = order(first), order(second)
    change = wiringchange.since(wiringchange.kept(before), after)

    if change.whole:
        assert change == after
        return
    assert done(before, change) == shape(after)
    assert [router.rules for router in change.routers] == ["rules"]


def test_it_names_only_what_is_different():
    before, after = order([(1, 1), (2, 1), (3, 2)]), order([(1, 1), (3, 2), (5, 2)])
    change = wiringchange.since(before, after)

    assert not change.whole and change.peers == ()
    (router,) = change.routers
    assert [one.addresses for one in router.remotes] == [("10.0.2.105",)]
    assert [one.addresses for one in router.gone] == [("10.0.1.102",)]
    assert all(not one.hosts and not one.gone for one in router.tunnels)


def test_what_is_more_than_others_tasks_is_done_whole():
    before = order([(1, 1)])
    for after in (
        order([(1, 1)], here=()),
        order([(1, 1)], address="192.0.2.251"),
        order([(1, 1)], port=4790),
        order([]),
        order([(1, 1)], routers=()),
    ):
        assert wiringchange.since(before, after) == after
        assert after.whole
