"""What is told of a task is true of it: no success is claimed for what failed."""

from __future__ import annotations

import pytest

from sexton.core.explain import explain
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
