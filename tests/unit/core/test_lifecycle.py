"""A task's record: who ended it first, what a report adds, and that nothing it says twice counts twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import attachment, lifecycle
from sexton.core.lifecycle import StopCode
from sexton.wire import ecs


def record(*names, **fields):
    containers = tuple(ecs.Container(name=name, last_status="PENDING") for name in names or ("app",))
    return ecs.Task(containers=containers, last_status="PENDING", desired_status="RUNNING", version=1, **fields)


def change(status=None, reason=None, **containers):
    """A report: containers by name with (status, exit code, reason)."""
    told = tuple(
        ecs.ContainerStateChange(container_name=name, status=one[0], exit_code=one[1], reason=one[2])
        for name, one in containers.items()
    )
    return ecs.SubmitTaskStateChangeRequest(status=status, reason=reason, containers=told)


RUNNING = ("RUNNING", None, None)


def told(task, *changes, essential=("app",)):
    for index, one in enumerate(changes):
        task = lifecycle.report(task, one, essential, 100.0 + index)
    return task


def test_a_task_that_runs_and_exits():
    task = told(record(), change("RUNNING", app=RUNNING), change("STOPPED", app=("STOPPED", 3, None)))

    assert (task.last_status, task.desired_status) == ("STOPPED", "STOPPED")
    assert (task.stop_code, task.stopped_reason) == ("EssentialContainerExited", "Essential container in task exited")
    assert (task.started_at, task.stopping_at, task.stopped_at) == (100.0, 101.0, 101.0)
    assert task.containers[0].exit_code == 3


@pytest.mark.parametrize(
    "what",
    ["CannotPullContainerError: no such image", "CannotStartContainerError: exec not found"],
)
def test_a_task_that_never_ran_says_why(what):
    task = told(record(), change("STOPPED", app=("STOPPED", None, what)))

    assert (task.stop_code, task.stopped_reason) == ("TaskFailedToStart", what)


def test_the_first_word_on_why_stands():
    asked = lifecycle.stop(record(), StopCode.USER, "enough", 50.0)
    task = told(asked, change("STOPPED", "other", app=("STOPPED", 137, None)))

    assert (task.stop_code, task.stopped_reason, task.stopping_at) == ("UserInitiated", "enough", 50.0)
    assert lifecycle.stop(task, StopCode.USER, "again", 60.0) is task


def test_an_essential_end_decides_before_the_task_is_over():
    task = told(record("app", "side"), change("RUNNING", app=("STOPPED", 0, None), side=RUNNING))

    assert (task.last_status, task.desired_status) == ("RUNNING", "STOPPED")
    assert task.stopped_at is None


def test_a_side_container_may_end():
    task = told(record("app", "side"), change("RUNNING", app=RUNNING, side=("STOPPED", 1, None)))

    assert (task.desired_status, task.stop_code) == ("RUNNING", None)


def test_a_stopped_task_and_a_stopped_container_stay_as_they_are():
    ended = told(record("app", "side"), change("STOPPED", app=("STOPPED", 1, None)))

    assert {one.last_status for one in ended.containers} == {"STOPPED"}
    assert told(ended, change("RUNNING", app=RUNNING)) is ended

    half = told(record("app", "side"), change("RUNNING", side=("STOPPED", 4, None)))
    late = told(half, change("RUNNING", side=("RUNNING", None, "late")))
    assert late.containers[1] == half.containers[1]


def test_a_report_without_news_gives_the_same_record():
    one = change("RUNNING", app=RUNNING)
    task = told(record(), one)

    assert told(task, one) is task
    assert told(task, change("PENDING"), change("NONSENSE"), change(other=RUNNING)) is task


def test_each_change_has_its_version():
    task = told(record(), change("RUNNING", app=RUNNING))

    assert task.version == 2
    assert lifecycle.stop(task, StopCode.USER, "x", 1.0).version == 3


def plugged(**fields):
    """The record of a task that has just got its interface."""
    port = attachment.Port("a1", "subnet-1", "eni-1", "02:00:00:00:00:01", "ip-10-0-0-9.ec2.internal", "10.0.0.9")
    return attachment.attached(record(**fields), port)


def attached(arn="arn:aws:ecs:us-east-1:1:attachment/a1", status=None):
    there = ecs.AttachmentStateChange(attachment_arn=arn, status="ATTACHED")
    return ecs.SubmitTaskStateChangeRequest(status=status, attachments=(there,))


def stages(task, *changes):
    """Where the task and its attachment are after each report."""
    seen = [(task.last_status, task.attachments[0].status)]
    for index, one in enumerate(changes):
        task = lifecycle.report(task, one, ("app",), 100.0 + index)
        seen.append((task.last_status, task.attachments[0].status))
    return seen


def test_a_task_with_an_interface_is_made_ready_before_and_taken_down_after():
    over = ("STOPPED", 0, None)
    assert stages(
        plugged(), attached(), change("RUNNING", app=RUNNING), change("DEPROVISIONING", app=over), change("STOPPED")
    ) == [
        ("PROVISIONING", "ATTACHING"),
        ("PENDING", "ATTACHED"),
        ("RUNNING", "ATTACHED"),
        ("DEPROVISIONING", "DETACHING"),
        ("STOPPED", "DELETED"),
    ]


def test_it_is_provisioning_for_as_long_as_its_interface_is_not_there():
    elsewhere = attached("arn:aws:ecs:us-east-1:1:attachment/another")
    assert stages(plugged(), change("PENDING"), elsewhere, attached(status="PENDING")) == [
        ("PROVISIONING", "ATTACHING"),
        ("PROVISIONING", "ATTACHING"),
        ("PROVISIONING", "ATTACHING"),
        ("PENDING", "ATTACHED"),
    ]


@pytest.mark.parametrize("last", ["RUNNING", "STOPPED"])
def test_an_agent_that_says_nothing_of_the_interface_is_understood(last):
    status = "ATTACHED" if last == "RUNNING" else "DELETED"
    assert stages(plugged(), change(last, app=(last, None, None)))[-1] == (last, status)


def test_a_task_that_is_taken_down_has_its_end_decided_already():
    task = told(plugged(), change("RUNNING", app=RUNNING), change("DEPROVISIONING", app=("STOPPED", 3, None)))

    assert (task.desired_status, task.stop_code, task.stopped_at) == ("STOPPED", "EssentialContainerExited", None)
    assert told(task, attached(), change("RUNNING")) is task
    assert not lifecycle.waits(task)


def test_pull_times_never_go_back():
    times = [(5.0, 6.0), (7.0, 9.0), (7.0, 8.0)]
    task = record()
    for started, stopped in times:
        more = ecs.SubmitTaskStateChangeRequest(pull_started_at=started, pull_stopped_at=stopped)
        task = lifecycle.report(task, more, (), 1.0)

    assert (task.pull_started_at, task.pull_stopped_at) == (5.0, 9.0)


def test_a_task_whose_host_is_gone_ends_once():
    task = lifecycle.never_started(lifecycle.stop(record(), StopCode.USER, "x", 1.0), 2.0)

    assert (task.last_status, task.stopped_at, task.containers[0].last_status) == ("STOPPED", 2.0, "STOPPED")
    assert lifecycle.never_started(task, 9.0) is task


_words = st.sampled_from(["PENDING", "RUNNING", "STOPPED", "", "ODD"])
_changes = st.builds(
    change,
    _words,
    st.sampled_from([None, "why"]),
    app=st.tuples(_words, st.none() | st.integers(0, 255), st.sampled_from([None, "r"])),
    side=st.tuples(_words, st.none() | st.integers(0, 255), st.none()),
)
_RANK = {"PENDING": 0, "RUNNING": 1, "STOPPED": 2}


@given(st.lists(_changes, max_size=12))
def test_whatever_agents_report_records_only_move_forward(changes):
    task = record("app", "side")
    for index, one in enumerate(changes):
        after = lifecycle.report(task, one, ("app",), float(index + 1))
        before = [task.last_status, *(c.last_status for c in task.containers)]
        now = [after.last_status, *(c.last_status for c in after.containers)]
        assert all(_RANK[old] <= _RANK[new] for old, new in zip(before, now, strict=True))
        assert (after == task) == (after.version == task.version)
        assert task.stop_code in (None, after.stop_code)
        if after.last_status == "STOPPED":
            assert after.stop_code and after.stopped_at and after.stopped_reason
            assert set(now) == {"STOPPED"}
        task = after


def checked(**words):
    """A task whose containers, by name, have a health check that says so much; ``None`` is no check."""
    containers = tuple(
        ecs.Container(name=name, last_status="RUNNING", health_status=word) for name, word in words.items()
    )
    return ecs.Task(containers=containers, last_status="RUNNING", health_status="UNKNOWN", version=1)


@pytest.mark.parametrize(
    "said, whole",
    [
        ({"app": "HEALTHY", "side": "HEALTHY"}, "HEALTHY"),
        ({"app": "HEALTHY", "side": "UNKNOWN"}, "UNKNOWN"),
        ({"app": "HEALTHY", "side": "UNHEALTHY"}, "UNHEALTHY"),
        ({"app": "UNKNOWN", "side": "UNHEALTHY"}, "UNHEALTHY"),
        ({"app": "HEALTHY", "side": "HEALTHY", "extra": "UNHEALTHY"}, "HEALTHY"),
        ({"extra": "HEALTHY"}, "UNKNOWN"),
    ],
)
def test_a_task_is_as_healthy_as_its_essential_containers(said, whole):
    before = checked(app="UNKNOWN", side="UNKNOWN", extra="UNKNOWN")
    after = lifecycle.health(before, said, ("app", "side"))

    assert after.health_status == whole
    assert {one.name: one.health_status for one in after.containers} == {
        "app": "UNKNOWN",
        "side": "UNKNOWN",
        "extra": "UNKNOWN",
    } | said
    assert lifecycle.health(after, said, ("app", "side")) is after


def test_nobody_speaks_for_a_container_without_a_check():
    before = checked(app=None)

    assert lifecycle.health(before, {"app": "HEALTHY"}, ("app",)) is before


def test_a_task_that_is_over_has_no_health_any_more():
    task = told(record(), change("STOPPED", app=("STOPPED", 0, None)))

    assert lifecycle.health(task, {"app": "HEALTHY"}, ("app",)) is task
