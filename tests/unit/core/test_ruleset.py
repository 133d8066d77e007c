"""The table of a VPC: one text, small changes, and a path for a packet that does not grow with the rules."""

from __future__ import annotations

import msgspec

from sexton.core import grouprules, nftables, ruleset
from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage, Subnet

SUBNET = Subnet(id="subnet-1", vpc="vpc-1", cidr="10.0.0.0/16", gateway="10.0.0.1", vni=1)


def rule(index: int) -> Rule:
    block = f"10.{index % 200}.0.0/{16 + index % 3}"
    return Rule(id=f"sgr-{index}", protocol="tcp", from_port=1000 + index, to_port=1010 + index, cidr=block)


def state(rules: int, interfaces: int = 2, vpc: str = "vpc-1") -> SextonNetworkMessage:
    groups = (
        Group(id="sg-a", vpc=vpc, ingress=tuple(map(rule, range(rules)))),
        Group(id="sg-b", vpc=vpc, ingress=(Rule(id="sgr-peers", protocol="-1", group="sg-a"),)),
    )
    members = tuple(
        Interface(
            id=f"eni-{n}",
            subnet="subnet-1",
            mac=f"02:{n:x}",
            ipv4=f"10.0.{n // 250}.{n % 250}",
            groups=("sg-a", "sg-b"),
        )
        for n in range(interfaces)
    )
    return SextonNetworkMessage(subnets=(SUBNET,), groups=groups, interfaces=members)


def table(message: SextonNetworkMessage) -> nftables.Table:
    devices = {one.id: f"v{one.id}" for one in message.interfaces}
    return ruleset.table("t", grouprules.vpc(message, "vpc-1"), devices, tunnel="vx0", uplink="up0")


def longest(made: nftables.Table) -> int:
    return max(len(chain.lines) for chain in made.chains)


def test_rules_and_interfaces_are_lookups_not_lines():
    assert longest(table(state(3))) == longest(table(state(500))) == longest(table(state(500, 200)))
    assert len(table(state(500, 200)).chains) == len(table(state(500, 2)).chains)


def test_one_more_task_is_a_few_elements():
    text = nftables.change(table(state(500, 200)), table(state(500, 201)))

    assert all(line.startswith("add element") for line in text.splitlines())
    assert len(text.splitlines()) <= 8


def test_nothing_to_change():
    assert nftables.change(table(state(9)), table(state(9))) == ""


def test_what_a_revoked_rule_leaves_is_removed():
    before, after = table(state(4)), table(state(0))
    text = nftables.change(before, after)

    removed = {
        line.split()[4] for line in text.splitlines() if line.startswith(("delete set", "delete map", "delete chain"))
    }
    names = {one.name for one in (*before.sets, *before.chains)}
    assert removed == names - {one.name for one in (*after.sets, *after.chains)}
    assert removed


def test_each_rule_counts_under_its_id():
    text = nftables.whole(table(state(40)))

    assert all(f'counter comment "sgr-{index}"' in text for index in range(40))
    assert 'counter accept comment "sgr-peers"' in text


def test_a_vpc_has_only_its_own():
    message = state(2)
    elsewhere = msgspec.structs.replace(message, subnets=(msgspec.structs.replace(SUBNET, vpc="vpc-2"),))

    assert grouprules.vpcs(elsewhere) == ["vpc-2"]
    assert "eni-" not in nftables.whole(ruleset.table("t", grouprules.vpc(elsewhere, "vpc-1"), {}))


def test_without_a_way_to_others_all_strangers_are_dropped():
    chain = next(
        one for one in ruleset.table("t", grouprules.vpc(state(1), "vpc-1"), {}).chains if one.name == "prerouting"
    )

    assert chain.lines[-1].startswith("counter drop")
    assert not any("vx0" in line or "up0" in line for line in chain.lines)
