"""The sentences tools match on, the records of service deployments, and the order of scaling in."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import rollout, scalein, servicewords, speech
from sexton.core.pace import ECS
from sexton.core.servicetask import ServiceTask, Stage
from sexton.core.serviceview import Memory, Rebalance
from sexton.wire import ecs

REQUIREMENTS = "because no container instance met all of its requirements."


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (servicewords.started("web", ["a", "b"]), "(service web) has started 2 tasks: (task a) (task b)."),
        (
            servicewords.started("web", ["a"], replaced=1),
            "(service web) has started 1 tasks: (task a). Amazon ECS replaced 1 tasks due to an unhealthy status.",
        ),
        (
            servicewords.started("web", ["a"], zone="eu-west-1a"),
            "(service web) has started 1 tasks in eu-west-1a to AZ Rebalance: (task a).",
        ),
        (
            servicewords.started("web", ["a"], task_set="ecs-svc/1"),
            "(service web, taskSet ecs-svc/1) has started 1 tasks: (task a).",
        ),
        (servicewords.unplaced("web"), f"(service web) was unable to place a task {REQUIREMENTS}"),
        (
            servicewords.unplaced("web", "i-1", servicewords.PROBLEMS["RESOURCE:MEMORY"]),
            f"(service web) was unable to place a task {REQUIREMENTS} "
            "The closest matching (container-instance i-1) has insufficient memory available.",
        ),
        (
            servicewords.unplaced("web", zone="z"),
            f"(service web) is unable to place a task in z {REQUIREMENTS}",
        ),
    ],
)
def test_events_are_worded_as_in_ecs(said, expected):
    assert said == expected


def test_a_lasting_event_is_said_again_after_six_hours_or_a_change():
    memory = Memory(rebalance=Rebalance(since=1))
    memory, first = speech.unplaced(memory, "no room", ECS, 100)
    assert (first, memory.rebalance) == (("no room",), Rebalance(since=1))
    assert speech.unplaced(memory, "no room", ECS, 100 + 6 * 3600 - 1) == (memory, ())
    assert speech.unplaced(memory, "no room", ECS, 100 + 6 * 3600)[1] == ("no room",)
    assert speech.unplaced(memory, "no memory", ECS, 101)[1] == ("no memory",)


@pytest.mark.parametrize(
    ("status", "stop_type", "expected"),
    [
        ("PENDING", None, "ROLLBACK_REQUESTED"),
        ("IN_PROGRESS", "ROLLBACK", "ROLLBACK_REQUESTED"),
        ("IN_PROGRESS", "ABORT", "STOP_REQUESTED"),
        ("STOP_REQUESTED", "ROLLBACK", "STOP_REQUESTED"),
        ("ROLLBACK_REQUESTED", "ROLLBACK", "ROLLBACK_REQUESTED"),
        ("ROLLBACK_IN_PROGRESS", "ABORT", "ROLLBACK_IN_PROGRESS"),
        ("SUCCESSFUL", "ROLLBACK", None),
        ("STOPPED", "ROLLBACK", None),
        ("ROLLBACK_FAILED", None, None),
    ],
)
def test_what_a_request_to_stop_does(status, stop_type, expected):
    after = rollout.request_stop(ecs.ServiceDeployment(status=status), stop_type, 5.0)
    assert (after and after.status) == expected


def test_an_ongoing_record_ends_when_a_newer_one_begins():
    ended = rollout.supersede(ecs.ServiceDeployment(status="IN_PROGRESS", started_at=1.0), 5.0)
    assert ended is not None
    assert (ended.status, ended.stopped_at, ended.started_at, ended.finished_at) == ("STOPPED", 5.0, 1.0, None)
    assert rollout.supersede(ecs.ServiceDeployment(status="SUCCESSFUL"), 5.0) is None
    assert rollout.supersede(None, 5.0) is None


spots = st.sampled_from([("a", "h1"), ("a", "h2"), ("b", "h3"), ("c", "h4"), ("c", "h5")])


@given(st.lists(st.tuples(spots, st.integers(0, 3), st.booleans()), max_size=14))
def test_stopping_in_order_is_choosing_from_the_fullest_place_each_time(drawn):
    tasks = [
        ServiceTask(
            id=f"t{number}", deployment="d", stage=Stage.RUNNING, created_at=float(age), zone=spot[0], host=spot[1]
        )
        for number, (spot, age, _) in enumerate(drawn)
    ]
    offered = [task for task, (_, _, may_go) in zip(tasks, drawn, strict=True) if may_go]
    zones = Counter(task.zone for task in tasks)
    hosts = Counter(task.host for task in tasks)
    left = list(offered)
    for chosen in scalein.evenly(offered, tasks):
        fullest = max(zones[task.zone] for task in left)
        assert zones[chosen.zone] == fullest
        there = [task for task in left if task.zone == chosen.zone]
        assert hosts[chosen.host] == max(hosts[task.host] for task in there)
        assert chosen.created_at == max(task.created_at for task in there if task.host == chosen.host)
        left.remove(chosen)
        zones[chosen.zone] -= 1
        hosts[chosen.host] -= 1
    assert not left
