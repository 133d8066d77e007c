"""Who waits for whom: every order is kept, every wait ends, and what can never begin is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.core import ordering
from sexton.core import task as core
from sexton.core.ordering import Condition, Edge
from sexton.core.task import ContainerStatus, DesiredTask, Happened, Health, Step, TaskStatus
from sexton.wire import acs_task
from unit.core.tasks_of import ARN, after, happen

H = Happened
UP = (H.RESOLVED, H.PULLED, H.CREATED, H.STARTED)


def box(name, *waits, essential=True, **fields):
    """A container; each wait is a name and a condition."""
    depends = tuple(acs_task.ContainerDependency(container_name=on, condition=what) for on, what in waits)
    return acs_task.Container(name=name, image="i", essential=essential, depends_on=depends, **fields)


def of(*containers, stopped=False):
    return DesiredTask(task=acs_task.Task(arn=ARN, containers=containers), stopped=stopped)


def up(name, last=H.STARTED, at=1.0):
    return [
        happen(name, one, at, runtime_id=name if one is H.CREATED else "", started_at=at if one is H.STARTED else 0.0)
        for one in UP[: UP.index(last) + 1]
    ]


def ended(name, code=0, at=2.0):
    return happen(name, H.EXITED, at, exit_code=code, finished_at=at, started_at=1.0)


def healthy(name, word="HEALTHY"):
    return happen(name, H.STARTED, 3.0, health=Health(status=word))


def look(wanted, known, ages=None, **options):
    return ordering.outlook(wanted, known, ages or {}, 9.0, **options)


def waiting(condition, target=None):
    """A task whose ``app`` waits for ``dep``, with the events that bring ``app`` to its wait."""
    wanted = of(
        box("dep", essential=False, health_check_type="docker", **(target or {})), box("app", ("dep", condition))
    )
    return wanted, after(wanted, happen("app", H.RESOLVED))


def steps(view):
    return {(move.container, move.step) for move in view.moves}


@pytest.mark.parametrize(
    "condition, before, then",
    [
        ("START", up("dep", H.CREATED), up("dep")),
        ("START", up("dep", H.CREATED), [*up("dep"), ended("dep", 5)]),
        ("COMPLETE", up("dep"), [*up("dep"), ended("dep", 5)]),
        ("SUCCESS", up("dep"), [*up("dep"), ended("dep", 0)]),
        ("HEALTHY", [*up("dep"), healthy("dep", "UNKNOWN")], [*up("dep"), healthy("dep")]),
        ("HEALTHY", [*up("dep"), healthy("dep", "UNHEALTHY")], [*up("dep"), healthy("dep")]),
    ],
)
def test_each_condition_opens_when_it_is_true(condition, before, then):
    wanted, known = waiting(condition)

    held = look(wanted, after(wanted, *before, known=known))
    assert held.waits == (Edge("app", "dep", Condition(condition)),)
    assert ("app", Step.PULL) not in steps(held) and not held.ends
    assert ("app", Step.PULL) in steps(look(wanted, after(wanted, *then, known=known)))


@pytest.mark.parametrize(
    "condition, happened, words",
    [
        ("SUCCESS", [*up("dep"), ended("dep", 5)], "ended with exit code 5"),
        ("COMPLETE", [*up("dep"), happen("dep", H.VANISHED)], "without an exit code"),
        ("HEALTHY", [*up("dep"), ended("dep")], "to be healthy, which ended before"),
        ("START", [happen("dep", H.GAVE_UP)], "will never start"),
        ("COMPLETE", [happen("dep", H.GAVE_UP, exit_code=143)], "will never start"),
    ],
)
def test_what_can_never_be_true_ends_the_one_that_waits(condition, happened, words):
    wanted, known = waiting(condition)
    view = look(wanted, after(wanted, *happened, known=known))

    (end,) = view.ends
    assert (end.container, end.exit_code) == ("app", 143)
    assert end.error.startswith("CannotStartContainerError: dependency graph: ") and words in end.error
    assert after(wanted, *happened, end, known=known).container("app").status is ContainerStatus.STOPPED


@pytest.mark.parametrize("condition", ["COMPLETE", "SUCCESS", "HEALTHY"])
def test_a_start_timeout_bounds_those_who_wait_and_not_its_own_container(condition):
    wanted, known = waiting(condition, {"start_timeout": 30})
    known = after(wanted, *up("dep"), known=known)

    assert not look(wanted, known, {"dep": 29.9}).ends
    (end,) = look(wanted, known, {"dep": 30.0}).ends
    assert end.container == "app" and "timed out" in end.error


def test_a_start_timeout_is_nothing_to_one_that_has_been_made_already():
    wanted, _ = waiting("HEALTHY", {"start_timeout": 30})
    known = after(wanted, *up("dep"), healthy("dep"), *up("app", H.CREATED), healthy("dep", "UNHEALTHY"))
    view = look(wanted, known, {"dep": 99.0})

    assert steps(view) == {("app", Step.START)} and not view.ends


def test_images_may_be_pulled_without_waiting():
    wanted, known = waiting("START")

    assert ("app", Step.PULL) in steps(look(wanted, known, upfront=True))
    known = after(wanted, happen("app", H.PULLED), known=known)
    assert ("app", Step.CREATE) not in steps(look(wanted, known, upfront=True))


def test_an_image_is_resolved_without_waiting():
    wanted, _ = waiting("SUCCESS")

    assert ("app", Step.RESOLVE) in steps(look(wanted, core.accept(wanted, 0.5)))


def test_links_and_volumes_of_others_are_edges():
    wanted = of(
        box("db"),
        box("web", links=("db:store", "db"), volumes_from=(acs_task.VolumeFrom(source_container="db"),)),
    )

    assert set(ordering.edges(wanted.task)) == {Edge("web", "db", Condition.CREATE), Edge("web", "db", Condition.START)}
    known = after(wanted, happen("web", H.RESOLVED), *up("db", H.CREATED))
    assert look(wanted, known).waits == (Edge("web", "db", Condition.START),)


def test_whoever_is_needed_stops_last():
    """A waits for B, B is linked to C, D has volumes of A, E is alone."""
    wanted = of(
        box("a", ("b", "START")),
        box("b", links=("c",)),
        box("c"),
        box("d", volumes_from=(acs_task.VolumeFrom(source_container="a"),)),
        box("e"),
    )
    known = after(wanted, *(event for name in "cbade" for event in up(name)))
    known = core.end(wanted, known, 5.0)
    order = []
    while view := look(wanted, known):
        names = {move.container for move in view.moves}
        if not names:
            break
        order.append(names)
        known = after(wanted, *(ended(name) for name in names), known=known)

    assert order == [{"d", "e"}, {"a"}, {"b"}, {"c"}]
    assert known.status is TaskStatus.STOPPED


def test_one_that_never_started_holds_up_nobody():
    wanted = of(box("db"), box("web", ("db", "HEALTHY")))
    known = core.end(wanted, after(wanted, *up("db")), 5.0)

    assert steps(look(wanted, known)) == {("db", Step.STOP)}


@pytest.mark.parametrize(
    "containers",
    [
        [box("a", ("b", "START")), box("b", ("a", "START"))],
        [box("a", ("a", "START"))],
        [box("a", ("none", "START"))],
        [box("a", ("b", "SOMETIMES")), box("b")],
        [box("a", ("b", "HEALTHY")), box("b")],
        [box("a", links=("b",)), box("b", ("a", "START"))],
    ],
)
def test_what_can_never_begin_is_refused(containers):
    assert not ordering.resolvable(of(*containers).task)


def test_what_can_begin_is_taken():
    assert ordering.resolvable(
        of(box("a", ("b", "HEALTHY"), ("c", "SUCCESS")), box("b", health_check_type="docker"), box("c")).task
    )
    assert ordering.resolvable(acs_task.Task())


names = ["a", "b", "c", "d", "e"]


@st.composite
def graphs(draw):
    """Tasks whose edges go from later names to earlier ones, so that there is an order."""
    made = []
    for index, name in enumerate(names[: draw(st.integers(1, 5))]):
        waits = [
            (on, draw(st.sampled_from(["START", "COMPLETE", "SUCCESS", "HEALTHY"])))
            for on in names[:index]
            if draw(st.booleans())
        ]
        one = box(
            name,
            *waits,
            essential=draw(st.booleans()),
            health_check_type="docker",
            start_timeout=draw(st.sampled_from([None, 30])),
            links=tuple(on for on in names[:index] if draw(st.integers(0, 5)) == 0),
        )
        made.append(one)
    return of(*made)


ANSWER = {
    Step.RESOLVE: lambda name, draw: [happen(name, H.RESOLVED)],
    Step.PULL: lambda name, draw: [happen(name, draw(st.sampled_from([H.PULLED, H.PULLED, H.GAVE_UP])))],
    Step.CREATE: lambda name, draw: [happen(name, H.CREATED, runtime_id=name)],
    Step.START: lambda name, draw: draw(
        st.sampled_from(
            [
                [happen(name, H.STARTED, 1.0, started_at=1.0, health=Health(status="HEALTHY"))],
                [happen(name, H.STARTED, 1.0, started_at=1.0), ended(name, 0)],
                [happen(name, H.STARTED, 1.0, started_at=1.0), ended(name, 9)],
                [happen(name, H.GAVE_UP)],
            ]
        )
    ),
    Step.STOP: lambda name, draw: [ended(name, 143)],
}


@given(graphs(), st.data())
@settings(max_examples=150, deadline=None)
def test_every_task_gets_somewhere_and_keeps_its_order(wanted, data):
    """Whatever steps answer and in whatever order: conditions hold when a container is made, nothing is stopped before
    those that need it, and in the end the task runs or is over, or waits for a container that still runs."""
    assert ordering.resolvable(wanted.task)
    every = ordering.edges(wanted.task)
    known = core.accept(wanted, 0.5)
    for _ in range(200):
        view = look(wanted, known, dict.fromkeys(names, 10.0))
        for end in view.ends:
            known = core.observe(wanted, known, end)
        if view.ends:
            continue
        if not view.moves:
            break
        move = data.draw(st.sampled_from(view.moves))
        for edge in every:
            if move.step is Step.CREATE and edge.container == move.container:
                on = known.container(edge.on)
                assert on.status in (ContainerStatus.RUNNING, ContainerStatus.STOPPED)
                assert edge.condition is not Condition.SUCCESS or on.exit_code == 0
            if move.step is Step.STOP and edge.on == move.container:
                assert known.container(edge.container).status is ContainerStatus.STOPPED
        for event in ANSWER[move.step](move.container, data.draw):
            known = core.observe(wanted, known, event)
    else:
        raise AssertionError("it never comes to rest")
    if known.status not in (TaskStatus.RUNNING, TaskStatus.STOPPED):
        assert view.waits
        assert any(known.container(edge.on).status is ContainerStatus.RUNNING for edge in view.waits)
    known = core.end(wanted, known, 9.0)
    while moves := look(wanted, known).moves:
        known = core.observe(wanted, known, ended(moves[0].container))
    assert known.status is TaskStatus.STOPPED
