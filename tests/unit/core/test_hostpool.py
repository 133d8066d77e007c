"""Shares of a host: counted as the control plane counts them, held once, given back whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import hostpool, render, resources
from sexton.core.hostpool import Pool, Share
from sexton.core.resources import Resources
from sexton.wire import acs_task, ecs

POOL = Pool(
    capacity=Share(amount=Resources(cpu=2048, memory=1000), gpus=frozenset({"g1", "g2"})),
    reserved=Resources(tcp=frozenset({22})),
)


def share(cpu=0, memory=0, tcp=(), udp=(), gpus=()):
    amount = Resources(cpu=cpu, memory=memory, tcp=frozenset(tcp), udp=frozenset(udp))
    return Share(amount=amount, gpus=frozenset(gpus))


@pytest.mark.parametrize(
    "asked, lacking",
    [
        (share(cpu=1024, memory=500, tcp=[80], udp=[53], gpus=["g2"]), ()),
        (share(cpu=1025), ("RESOURCE:CPU",)),
        (share(memory=501), ("RESOURCE:MEMORY",)),
        (share(tcp=[8080]), ("RESOURCE:PORTS",)),
        (share(udp=[8080]), ()),
        (share(tcp=[22]), ("RESOURCE:PORTS",)),
        (share(gpus=["g1"]), ("RESOURCE:GPU",)),
        (
            share(cpu=9999, memory=9999, tcp=[22], gpus=["g1"]),
            ("RESOURCE:CPU", "RESOURCE:MEMORY", "RESOURCE:PORTS", "RESOURCE:GPU"),
        ),
    ],
)
def test_what_does_not_fit_is_named(asked, lacking):
    assert POOL.hold("a", share(1024, 500, [8080], gpus=["g1"])).lacking(asked) == lacking


def test_a_gpu_that_was_never_here_is_worth_no_wait():
    assert POOL.unknown(share(gpus=["g1", "g9"])) == {"g9"}


shares = st.builds(
    share,
    st.integers(0, 900),
    st.integers(0, 400),
    st.sets(st.integers(80, 84)),
    gpus=st.sets(st.sampled_from(["g1", "g2"])),
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), shares), max_size=30))
def test_nothing_is_given_twice_and_everything_comes_back(turns):
    pool = POOL
    for arn, goes, asked in turns:
        if goes:
            pool = pool.release(arn)
        elif arn not in pool.held and not pool.lacking(asked):
            pool = pool.hold(arn, asked)
            assert pool.hold(arn, asked) == pool
        held = list(pool.held.values())
        assert sum(one.amount.cpu for one in held) <= 2048 and sum(one.amount.memory for one in held) <= 1000
        assert len(frozenset().union(*(one.amount.tcp for one in held))) == sum(len(one.amount.tcp) for one in held)
        assert len(frozenset().union(*(one.gpus for one in held))) == sum(len(one.gpus) for one in held)
    for arn in "abcd":
        pool = pool.release(arn)
    assert pool == POOL


containers = st.lists(
    st.builds(
        lambda number, cpu, memory, soft, port: ecs.ContainerDefinition(
            name=f"c{number}",
            image="i",
            cpu=cpu,
            memory=memory,
            memory_reservation=soft,
            port_mappings=(ecs.PortMapping(container_port=80, host_port=port, protocol="tcp"),),
        ),
        st.integers(0, 99),
        st.none() | st.integers(0, 4096),
        st.none() | st.integers(6, 512),
        st.none() | st.integers(6, 512),
        st.sampled_from([0, 8080, 8081]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.name,
)


@given(
    containers,
    st.sampled_from([None, "256", "1 vCPU"]),
    st.sampled_from([None, "512"]),
    st.sampled_from(["bridge", "host", "none"]),
)
def test_agent_and_control_plane_count_alike(made, cpu, memory, mode):
    definition = ecs.TaskDefinition(
        family="f", revision=1, container_definitions=tuple(made), cpu=cpu, memory=memory, network_mode=mode
    )
    payload = render.payload(ecs.Task(task_arn="a"), definition, "1")

    assert hostpool.share_of(payload).amount == resources.demand_of(definition, None)


def test_settings_that_cannot_be_read_take_the_hard_limit():
    one = acs_task.Container(name="a", memory=64, docker_config=acs_task.DockerConfig(host_config="{"))

    assert hostpool.share_of(acs_task.Task(containers=(one,))).amount.memory == 64
