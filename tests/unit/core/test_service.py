"""Stories of single services: rolling, scaling, failing, draining; in the words and numbers of ECS."""

from __future__ import annotations

import sys

import pytest

from sexton.core import service, verdict
from sexton.core.breaker import Breaker
from sexton.core.deployment import Deployment
from sexton.core.pace import ECS
from sexton.core.servicetask import Health, ServiceTask, Stage
from sexton.core.serviceview import ServiceView, Terms, terms
from sexton.core.speech import Speech
from sexton.wire import ecs
from unit.core.service_cluster import Cluster, replace

ROLLING_BACK = Breaker(enabled=True, rollback=True)


def steady(**fields: object) -> Cluster:
    cluster = Cluster(Terms(**fields))
    assert cluster.until(cluster.steady)
    cluster.look()
    cluster.events.clear()
    return cluster


def stages(cluster: Cluster, deployment: str) -> list[str]:
    return sorted(task.stage for task in cluster.of(deployment))


def test_a_service_comes_up_and_says_so():
    cluster = Cluster(Terms(desired=2))
    assert [start.count for start in cluster.look().starts] == [2]
    assert cluster.rollout.status == "IN_PROGRESS"
    for task in cluster.in_stage(Stage.STARTING):
        cluster.run(task)
    cluster.now += 39
    assert cluster.look().why == ("2 tasks not healthy yet; at least 2 must stay healthy.",)
    assert cluster.next_look_at == cluster.now + 1
    cluster.now += 1
    cluster.look()
    assert cluster.events == [
        "(service web) (deployment ecs-svc/1) deployment completed.",
        "(service web) has reached a steady state.",
    ]
    assert cluster.primary.reason == "ECS deployment ecs-svc/1 completed."
    assert cluster.records[-1].status == "SUCCESSFUL"
    assert cluster.records[-1].finished_at == cluster.now
    assert cluster.decision.counts["ecs-svc/1"] == (2, 0)


def test_the_steady_state_is_said_again_every_six_hours():
    cluster = steady(desired=1)
    cluster.now = cluster.next_look_at - 1
    assert not cluster.look().stores
    cluster.now += 1
    assert cluster.look().events == ("(service web) has reached a steady state.",)


def test_four_new_start_before_four_old_stop():
    cluster = steady(desired=4)
    new = cluster.deploy()
    decision = cluster.look()
    assert [(start.deployment, start.count) for start in decision.starts] == [(new, 4)]
    assert not decision.stops
    cluster.work()
    cluster.now += 40
    assert [len(stop.tasks) for stop in cluster.look().stops] == [4]
    assert len(cluster.deployments) == 2
    assert cluster.until(cluster.steady)
    assert [one.id for one in cluster.deployments] == [new]


def test_what_runs_and_has_yet_to_prove_itself_keeps_up_the_minimum():
    """Who waits until every task runs and then deploys again, as a client of ECS does, loses none of them for it."""
    cluster = Cluster(Terms(desired=10, minimum_percent=80, maximum_percent=130))
    cluster.look()
    for task in cluster.in_stage(Stage.STARTING):
        cluster.run(task)
    new = cluster.deploy()

    def done() -> bool:
        assert len(cluster.in_stage(Stage.RUNNING)) >= 8
        return cluster.steady()

    assert cluster.until(done)
    assert [one.id for one in cluster.deployments] == [new]


def test_what_runs_of_a_new_revision_replaces_nothing_before_it_is_healthy():
    """Its first tasks may run for a moment only; what they were to replace had just begun to run, and goes on."""
    cluster = Cluster(Terms(desired=10, minimum_percent=80, maximum_percent=130))
    cluster.look()
    for task in cluster.in_stage(Stage.STARTING):
        cluster.run(task)
    new = cluster.deploy()
    cluster.look()
    assert len(cluster.in_stage(Stage.RUNNING)) == 8
    for task in cluster.in_stage(Stage.STARTING):
        cluster.run(task)
    cluster.now += 1
    assert not cluster.look().stops
    for task in cluster.of(new):
        cluster.end(task.id)
    assert len(cluster.in_stage(Stage.RUNNING)) == 8
    assert cluster.until(cluster.steady)
    assert [one.id for one in cluster.deployments] == [new]


def test_half_may_stop_first_where_there_is_no_room():
    cluster = steady(desired=4, minimum_percent=50, maximum_percent=100)
    cluster.deploy()
    decision = cluster.look()
    assert (len(decision.starts), [len(stop.tasks) for stop in decision.stops]) == (0, [2])
    assert not cluster.look().acts  # what is stopping makes the room already
    cluster.work()
    assert [start.count for start in cluster.look().starts] == [2]


def test_a_single_task_is_exchanged_at_a_standstill_if_it_must():
    cluster = steady(desired=1, minimum_percent=0, maximum_percent=100)
    new = cluster.deploy()
    assert [len(stop.tasks) for stop in cluster.look().stops] == [1]
    cluster.work()
    assert [start.deployment for start in cluster.look().starts] == [new]


def test_bounds_that_allow_nothing_are_spoken_of():
    cluster = steady(desired=1, minimum_percent=100, maximum_percent=100)
    cluster.deploy()
    decision = cluster.look()
    assert decision.events == (
        "(service web) was unable to stop or start tasks during a deployment because of the service deployment "
        "configuration. Update the minimumHealthyPercent or maximumPercent value and try again.",
    )
    assert decision.why[-1].startswith("Nothing may be started or stopped")
    assert not cluster.look().events
    cluster.terms = replace(cluster.terms, maximum_percent=200)
    assert cluster.until(cluster.steady)


def test_a_third_deployment_while_the_second_is_under_way():
    cluster = steady(desired=2)
    cluster.deploy(good=False)
    cluster.look()
    newest = cluster.deploy()
    assert cluster.records[-1].status == "STOPPED"
    assert cluster.until(cluster.steady)
    assert cluster.primary.id == newest


def test_a_lost_task_of_the_old_revision_is_replaced_by_its_own():
    cluster = steady(desired=2)
    old = cluster.primary.id
    cluster.deploy(good=False)
    cluster.look()
    cluster.end(cluster.of(old)[0].id)
    assert [(start.deployment, start.count) for start in cluster.look().starts] == [(old, 1)]


def test_what_keeps_up_the_minimum_is_replaced_first():
    cluster = steady(desired=4, minimum_percent=50, maximum_percent=100)
    old = cluster.primary.id
    new = cluster.deploy()
    cluster.look()
    for task in cluster.in_stage(Stage.STOPPING):
        cluster.end(task)
    cluster.look()
    assert (len(cluster.of(old)), len(cluster.of(new))) == (2, 2)
    cluster.end(cluster.of(old)[0].id, "UserInitiated")
    cluster.end(cluster.of(new)[0].id, "UserInitiated")
    assert [(start.deployment, start.count) for start in cluster.look().starts] == [(new, 1), (old, 1)]


def test_a_deployment_is_not_done_while_anything_older_is_there():
    cluster = steady(desired=2)
    kept = cluster.in_stage(Stage.RUNNING)[0]
    cluster.tasks[kept] = replace(cluster.tasks[kept], protected_until=cluster.now + 500)
    cluster.deploy()
    for _ in range(5):
        cluster.look()
        cluster.work()
        cluster.now += 41
    assert [task.id for task in cluster.of("ecs-svc/1")] == [kept]
    assert cluster.primary.rollout == "IN_PROGRESS"
    assert cluster.until(cluster.steady)


def test_a_service_grows_in_what_serves_it():
    cluster = steady(desired=2)
    old = cluster.primary.id
    cluster.deploy(good=False)
    cluster.look()
    cluster.terms = replace(cluster.terms, desired=4)
    cluster.look()
    assert len(cluster.of(old)) == 4


def test_the_breaker_rolls_back():
    cluster = steady(desired=2, breaker=ROLLING_BACK)
    old = cluster.primary.id
    bad = cluster.deploy(good=False)
    assert cluster.until(lambda: bool(cluster.rollbacks))
    assert cluster.rollbacks[0][:3] == (bad, old, "rev-1")
    assert cluster.primary.id == old
    assert cluster.primary.reason == f"ECS deployment circuit breaker: rolling back to deploymentId {old}."
    assert cluster.rollout.status == "ROLLBACK_IN_PROGRESS"
    assert cluster.rollout.rollback.service_revision_arn == "rev-1"
    assert (
        cluster.rollout.deployment_circuit_breaker.status,
        cluster.rollout.deployment_circuit_breaker.threshold,
    ) == (
        "TRIGGERED",
        3,
    )
    assert cluster.until(cluster.steady)
    assert cluster.records[-1].status == "ROLLBACK_SUCCESSFUL"
    assert cluster.records[-1].status_reason == (
        "Service deployment rolled back because the circuit breaker threshold was exceeded."
    )
    expected = [
        f"(service web) (deployment {bad}) deployment failed: tasks failed to start.",
        f"(service web) rolling back to deployment {old}.",
        f"(service web) (deployment {old}) deployment completed.",
    ]
    assert [event for event in cluster.events if event in expected] == expected


def test_a_breaker_without_rollback_stops_starting():
    cluster = steady(desired=2, breaker=Breaker(enabled=True))
    old = cluster.primary.id
    bad = cluster.deploy(good=False)
    assert cluster.until(lambda: cluster.primary.frozen)
    assert cluster.primary.id == bad
    assert cluster.primary.reason == "ECS deployment circuit breaker: tasks failed to start."
    assert cluster.records[-1].status == "STOPPED"
    cluster.until(lambda: False, looks=20)
    assert (stages(cluster, old), stages(cluster, bad)) == (["RUNNING", "RUNNING"], [])
    cluster.deploy()
    assert cluster.until(cluster.steady)


def test_a_first_deployment_has_nothing_to_go_back_to():
    cluster = Cluster(Terms(desired=2, breaker=ROLLING_BACK), good=False)
    assert cluster.until(lambda: cluster.primary.frozen)
    assert not cluster.rollbacks
    assert cluster.records[-1].status == "ROLLBACK_FAILED"
    assert not cluster.look().acts


def test_a_rollback_that_fails_as_well_ends_there():
    cluster = steady(desired=1, breaker=ROLLING_BACK, minimum_percent=0, maximum_percent=100)
    cluster.good["rev-1"] = False
    cluster.deploy(good=False)
    assert cluster.until(lambda: cluster.primary.frozen)
    assert cluster.records[-1].status == "ROLLBACK_FAILED"


def test_a_rollback_does_not_go_further_back():
    failing = Deployment(id="d3", revision="r3", created_at=3, updated_at=3, desired=1, failed_tasks=9)
    older = Deployment(
        id="d1", revision="r1", status="ACTIVE", rollout="COMPLETED", created_at=1, updated_at=1, desired=1
    )
    record = ecs.ServiceDeployment(status="ROLLBACK_IN_PROGRESS")
    speech = Speech((), ECS, 10)
    after = verdict.judge("web", (failing, older), record, ROLLING_BACK, 1, speech, 10)
    assert (after.rollback, after.rollout.status) == (None, "ROLLBACK_FAILED")
    assert after.deployments[0].frozen
    first = verdict.judge("web", (failing, older), replace(record, status="IN_PROGRESS"), ROLLING_BACK, 1, speech, 10)
    assert first.rollback.deployment == "d1"


def test_failing_checks_trip_the_breaker():
    cluster = steady(desired=1, breaker=Breaker(enabled=True, rollback=True, kind="COUNT", value=2))
    bad = cluster.deploy(checked=True)
    sick = 0
    for _ in range(200):
        cluster.look()
        for task in cluster.of(bad):
            if task.stage == Stage.STARTING:
                cluster.run(task.id)
            elif task.stage == Stage.STOPPING:
                cluster.end(task.id)
            elif task.health == Health.UNKNOWN:
                cluster.check(task.id, Health.UNHEALTHY)
                sick += 1
        cluster.now += 5
        if cluster.rollbacks:
            break
    assert cluster.rollbacks
    assert sick == 2
    assert any("failed container health checks." in event for event in cluster.events)


def test_an_unhealthy_task_is_replaced_before_it_is_stopped():
    cluster = Cluster(Terms(desired=2))
    cluster.deploy(checked=True)
    assert cluster.until(cluster.steady)
    victim = cluster.of(cluster.primary.id)[0].id
    # Protection is from scaling and deployments, not from sickness.
    cluster.tasks[victim] = replace(cluster.tasks[victim], protected_until=cluster.now + 1e6)
    cluster.check(victim, Health.UNHEALTHY)
    decision = cluster.look()
    assert [(start.count, start.replaces_unhealthy) for start in decision.starts] == [(1, 1)]
    assert not decision.stops
    fresh = cluster.in_stage(Stage.STARTING)[0]
    cluster.run(fresh)
    assert not cluster.look().acts
    cluster.check(fresh, Health.HEALTHY)
    (stop,) = cluster.look().stops
    assert (stop.tasks, stop.reason) == ((victim,), "Task failed container health checks")


def test_the_grace_period_overlooks_an_early_failure():
    cluster = Cluster(Terms(desired=1, grace=120))
    cluster.deploy(checked=True)
    cluster.look()
    (task,) = cluster.in_stage(Stage.STARTING)
    cluster.run(task)
    cluster.check(task, Health.UNHEALTHY)
    cluster.now += 119
    assert not cluster.look().acts
    assert cluster.next_look_at == cluster.now + 1
    cluster.now += 1
    assert cluster.look().starts


def test_a_crash_loop_is_slowed_down_and_recovers_at_once():
    cluster = Cluster(Terms(desired=1), good=False)
    cluster.until(lambda: cluster.primary.strikes >= 8)
    assert "(service web) is unable to consistently start tasks successfully." in cluster.events
    begun = cluster.now
    cluster.until(lambda: cluster.primary.strikes >= 12)
    assert cluster.now - begun > 4 * 600
    cluster.good["rev-1"] = True
    assert cluster.until(cluster.steady)
    assert cluster.primary.strikes == 0


def test_no_room_is_said_once_and_tried_again_when_there_is():
    cluster = Cluster(Terms(desired=2), good=True, room=1)
    cluster.look()
    cluster.look()
    text = "(service web) was unable to place a task because no container instance met all of its requirements."
    assert cluster.events.count(text) == 1
    cluster.now += 5
    cluster.room, cluster.room_since = 2, cluster.now
    assert [start.count for start in cluster.look().starts] == [1]
    assert cluster.until(cluster.steady)


def test_a_full_cluster_is_rolled_within_the_minimum():
    cluster = steady(desired=4, minimum_percent=50)
    cluster.room = 4
    cluster.deploy()
    cluster.look()
    assert [len(stop.tasks) for stop in cluster.look().stops] == [2]
    assert cluster.until(cluster.steady)


def test_scaling_in_keeps_zones_even_and_takes_the_youngest():
    cluster = Cluster(Terms(desired=5), hosts={"h1": "a", "h2": "a", "h3": "b"})
    assert cluster.until(cluster.steady)
    cluster.terms = replace(cluster.terms, desired=2)
    (stop,) = cluster.look().stops
    assert stop.reason == "Scaling activity initiated by (deployment ecs-svc/1)"
    left = [task.zone for task in cluster.present() if task.live]
    assert sorted(left) == ["a", "b"]
    assert cluster.events[-1].startswith("(service web) has stopped 3 running tasks: (task ")


def test_protected_tasks_wait_for_their_time():
    cluster = steady(desired=3)
    for task in cluster.in_stage(Stage.RUNNING)[:2]:
        cluster.tasks[task] = replace(cluster.tasks[task], protected_until=cluster.now + 100)
    cluster.terms = replace(cluster.terms, desired=0)
    assert [len(stop.tasks) for stop in cluster.look().stops] == [1]
    assert cluster.events[-1] == (
        "(service web, taskSet ecs-svc/1) was unable to scale in due to (reason 2 tasks under protection)"
    )
    assert cluster.next_look_at == cluster.now + 100
    cluster.now += 100
    assert [len(stop.tasks) for stop in cluster.look().stops] == [2]


def test_a_draining_host_gives_its_tasks_away_first():
    cluster = Cluster(Terms(desired=3))
    assert cluster.until(cluster.steady)
    cluster.leaving.add("h1")
    moved = sum(task.host == "h1" for task in cluster.present())
    assert [start.count for start in cluster.look().starts] == [moved]
    assert not cluster.decision.stops
    assert cluster.until(cluster.steady)
    assert all(task.host != "h1" for task in cluster.present())


def test_what_has_not_started_leaves_a_draining_host_at_once():
    cluster = Cluster(Terms(desired=3))
    cluster.look()
    cluster.leaving.add("h1")
    assert [stop.why for stop in cluster.look().stops] == ["leaving"]


def test_a_user_stops_a_deployment():
    cluster = steady(desired=2)
    old = cluster.primary.id
    cluster.deploy(good=False)
    cluster.look()
    cluster.request_stop("ROLLBACK")
    assert cluster.rollout.status == "ROLLBACK_REQUESTED"
    cluster.request_stop("ROLLBACK")
    cluster.look()
    assert cluster.primary.id == old
    assert cluster.until(cluster.steady)
    assert cluster.records[-1].status == "ROLLBACK_SUCCESSFUL"


def test_an_aborted_deployment_leaves_everything_as_it_is():
    cluster = steady(desired=2)
    new = cluster.deploy()
    cluster.look()
    cluster.request_stop("ABORT")
    cluster.look()
    assert cluster.primary.frozen
    assert cluster.records[-1].status == "STOPPED"
    assert len(cluster.of(new)) == 2
    cluster.until(lambda: False, looks=3)
    assert not cluster.decision.starts


def test_a_deleted_service_goes_when_its_last_task_has_ended():
    cluster = steady(desired=2)
    task = cluster.in_stage(Stage.RUNNING)[0]
    cluster.tasks[task] = replace(cluster.tasks[task], protected_until=cluster.now + 1e6)
    cluster.deleting = True
    assert [len(stop.tasks) for stop in cluster.look().stops] == [2]
    assert not cluster.ended
    assert not cluster.look().acts
    cluster.work()
    cluster.look()
    assert cluster.ended


def test_a_task_of_a_forgotten_deployment_is_stopped():
    cluster = steady(desired=1)
    stray = replace(cluster.tasks[cluster.in_stage(Stage.RUNNING)[0]], id="stray", deployment="ecs-svc/gone")
    cluster.tasks["stray"] = stray
    assert [stop.tasks for stop in cluster.look().stops] == [("stray",)]


def test_zones_are_evened_out_by_starting_first():
    cluster = Cluster(Terms(desired=6, rebalancing=True), hosts={"h1": "a"})
    assert cluster.until(cluster.steady)
    cluster.hosts["h2"] = "b"
    (start,) = cluster.look().starts
    assert (start.count, start.zone) == (3, "b")
    assert cluster.events[-1] == (
        "(service web) is not AZ balanced with 6 tasks in a, and 0 tasks in b. AZ Rebalancing in progress."
    )
    assert not cluster.decision.stops
    assert cluster.until(lambda: cluster.steady() and not cluster.memory.rebalance)
    cluster.until(lambda: "(service web) is AZ balanced with 3 tasks in a, and 3 tasks in b." in cluster.events)
    zones = [task.zone for task in cluster.present()]
    assert (zones.count("a"), zones.count("b")) == (3, 3)
    assert any("due to AZ rebalancing: (task " in event for event in cluster.events)


def test_zones_are_left_alone_without_room_above_the_desired_count():
    cluster = Cluster(Terms(desired=6, rebalancing=True, maximum_percent=100), hosts={"h1": "a"})
    assert cluster.until(cluster.steady)
    cluster.hosts["h2"] = "b"
    assert not cluster.look().acts


def test_a_move_that_finds_no_room_is_not_tried_again_soon():
    cluster = Cluster(Terms(desired=4, rebalancing=True), hosts={"h1": "a"}, room=4)
    assert cluster.until(cluster.steady)
    cluster.hosts["h2"] = "b"
    assert cluster.look().starts
    assert not cluster.look().acts
    assert cluster.primary.failed_tasks == 0
    cluster.now += cluster.pace.rebalance_patience
    assert cluster.look().starts


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ecs.Service(desired_count=3), Terms(desired=3)),
        (
            ecs.Service(scheduling_strategy="DAEMON"),
            Terms(daemon=True, minimum_percent=0, maximum_percent=100),
        ),
        (
            ecs.Service(
                desired_count=1,
                deployment_controller=ecs.DeploymentController(type="EXTERNAL"),
                deployment_configuration=ecs.DeploymentConfiguration(minimum_healthy_percent=0, maximum_percent=150),
                health_check_grace_period_seconds=7,
                availability_zone_rebalancing="ENABLED",
            ),
            Terms(desired=1, external=True, minimum_percent=0, maximum_percent=150, grace=7.0, rebalancing=True),
        ),
    ],
)
def test_terms_are_read_with_the_defaults_of_the_service(record, expected):
    assert terms(record) == expected


def calls_of_a_decision(count: int) -> int:
    """How many function calls a decision about a service in the middle of everything makes."""
    cluster = Cluster(Terms(desired=count, rebalancing=True))
    old = cluster.primary.id
    new = cluster.deploy()
    cluster.deployments = tuple(
        replace(one, rollout="COMPLETED") if one.id == old else one for one in cluster.deployments
    )
    cluster.tasks = {
        f"t{number}": ServiceTask(
            id=f"t{number}",
            deployment=(old, new)[number % 2],
            stage=(Stage.RUNNING, Stage.STARTING, Stage.STOPPING, Stage.STOPPED)[number % 7 % 4],
            created_at=float(number),
            started_at=100.0 if number % 7 % 4 == 0 else 0.0,
            host=f"h{number % 50}",
            zone="abc"[number % 3],
            leaving=number % 11 == 0,
        )
        for number in range(2 * count)
    }
    view: ServiceView = cluster.view()
    made = 0

    def count_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        decision = service.decide(view, 1000.0)
    finally:
        sys.setprofile(None)
    assert decision.acts
    return made


def test_a_decision_costs_as_much_as_the_service_has_tasks():
    few, many = calls_of_a_decision(250), calls_of_a_decision(2000)
    assert many < few * 8 * 1.3
