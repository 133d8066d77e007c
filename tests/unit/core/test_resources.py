"""Amounts: how they are read from text, what a task asks for, and that remaining resources always add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import resources
from sexton.core.resources import Resources
from sexton.wire import ecs

ports = st.frozensets(st.integers(1, 20))
amounts = st.builds(Resources, cpu=st.integers(0, 9999), memory=st.integers(0, 9999), tcp=ports, udp=ports)


@pytest.mark.parametrize(
    "text, value",
    [
        ("256", 256),
        ("1 vCPU", 1024),
        (".5 vCPU", 512),
        ("0.25vcpu", 256),
        ("2 GB", 2048),
        ("0.5GB", 512),
        (" 1024 ", 1024),
        ("0", 0),
        ("", None),
        (None, None),
        ("-1", None),
        ("-1 vCPU", None),
        ("1.5", None),
        ("1_0 GB", None),
        ("inf GB", None),
        ("nan vcpu", None),
        ("1e9 GB", None),
        ("vCPU", None),
        ("1 2 GB", None),
        ("१२", None),
        ("9" * 5000, None),
    ],
)
def test_amounts_as_the_api_carries_them(text, value):
    assert resources.number(text) == value


@given(st.text(max_size=30))
def test_no_text_is_a_negative_amount_or_an_exception(text):
    value = resources.number(text)

    assert value is None or value >= 0


def define(*containers, **fields):
    return ecs.TaskDefinition(container_definitions=containers, **fields)


def container(**fields):
    return ecs.ContainerDefinition(**fields)


def test_containers_are_added_up_and_a_reservation_counts_before_a_limit():
    one = container(name="a", cpu=100, memory=512, memory_reservation=128)
    two = container(name="b", memory=256)

    assert resources.demand_of(define(one, two), None) == Resources(cpu=100, memory=384)


def test_the_tasks_own_figures_count_before_its_containers():
    definition = define(container(name="a", cpu=100, memory=512), cpu="256", memory="1 GB")

    assert resources.demand_of(definition, None) == Resources(cpu=256, memory=1024)
    assert resources.demand_of(definition, ecs.TaskOverride(cpu="512", memory="2048")) == Resources(
        cpu=512, memory=2048
    )


def test_overrides_of_a_container_count():
    own = ecs.ContainerOverride(name="a", cpu=0, memory=64)

    assert resources.demand_of(
        define(container(name="a", cpu=100, memory=512)), ecs.TaskOverride(container_overrides=(own,))
    ) == Resources(cpu=0, memory=64)


@pytest.mark.parametrize(
    "mode, mapping, tcp, udp",
    [
        ("bridge", {"container_port": 80, "host_port": 8080}, {8080}, set()),
        (None, {"container_port": 80, "host_port": 8080, "protocol": "udp"}, set(), {8080}),
        ("bridge", {"container_port": 80}, set(), set()),
        ("bridge", {"container_port": 80, "host_port": 0}, set(), set()),
        ("host", {"container_port": 80}, {80}, set()),
        ("host", {"container_port": 80, "host_port": 80}, {80}, set()),
        ("awsvpc", {"container_port": 80, "host_port": 80}, set(), set()),
        ("none", {"container_port": 80, "host_port": 80}, set(), set()),
    ],
)
def test_only_fixed_ports_of_the_host_are_asked_for(mode, mapping, tcp, udp):
    one = container(name="a", port_mappings=(ecs.PortMapping(**mapping),))
    demand = resources.demand_of(define(one, network_mode=mode), None)

    assert (demand.tcp, demand.udp) == (tcp, udp)


def registration(cpu=1024, memory=2048, tcp=("22",), udp=()):
    return (
        ecs.Resource(name="CPU", type="INTEGER", integer_value=cpu),
        ecs.Resource(name="MEMORY", type="INTEGER", integer_value=memory),
        ecs.Resource(name="PORTS", type="STRINGSET", string_set_value=tcp),
        ecs.Resource(name="PORTS_UDP", type="STRINGSET", string_set_value=udp),
        ecs.Resource(name="ODD", type="STRINGSET", string_set_value=("kept",)),
    )


def test_a_registration_is_a_capacity_and_the_ports_in_use():
    assert resources.registered(registration(tcp=("22", "x", "9" * 5000), udp=("53",))) == (
        Resources(cpu=1024, memory=2048),
        Resources(tcp=frozenset({22}), udp=frozenset({53})),
    )
    assert resources.registered(()) == (resources.NOTHING, resources.NOTHING)


def test_what_remains_is_shown_in_the_registrations_own_form():
    used = Resources(cpu=24, memory=48, tcp=frozenset({22, 80}), udp=frozenset({53}))
    left = {one.name: one for one in resources.remaining(registration(), used)}

    assert (left["CPU"].integer_value, left["MEMORY"].integer_value) == (1000, 2000)
    assert left["PORTS"].string_set_value == ("22", "80")
    assert left["PORTS_UDP"].string_set_value == ("53",)
    assert left["ODD"].string_set_value == ("kept",)


@given(st.lists(amounts, max_size=8))
def test_a_total_is_the_sum_in_any_order(parts):
    whole = resources.NOTHING
    for part in reversed(parts):
        whole = resources.add(whole, part)

    assert resources.total(parts) == whole


@given(st.lists(amounts, max_size=8))
def test_what_is_used_and_what_remains_add_up_to_what_was_registered(parts):
    used = resources.total(parts)
    capacity, before = resources.registered(registration())
    left, ports_after = resources.registered(resources.remaining(registration(), used))

    assert (left.cpu + used.cpu, left.memory + used.memory) == (capacity.cpu, capacity.memory)
    assert (ports_after.tcp, ports_after.udp) == (before.tcp | used.tcp, before.udp | used.udp)


@given(amounts, amounts, amounts)
def test_what_lacks_is_named_and_nothing_else(left, taken, demand):
    lacking = resources.lacking(left, taken, demand)

    assert ("RESOURCE:CPU" in lacking) == (demand.cpu > left.cpu)
    assert ("RESOURCE:MEMORY" in lacking) == (demand.memory > left.memory)
    assert ("RESOURCE:PORTS" in lacking) == bool(demand.tcp & taken.tcp or demand.udp & taken.udp)
