"""Restart policies: when an end is none, what is counted, and what is never told."""

from __future__ import annotations

import pytest

from sexton.core import restart
from sexton.core import task as core
from sexton.core.task import ContainerStatus, DesiredTask, Happened, Move, Step, TaskStatus
from sexton.wire import acs_task
from unit.core.tasks_of import ARN, after, happen

POLICY = acs_task.RestartPolicy(enabled=True, ignored_exit_codes=(3,), restart_attempt_period=60)


@pytest.mark.parametrize(
    "policy, facts, why",
    [
        (POLICY, {}, ""),
        (None, {}, "restart policy is not enabled"),
        (acs_task.RestartPolicy(enabled=False), {}, "restart policy is not enabled"),
        (POLICY, {"ending": True}, "container's desired status is stopped"),
        (POLICY, {"exit_code": None}, "exit code is nil"),
        (POLICY, {"exit_code": 3}, "exit code 3 should be ignored"),
        (POLICY, {"ended_at": 159.0}, "attempt reset period has not elapsed"),
        (POLICY, {"ended_at": 160.0}, ""),
        (POLICY, {"running_since": 0.0}, "attempt reset period has not elapsed"),
        (acs_task.RestartPolicy(enabled=True), {"ended_at": 399.0}, "attempt reset period has not elapsed"),
        (acs_task.RestartPolicy(enabled=True), {"ended_at": 400.0}, ""),
    ],
)
def test_each_reason_has_its_words(policy, facts, why):
    usual = {"ending": False, "exit_code": 1, "running_since": 100.0, "ended_at": 200.0}

    assert restart.decide(policy, **(usual | facts)) == restart.Verdict(again=not why, why=why)


def running():
    one = acs_task.Container(name="a", image="i", essential=True, restart_policy=POLICY)
    wanted = DesiredTask(task=acs_task.Task(arn=ARN, containers=(one,)))
    steps = [happen("a", step) for step in (Happened.RESOLVED, Happened.PULLED, Happened.CREATED)]
    return wanted, after(wanted, *steps, happen("a", Happened.STARTED, 100.0, started_at=100.0))


def ends(at, code=1):
    return happen("a", Happened.EXITED, at, exit_code=code, finished_at=at)


def test_an_end_that_is_none_is_told_to_nobody():
    wanted, known = running()
    told = core.acknowledged(known, known)
    known = after(wanted, ends(200.0), known=told)

    assert (known.status, known.stop, known.execution_stopped_at) == (TaskStatus.RUNNING, False, 0.0)
    assert known.container("a").exit_code is None
    assert not core.unreported(known)
    assert core.plan(wanted, known) == (Move(container="a", step=Step.START),)


def test_restarts_are_counted_and_the_period_begins_anew():
    wanted, known = running()
    known = after(wanted, ends(200.0), happen("a", Happened.STARTED, 201.0, started_at=201.0), known=known)

    one = known.container("a")
    assert (one.restarts, one.restarting, one.started_at, one.running_since) == (1, False, 100.0, 201.0)
    assert core.plan(wanted, known) == ()
    assert after(wanted, ends(260.0), known=known).status is TaskStatus.STOPPED
    assert after(wanted, ends(261.0), known=known).container("a").restarting


def test_a_restart_that_nobody_saw_is_counted_as_well():
    """The process died between the start and the moment in which it would have written it down."""
    wanted, known = running()
    known = after(wanted, happen("a", Happened.STARTED, 300.0, started_at=250.0), known=known)

    assert known.container("a").restarts == 1


def test_a_clock_that_was_set_back_does_not_make_a_loop_of_it():
    wanted, known = running()
    known = after(wanted, ends(200.0), happen("a", Happened.STARTED, 50.0, started_at=50.0), known=known)

    assert core.plan(wanted, known) == ()
    assert known.container("a").running_since == 50.0


def test_a_task_that_is_to_end_keeps_the_exit_code():
    wanted, known = running()
    known = core.end(wanted, after(wanted, ends(200.0, 7), known=known), 201.0)
    assert core.plan(wanted, known) == (Move(container="a", step=Step.STOP),)

    known = after(wanted, ends(200.0, 7), known=known)

    assert (known.container("a").status, known.container("a").exit_code) == (ContainerStatus.STOPPED, 7)


def test_a_failed_restart_is_the_end():
    wanted, known = running()
    error = happen("a", Happened.GAVE_UP, 202.0, error="CannotStartContainerError: no")
    known = after(wanted, ends(200.0), error, known=known)

    assert known.status is TaskStatus.STOPPED
    assert known.container("a").reason == "CannotStartContainerError: no"
