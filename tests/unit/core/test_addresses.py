"""Pools of addresses: what may be one, what is reserved in it, and which address is next."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import addresses

DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("10.0.0.7/24", "10.0.0.0/24"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", None),
        ("10.0.0.0/255.0.0.0", None),
        ("10.0.0.0/33", None),
        ("fd00::/64", None),
        ("", None),
        ("/8", None),
    ],
)
def test_blocks_are_read_in_one_form(text, means):
    block = addresses.block4(text)

    assert (str(block) if block else None) == means


def test_ipv6_blocks_too():
    assert str(addresses.block6("fd00::1/64")) == "fd00::/64"
    assert addresses.block6("fe80::%eth0/64") is None
    assert addresses.block6("10.0.0.0/8") is None


@pytest.mark.parametrize("text", ["10.0.0.0/15", "10.0.0.0/29", "169.254.0.0/16", "127.0.0.0/16", "224.0.0.0/16"])
def test_what_no_task_can_have(text):
    assert not addresses.fit_for_tasks(addresses.block4(text))


@given(DRAWS, st.integers(16, 28), st.data())
def test_a_free_address_is_free_and_usable(draw, bits, data):
    block = ipaddress.IPv4Network(f"10.64.0.0/{bits}")
    taken = data.draw(st.sets(st.integers(4, min(block.num_addresses - 2, 40)).map(lambda n: str(block[n]))))

    found = addresses.free(block, taken, draw)

    if found is None:
        assert len(taken) == addresses.capacity(block)
    else:
        assert found not in taken and addresses.usable(block, found)


@given(st.lists(DRAWS, min_size=11, max_size=11))
def test_a_pool_is_given_away_whole(draws):
    block = ipaddress.IPv4Network("10.0.0.0/28")
    taken: set[str] = set()
    for draw in draws:
        found = addresses.free(block, taken, draw)
        assert found is not None
        taken.add(found)

    assert taken == {f"10.0.0.{n}" for n in range(4, 15)}
    assert addresses.free(block, taken, 0.5) is None


def test_the_ipv6_partner_stands_at_the_same_place():
    block, block6 = addresses.block4("10.0.1.0/24"), addresses.block6("fd00:1::/64")

    assert addresses.partner6(block, block6, "10.0.1.20") == "fd00:1::14"
    assert addresses.gateway(block6) == "fd00:1::1"


def test_a_mac_is_a_local_one_of_one_interface():
    first = int(addresses.mac(bytes(range(5))).split(":")[0], 16)

    assert first & 3 == 2


def test_names_are_those_of_the_region():
    assert addresses.dns_name("us-east-1", "10.0.1.4") == "ip-10-0-1-4.ec2.internal"
    assert addresses.dns_name("eu-west-1", "10.0.1.4") == "ip-10-0-1-4.eu-west-1.compute.internal"
