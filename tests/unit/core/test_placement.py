"""Where a task goes: never beyond what a host has, always with a reason, and always the same for the same input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import placement, resources
from sexton.core.placement import Host, Refusal, Why
from sexton.core.resources import Resources


def host(arn="h", **fields):
    usual = {
        "active": True,
        "connected": True,
        "attributes": frozenset({"x"}),
        "capacity": Resources(cpu=1024, memory=1024),
        "used_ports": Resources(tcp=frozenset({22})),
        "used": resources.NOTHING,
        "tasks": 0,
    }
    return Host(arn=arn, **(usual | fields))


@pytest.mark.parametrize(
    "fields, demand, required, why, detail",
    [
        ({"active": False, "connected": False}, Resources(cpu=9999), (), Why.INACTIVE, "it is draining or going away"),
        ({"connected": False}, Resources(cpu=9999), ("y",), Why.AGENT, "its agent is not connected"),
        ({}, Resources(cpu=9999), ("z", "x", "y"), Why.ATTRIBUTE, "it lacks y, z"),
        (
            {},
            Resources(cpu=1025, memory=1025),
            (),
            Why.CPU,
            "needs 1025 CPU units, 1024 left; needs 1025 MiB, 1024 MiB left",
        ),
        ({}, Resources(memory=1025), (), Why.MEMORY, "needs 1025 MiB, 1024 MiB left"),
        ({}, Resources(tcp=frozenset({22})), (), Why.PORTS, "needs ports that are taken: 22/tcp"),
        (
            {"used": Resources(udp=frozenset({53}))},
            Resources(udp=frozenset({53})),
            (),
            Why.PORTS,
            "needs ports that are taken: 53/udp",
        ),
        ({"used": Resources(cpu=1000)}, Resources(cpu=25), (), Why.CPU, "needs 25 CPU units, 24 left"),
    ],
)
def test_the_first_reason_is_the_one_a_person_can_act_on(fields, demand, required, why, detail):
    assert placement.refuse(host(**fields), demand, required) == Refusal(arn="h", why=why, detail=detail)
    assert placement.choose([host(**fields)], demand, required) == (None, (Refusal(arn="h", why=why, detail=detail),))


def test_a_task_that_just_fits_fits():
    assert placement.refuse(host(), Resources(cpu=1024, memory=1024, tcp=frozenset({80})), ("x",)) is None


def test_tasks_spread_then_memory_then_the_name_decides():
    crowded = host("a", tasks=3)
    small = host("b", tasks=1, capacity=Resources(cpu=1024, memory=512))
    twins = [host("d", tasks=1), host("c", tasks=1)]

    assert placement.choose([crowded, small, *twins], resources.NOTHING, ())[0].arn == "c"


ports = st.frozensets(st.integers(1, 6), max_size=3)
amounts = st.builds(Resources, cpu=st.integers(0, 50), memory=st.integers(0, 50), tcp=ports, udp=ports)
hosts = st.lists(
    st.builds(
        Host,
        arn=st.sampled_from("abcdef"),
        active=st.booleans(),
        connected=st.booleans(),
        attributes=st.frozensets(st.sampled_from("xyz")),
        capacity=st.builds(Resources, cpu=st.integers(0, 60), memory=st.integers(0, 60)),
        used_ports=st.builds(Resources, tcp=ports, udp=ports),
        used=amounts,
        tasks=st.integers(0, 3),
    ),
    max_size=6,
    unique_by=lambda one: one.arn,
)
needs = st.frozensets(st.sampled_from("xyz"), max_size=1)


@given(hosts, amounts, needs)
def test_a_chosen_host_holds_the_task_and_every_other_answer_has_a_reason_for_each_host(some, demand, required):
    chosen, refusals = placement.choose(some, demand, required)
    if chosen is None:
        assert [one.arn for one in refusals] == [one.arn for one in some]
        return

    assert refusals == ()
    assert chosen.active and chosen.connected and required <= chosen.attributes
    full = placement.occupy(chosen, demand)
    assert full.left.cpu >= 0 and full.left.memory >= 0
    assert not demand.tcp & (chosen.used.tcp | chosen.used_ports.tcp)
    assert not demand.udp & (chosen.used.udp | chosen.used_ports.udp)


@given(hosts, amounts, needs, st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_listed_does_not_matter(some, demand, required, random):
    other = list(some)
    random.shuffle(other)

    assert placement.choose(some, demand, required)[0] == placement.choose(other, demand, required)[0]


@given(hosts, amounts, needs)
def test_placing_until_nothing_fits_never_overfills(some, demand, required):
    by_arn = {one.arn: one for one in some}
    for _ in range(200):
        chosen, _ = placement.choose(list(by_arn.values()), demand, required)
        if chosen is None:
            break
        by_arn[chosen.arn] = placement.occupy(chosen, demand)
        assert by_arn[chosen.arn].left.cpu >= 0 and by_arn[chosen.arn].left.memory >= 0
        assert by_arn[chosen.arn].tasks == chosen.tasks + 1
