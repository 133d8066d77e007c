"""What is told of a task is true of it: no success is claimed for what failed."""

from __future__ import annotations

import pytest

from sexton.core.evidence import Evidence, Note
from sexton.core.explain import explain, short
from sexton.wire import ecs

NOW = 1000.0
DEFINITION = ecs.TaskDefinition(container_definitions=(ecs.ContainerDefinition(name="app", image="i"),))
INSTANCE = ecs.ContainerInstance(agent_connected=True)


def told(container=None, **fields):
    one = ecs.Container(**({"name": "app", "last_status": "STOPPED"} | (container or {})))
    task = ecs.Task(
        task_arn="arn:aws:ecs:eu-west-1:1:task/default/t1",
        task_definition_arn="arn:aws:ecs:eu-west-1:1:task-definition/web:3",
        container_instance_arn="arn:aws:ecs:eu-west-1:1:container-instance/default/i1",
        containers=(one,),
        created_at=NOW - 100,
        **fields,
    )
    answer = explain(task, DEFINITION, INSTANCE, NOW)
    return answer.headline, " ".join(answer.causes), " ".join(answer.next_steps)


def test_an_image_that_could_not_be_pulled_was_never_ready():
    headline, causes, next_steps = told(
        {"reason": "CannotPullContainerError: denied"},
        last_status="STOPPED",
        desired_status="STOPPED",
        stop_code="TaskFailedToStart",
        stopped_reason="CannotPullContainerError: denied",
        pull_started_at=NOW - 90,
        pull_stopped_at=NOW - 75,
        stopped_at=NOW - 75,
    )

    assert "CannotPullContainerError: denied" in headline
    assert "not all could be pulled" in causes
    assert "ready" not in causes
    assert "never reached RUNNING" in causes
    assert "docker pull" in next_steps


@pytest.mark.parametrize("code, word", [(0, "success"), (137, "KILL"), (143, "TERM")])
def test_an_exit_code_is_put_into_words(code, word):
    _, causes, _ = told(
        {"exit_code": code},
        last_status="STOPPED",
        desired_status="STOPPED",
        stop_code="EssentialContainerExited",
        stopped_reason="Essential container in task exited",
        pull_started_at=NOW - 90,
        pull_stopped_at=NOW - 89,
        started_at=NOW - 88,
        stopped_at=NOW - 8,
    )

    assert "ready" in causes
    assert f"exit code {code}" in causes
    assert word in causes


def test_a_task_that_waits_for_a_lost_agent_says_so():
    task = ecs.Task(
        task_arn="arn:aws:ecs:eu-west-1:1:task/default/t1",
        container_instance_arn="arn:aws:ecs:eu-west-1:1:container-instance/default/i1",
        containers=(ecs.Container(name="app", last_status="PENDING"),),
        last_status="PENDING",
        desired_status="RUNNING",
        created_at=NOW - 100,
    )
    answer = explain(task, DEFINITION, ecs.ContainerInstance(agent_connected=False), NOW)

    assert "PENDING" in answer.headline
    assert any("connected" in step for step in answer.next_steps)


def test_a_task_of_which_nothing_is_known_is_explained_as_such():
    answer = explain(ecs.Task(), None, None, NOW)

    assert answer.headline
    assert "None" not in " ".join((answer.headline, *answer.causes, *answer.next_steps))


def waiting_task(**fields):
    return ecs.Task(
        task_arn="arn:aws:ecs:eu-west-1:1:task/default/t1",
        task_definition_arn="arn:aws:ecs:eu-west-1:1:task-definition/web:3",
        containers=(ecs.Container(name="app", last_status="PENDING", image="app:1"),),
        last_status="PENDING",
        desired_status="RUNNING",
        created_at=NOW - 100,
        **fields,
    )


def test_what_its_host_remembers_is_told_in_order_with_what_happened_around():
    evidence = Evidence(
        since=NOW - 500,
        waiting=("It has waited 90 s for this host to have free: MEMORY.",),
        notes=(
            Note(at=NOW - 99, text="this host took it in"),
            Note(at=NOW - 50, text="'pull' of container app got no answer and is tried again: no", times=3),
        ),
        host=(
            Note(at=NOW - 60, text="the container engine went away: gone"),
            Note(at=NOW - 40, text="the pull of other:1 failed, attempt 1: no"),
            Note(at=NOW - 30, text="the pull of app:1 failed, attempt 1: no"),
        ),
    )
    answer = explain(waiting_task(), DEFINITION, INSTANCE, NOW, evidence)

    assert answer.causes[-1] == answer.reason == "It has waited 90 s for this host to have free: MEMORY."
    assert answer.on_host == (
        "99.0 s ago: this host took it in.",
        "60.0 s ago: the container engine went away: gone.",
        "50.0 s ago: 'pull' of container app got no answer and is tried again: no (3 times).",
        "30.0 s ago: the pull of app:1 failed, attempt 1: no.",
    )
    assert any("engine" in step for step in answer.next_steps)


def test_a_memory_that_begins_later_says_so():
    answer = explain(waiting_task(), DEFINITION, INSTANCE, NOW, Evidence(since=NOW - 5))

    assert answer.on_host == ("5.0 s ago: the agent began; what was before is in its log.",)


def test_a_task_on_no_host_yet():
    causes = " ".join(explain(waiting_task(), DEFINITION, None, NOW).causes)

    assert "on no container instance yet" in causes and "registered" not in causes


@pytest.mark.parametrize(
    "fields, container, reason",
    [
        ({"last_status": "RUNNING", "desired_status": "RUNNING"}, {}, ""),
        (
            {"last_status": "STOPPED", "stopped_reason": "Essential container in task exited"},
            {"exit_code": 3},
            "Essential container in task exited (app with exit code 3)",
        ),
        (
            {"last_status": "STOPPED", "stopped_reason": "Essential container in task exited"},
            {"exit_code": 137, "reason": "OutOfMemoryError: Container killed due to memory usage"},
            "Essential container in task exited: OutOfMemoryError: Container killed due to memory usage",
        ),
        ({"last_status": "STOPPED", "stopped_reason": "X: y"}, {"reason": "X: y"}, "X: y"),
        ({"last_status": "PENDING", "desired_status": "RUNNING"}, {"reason": "CannotPull: z"}, "CannotPull: z"),
    ],
)
def test_the_reason_in_one_sentence(fields, container, reason):
    assert short(ecs.Task(containers=(ecs.Container(name="app", **container),), **fields)) == reason
