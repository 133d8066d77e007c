"""The arithmetic of bounds, what begins a deployment, and how failures are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import breaker, deployment
from sexton.core.breaker import Breaker, breaker_of, threshold
from sexton.core.deployment import Bounds, Deployment, bounds
from sexton.core.pace import ECS, backoff
from sexton.core.servicetask import Health, ServiceTask, Stage, Standing, changes_at, healthy_since, seen, standing
from sexton.wire import ecs


@pytest.mark.parametrize(
    ("desired", "low", "high", "expected"),
    [
        (4, 50, 200, Bounds(2, 8)),
        (2, 75, 100, Bounds(2, 2)),  # ECS's own example: nothing may be stopped
        (3, 100, 125, Bounds(3, 3)),
        (1, 100, 200, Bounds(1, 2)),
        (1, 0, 100, Bounds(0, 1)),
        (1, 50, 150, Bounds(1, 1)),
        (0, 100, 200, Bounds(0, 0)),
        (3, 33, 133, Bounds(1, 3)),
        (4, 0, 50, Bounds(0, 4)),  # a maximum below the desired count would never let it be reached
    ],
)
def test_the_minimum_rounds_up_and_the_maximum_down(desired, low, high, expected):
    assert bounds(desired, low, high) == expected


def started(number: int, **fields: object) -> Deployment:
    return Deployment(id=f"ecs-svc/{number}", revision=f"rev-{number}", created_at=1, updated_at=1, desired=2, **fields)


def test_a_new_deployment_takes_the_lead():
    first = deployment.begin((), deployment_id="ecs-svc/1", revision="rev-1", desired=2, now=1)
    both = deployment.begin(first, deployment_id="ecs-svc/2", revision="rev-2", desired=2, now=5)
    assert [(one.id, one.status) for one in both] == [("ecs-svc/2", "PRIMARY"), ("ecs-svc/1", "ACTIVE")]
    assert both[0].rollout == "IN_PROGRESS"
    assert both[0].reason == "ECS deployment ecs-svc/2 in progress."


CURRENT = ecs.ServiceRevision(
    task_definition="arn:td/web:1",
    network_configuration=ecs.NetworkConfiguration(
        awsvpc_configuration=ecs.AwsVpcConfiguration(subnets=("subnet-1",), assign_public_ip="DISABLED")
    ),
)


@pytest.mark.parametrize(
    ("update", "needed"),
    [
        (ecs.UpdateServiceRequest(desired_count=9), False),
        (ecs.UpdateServiceRequest(task_definition="arn:td/web:1"), False),
        (ecs.UpdateServiceRequest(task_definition="arn:td/web:2"), True),
        (ecs.UpdateServiceRequest(task_definition="arn:td/web:1", force_new_deployment=True), True),
        (ecs.UpdateServiceRequest(network_configuration=CURRENT.network_configuration), False),
        (ecs.UpdateServiceRequest(platform_version="1.4.0"), True),
        (ecs.UpdateServiceRequest(health_check_grace_period_seconds=5, enable_execute_command=True), False),
    ],
)
def test_an_update_deploys_only_what_tasks_cannot_take_over(update, needed):
    assert deployment.needs_deployment(CURRENT, update) is needed


@pytest.mark.parametrize(
    ("kind", "value", "desired", "expected"),
    [
        ("BOUNDED_PERCENT", 50, 1, 3),
        ("BOUNDED_PERCENT", 50, 25, 13),
        ("BOUNDED_PERCENT", 50, 400, 200),
        ("BOUNDED_PERCENT", 50, 800, 200),
        ("UNBOUNDED_PERCENT", 50, 1, 1),
        ("UNBOUNDED_PERCENT", 50, 1000, 500),
        ("COUNT", 7, 1000, 7),
    ],
)
def test_the_threshold(kind, value, desired, expected):
    assert threshold(Breaker(enabled=True, kind=kind, value=value), desired) == expected


def test_a_breaker_is_read_with_its_defaults():
    assert breaker_of(None) == Breaker()
    given = ecs.DeploymentCircuitBreaker(enable=True, rollback=True)
    assert breaker_of(given) == Breaker(enabled=True, rollback=True)
    precise = ecs.DeploymentCircuitBreaker(
        enable=True,
        reset_on_healthy_task=False,
        threshold_configuration=ecs.ThresholdConfiguration(type="COUNT", value=9),
    )
    assert breaker_of(precise) == Breaker(enabled=True, reset_on_healthy=False, kind="COUNT", value=9)


def ended(at: float, *, created: float = 0.0, started: float = 0.0, code: str = "TaskFailedToStart") -> ServiceTask:
    return ServiceTask(
        id=f"t{at}",
        deployment="ecs-svc/1",
        stage=Stage.STOPPED,
        created_at=created,
        started_at=started,
        stopped_at=at,
        stop_code=code,
    )


def counted(state: Deployment, *tasks: ServiceTask, reset: bool = True, now: float = 1000.0) -> Deployment:
    return breaker.account(state, tasks, reset_on_healthy=reset, pace=ECS, now=now)


@pytest.mark.parametrize(
    ("task", "fails"),
    [
        (ended(10), 1),
        (ended(10, started=5, code="EssentialContainerExited"), 1),  # it ran, but not long enough to be healthy
        (ended(90, started=5, code="EssentialContainerExited"), 0),
        (ended(10, code="UserInitiated"), 0),
        (ended(10, code="ServiceSchedulerInitiated"), 0),
        (ended(10, code="InfrastructureHealth"), 0),
        (ended(10, code="SpotInterruption"), 0),
    ],
)
def test_only_an_end_of_its_own_speaks_against_a_revision(task, fails):
    assert counted(started(1), task).failed_tasks == fails


def test_a_healthy_task_forgives_unless_failures_add_up():
    state = counted(started(1), ended(10), ended(20), now=30)
    healthy = ServiceTask(id="ok", deployment="ecs-svc/1", stage=Stage.RUNNING, created_at=25, started_at=30)
    assert counted(state, healthy, now=69).failed_tasks == 2
    after = counted(state, healthy, now=70)
    assert (after.failed_tasks, after.strikes, after.not_before) == (0, 0, 0)
    assert counted(after, healthy, ended(80, created=75), now=81).failed_tasks == 1
    assert counted(state, healthy, reset=False, now=70).failed_tasks == 2


def test_tasks_that_fail_together_are_one_strike():
    state = counted(started(1), ended(10, created=1), ended(11, created=1), ended(12, created=1), now=12)
    assert (state.failed_tasks, state.strikes) == (3, 1)


def test_the_wait_grows_and_ends():
    waits = [backoff(ECS.retry_first, ECS.retry_most, rounds) for rounds in range(12)]
    assert waits[:4] == [0, 10, 20, 40]
    assert waits == sorted(waits)
    assert waits[-1] == ECS.retry_most == backoff(10, 900, 10**9)


def test_no_room_counts_once_a_wait_however_often_it_is_tried():
    state = breaker.not_placed(started(1), pace=ECS, now=100)
    assert (state.failed_tasks, state.not_before) == (1, 160)
    assert not breaker.may_start(state, 0, 130)
    assert breaker.may_start(state, 120, 130)  # the cluster has changed meanwhile
    again = breaker.not_placed(state, pace=ECS, now=130)
    assert (again.failed_tasks, again.not_before) == (1, 160)
    assert not breaker.may_start(again, 120, 131)
    assert breaker.not_placed(again, pace=ECS, now=160).failed_tasks == 2
    assert breaker.placed(again).unplaced_at == 0


def running(health: Health, **fields: float) -> ServiceTask:
    return ServiceTask(id="t", deployment="d", stage=Stage.RUNNING, health=health, started_at=100, **fields)


@pytest.mark.parametrize(
    ("task", "grace", "now", "expected"),
    [
        (running(Health.UNCHECKED), 0, 139, Standing.FRESH),
        (running(Health.UNCHECKED), 0, 140, Standing.GOOD),
        (running(Health.UNKNOWN), 0, 500, Standing.FRESH),
        (running(Health.HEALTHY, healthy_at=110), 0, 110, Standing.GOOD),
        (running(Health.UNKNOWN, healthy_at=110), 0, 500, Standing.GOOD),  # an agent that reconnects knows it anew
        (running(Health.UNHEALTHY, healthy_at=110), 0, 120, Standing.BAD),
        (running(Health.UNHEALTHY), 60, 159, Standing.FRESH),
        (running(Health.UNHEALTHY), 60, 160, Standing.BAD),
    ],
)
def test_how_a_task_stands(task, grace, now, expected):
    assert standing(task, ECS, grace, now) == expected


@given(st.sampled_from(Health), st.floats(0, 400), st.floats(0, 300), st.floats(0, 400))
def test_a_standing_changes_only_when_it_said_it_would(health, now, grace, later):
    task = running(health, protected_until=0.0)
    change = changes_at(task, ECS, grace, 100 + now)
    moment = 100 + now + later
    if change is None or moment < change:
        assert standing(task, ECS, grace, 100 + now) == standing(task, ECS, grace, moment)


def test_a_record_is_read_as_a_task_of_the_service():
    record = ecs.Task(
        task_arn="arn:aws:ecs:eu-west-1:1:task/c/abc",
        started_by="ecs-svc/1",
        last_status="RUNNING",
        desired_status="RUNNING",
        health_status="UNHEALTHY",
        created_at=1,
        started_at=2,
        container_instance_arn="arn:i",
        availability_zone="eu-west-1a",
    )
    task = seen(record, checked=True, leaving=True)
    assert (task.id, task.deployment, task.stage, task.health) == ("abc", "ecs-svc/1", "RUNNING", "UNHEALTHY")
    assert (task.host, task.zone, task.leaving, task.live) == ("arn:i", "eu-west-1a", True, True)
    assert seen(record, checked=False).health == Health.UNCHECKED
    told = ecs.Task(last_status="RUNNING", desired_status="STOPPED")
    assert seen(told, checked=False).stage == Stage.STOPPING
    over = ecs.Task(last_status="STOPPED", desired_status="STOPPED", started_at=5, stopped_at=10)
    assert healthy_since(seen(over, checked=False), ECS) == 0
    assert seen(ecs.Task(last_status="PENDING", desired_status="RUNNING"), checked=True).stage == Stage.STARTING
