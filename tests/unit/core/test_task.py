"""The table of a task's life: what each event does, when a task ends, what is planned and what is reported."""

from __future__ import annotations

import pytest

from sexton.core import task as core
from sexton.core.task import Binding, ContainerStatus, Happened, Move, Step, TaskStatus
from unit.core.tasks_of import ARN, after, desired, happen

C, H, T = ContainerStatus, Happened, TaskStatus
TO_RUNNING = (H.RESOLVED, H.PULLED, H.CREATED, H.STARTED)


def statuses(known):
    return {one.name: one.status for one in known.containers}


def bring(name, *happened, start=1.0):
    return [happen(name, one, start + index) for index, one in enumerate(happened)]


@pytest.mark.parametrize(
    "event, reached",
    [
        (H.RESOLVED, C.MANIFEST_PULLED),
        (H.PULLED, C.PULLED),
        (H.CREATED, C.CREATED),
        (H.STARTED, C.RUNNING),
        (H.EXITED, C.STOPPED),
        (H.VANISHED, C.STOPPED),
        (H.GAVE_UP, C.STOPPED),
    ],
)
def test_an_event_raises_what_is_below_it_and_leaves_the_rest(event, reached):
    for status in C:
        assert core.TRANSITIONS[status, event] is (reached if status.rank < reached.rank else status)


def test_every_status_and_event_has_its_place_in_the_table():
    assert set(core.TRANSITIONS) == {(status, event) for status in C for event in H}
    assert {core.TRANSITIONS[C.STOPPED, event] for event in H} == {C.STOPPED}


@pytest.mark.parametrize("status, step", [(None, Step.RESOLVE), *zip(TO_RUNNING[:3], list(Step)[1:4], strict=True)])
def test_a_container_that_should_run_takes_the_next_step(status, step):
    wanted = desired(a=True)
    known = after(wanted, *([happen("a", status)] if status else []))

    assert core.plan(wanted, known) == (Move(container="a", step=step),)


def test_a_running_task_has_nothing_to_do():
    wanted = desired(a=True)

    assert core.plan(wanted, after(wanted, *bring("a", *TO_RUNNING))) == ()


def test_a_task_is_as_far_as_its_slowest_container():
    wanted = desired(a=True, b=True)
    seen = []
    known = core.accept(wanted, 0.5)
    for event in [*bring("a", *TO_RUNNING), *bring("b", *TO_RUNNING)]:
        known = core.observe(wanted, known, event)
        seen.append(known.status)

    assert seen == [T.NONE] * 4 + [T.MANIFEST_PULLED, T.MANIFEST_PULLED, T.CREATED, T.RUNNING]


def test_an_essential_end_stops_every_other_container():
    wanted = desired(a=True, b=True, c=False)
    running = after(wanted, *(event for name in "abc" for event in bring(name, *TO_RUNNING)))
    known = after(wanted, happen("a", H.EXITED, 9.0, exit_code=0), known=running)

    assert known.stop
    assert known.status is T.RUNNING
    assert known.execution_stopped_at == 9.0
    assert core.plan(wanted, known) == (Move(container="b", step=Step.STOP), Move(container="c", step=Step.STOP))


def test_another_end_leaves_the_task_running():
    wanted = desired(a=True, side=False)
    running = after(wanted, *bring("a", *TO_RUNNING), *bring("side", *TO_RUNNING))
    known = after(wanted, happen("side", H.EXITED, exit_code=3), known=running)

    assert known.status is T.RUNNING
    assert core.plan(wanted, known) == ()
    assert core.unreported(known)


def test_a_task_that_says_nothing_of_essential_has_essential_containers():
    wanted = desired(a=None)

    assert after(wanted, happen("a", H.EXITED)).status is T.STOPPED


def test_a_task_ends_without_the_engine_where_nothing_was_made():
    wanted = desired(a=True, b=True)
    known = core.end(wanted, after(wanted, *bring("a", H.RESOLVED, H.PULLED)), 7.0, "stop it")

    assert statuses(known) == {"a": C.STOPPED, "b": C.STOPPED}
    assert (known.status, known.stopped_at, known.reason) == (T.STOPPED, 7.0, "stop it")
    assert core.plan(wanted, known) == ()


def test_a_late_event_changes_nothing_of_an_end():
    """The step that was under way when its task was stopped still answers."""
    wanted = desired(a=True)
    ended = core.end(wanted, after(wanted, *bring("a", H.RESOLVED)), 7.0)

    assert after(wanted, happen("a", H.PULLED, 99.0), known=ended) == ended


def test_telling_a_task_to_end_after_its_end_changes_nothing():
    wanted = desired(a=False)
    ended = after(wanted, happen("a", H.EXITED, 5.0))

    assert ended.status is T.STOPPED
    assert core.end(wanted, ended, 7.0, "too late") == ended
    assert after(wanted, happen("a", H.PULLED, 9.0, error="E: late", fatal=True), known=ended) == ended


def test_a_created_container_is_only_stopped_by_its_stop_step():
    """It may have been started by a step that died before it could tell."""
    wanted = desired(a=True)
    known = core.end(wanted, after(wanted, *bring("a", H.RESOLVED, H.PULLED, H.CREATED)), 7.0)

    assert core.plan(wanted, known) == (Move(container="a", step=Step.STOP),)
    assert after(wanted, happen("a", H.GAVE_UP, 8.0), known=known).status is T.STOPPED


def test_a_task_that_is_asked_for_as_stopped_never_begins():
    wanted = desired(stopped=True, a=True)
    known = core.accept(wanted, 3.0)

    assert (known.status, known.stopped_at) == (T.STOPPED, 3.0)
    assert core.plan(wanted, known) == ()


def test_a_task_without_containers_is_over():
    assert core.accept(desired(), 3.0).status is T.STOPPED


def test_a_task_on_its_way_out_never_turns_running():
    wanted = desired(a=True, b=True)
    known = core.end(wanted, after(wanted, *bring("a", *TO_RUNNING), *bring("b", *TO_RUNNING[:3])), 7.0)
    known = after(wanted, happen("b", H.STARTED, 8.0), known=known)

    assert known.status is T.CREATED


def test_the_first_error_is_the_reason():
    wanted = desired(a=True)
    known = after(
        wanted,
        happen("a", H.PULLED, error="CannotPullContainerError: denied"),
        happen("a", H.GAVE_UP, error="CannotCreateContainerError: no such image"),
    )

    assert known.container("a").reason == "CannotPullContainerError: denied"


def test_a_fatal_error_ends_the_task_of_a_container_that_is_not_essential():
    wanted = desired(a=True, side=False)
    known = after(wanted, happen("side", H.PULLED, error="CannotPullContainerError: denied", fatal=True))

    assert (known.status, known.reason) == (T.STOPPED, "CannotPullContainerError: denied")


def test_reasons_are_cut_to_what_the_service_takes():
    wanted = desired(a=True)
    known = after(wanted, happen("a", H.GAVE_UP, error="E: " + "x" * 5000, fatal=True))

    assert len(known.reason) == len(known.container("a").reason) == core.REASON_LIMIT
    assert len(core.end(desired(b=True), core.accept(desired(b=True), 0), 1, "y" * 5000).reason) == core.REASON_LIMIT


def test_an_exit_code_that_comes_late_is_kept_but_no_other_fact():
    wanted = desired(a=True)
    known = after(wanted, *bring("a", *TO_RUNNING), happen("a", H.EXITED, 5.0))
    late = after(wanted, happen("a", H.EXITED, 6.0, exit_code=137, error="Late: news"), known=known)

    assert late.container("a").exit_code == 137
    assert late.container("a").reason == ""
    assert late.container("a").finished_at == 5.0


def test_what_is_known_of_a_container_is_kept_through_its_life():
    binding = Binding(container_port=80, host_port=8080, bind_ip="0.0.0.0", protocol="tcp")
    wanted = desired(a=True)
    known = after(
        wanted,
        happen("a", H.PULLED, image_digest="sha256:1"),
        happen("a", H.CREATED, runtime_id="r1", bindings=(binding,), created_at=3.0),
        happen("a", H.STARTED, runtime_id="r2", started_at=4.0, created_at=9.0),
        happen("a", H.EXITED, 6.0, exit_code=1, finished_at=5.0),
    )
    one = known.container("a")

    assert (one.image_digest, one.runtime_id, one.bindings) == ("sha256:1", "r2", (binding,))
    assert (one.created_at, one.started_at, one.finished_at, one.exit_code) == (3.0, 4.0, 5.0, 1)


def test_pull_times_are_the_first_start_and_the_last_end():
    known = core.accept(desired(a=True), 0.5)
    for started, stopped in ((5.0, 0.0), (6.0, 8.0), (0.0, 7.0)):
        known = core.pulling(known, started=started, stopped=stopped)

    assert (known.pull_started_at, known.pull_stopped_at) == (5.0, 8.0)


def test_only_what_the_control_plane_understands_is_reported():
    wanted = desired(a=True)
    known = core.accept(wanted, 0.5)
    told = []
    for event in [*bring("a", *TO_RUNNING), happen("a", H.EXITED, 9.0, exit_code=0)]:
        known = core.observe(wanted, known, event)
        if core.unreported(known):
            told.append(known.status)
            known = core.acknowledged(known, known)

    assert told == [T.RUNNING, T.STOPPED]
    assert not core.unreported(known)


def test_an_old_acknowledgement_does_not_hide_news():
    wanted = desired(a=True)
    running = after(wanted, *bring("a", *TO_RUNNING))
    stopped = after(wanted, happen("a", H.EXITED, 9.0), known=running)

    assert core.unreported(core.acknowledged(stopped, running))
    assert not core.unreported(core.acknowledged(core.acknowledged(stopped, stopped), running))


def test_asking_for_a_container_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        core.accept(desired(a=True), 0.5).container("b")
    assert core.accept(desired(a=True), 0.5).arn == ARN
