"""A change that is applied to the state it was made for is the state that it leads to."""

from __future__ import annotations

from sexton.core.networkchange import applied
from sexton.wire.network import Group, Interface, SextonNetworkMessage, Subnet


def interface(number, host="192.0.2.1"):
    return Interface(id=f"eni-{number}", subnet="subnet-1", mac=f"02:{number}", ipv4=f"10.0.0.{number}", host=host)


BEFORE = SextonNetworkMessage(
    message_id="first",
    revision=1,
    subnets=(Subnet(id="subnet-1", vpc="vpc-1", cidr="10.0.0.0/24", gateway="10.0.0.1", vni=1),),
    groups=(Group(id="sg-1", name="web"), Group(id="sg-2", name="db")),
    interfaces=(interface(5), interface(6), interface(7)),
)


def test_what_is_new_or_different_is_there_and_what_is_gone_is_not():
    change = SextonNetworkMessage(
        message_id="second",
        revision=2,
        since="first",
        gone=("eni-6", "sg-2"),
        groups=(Group(id="sg-1", name="renamed"),),
        interfaces=(interface(7, host=""), interface(8)),
    )

    after = applied(BEFORE, change)

    assert after == SextonNetworkMessage(
        message_id="second",
        revision=2,
        subnets=BEFORE.subnets,
        groups=(Group(id="sg-1", name="renamed"),),
        interfaces=(interface(5), interface(7, host=""), interface(8)),
    )


def test_a_change_of_nothing_is_the_same_state_under_another_name():
    after = applied(BEFORE, SextonNetworkMessage(message_id="second", revision=2, since="first"))

    assert (after.message_id, after.since) == ("second", "")
    assert (after.subnets, after.groups, after.interfaces) == (BEFORE.subnets, BEFORE.groups, BEFORE.interfaces)
