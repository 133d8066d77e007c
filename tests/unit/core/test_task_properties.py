"""Whatever happens, in whatever order, however often, and with restarts in between: a task only moves forward."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sexton.core import task as core
from sexton.core.task import ContainerStatus, Happened, KnownTask, TaskStatus
from unit.core.tasks_of import ANSWERS, after, desired, events, happen, shapes

C, T = ContainerStatus, TaskStatus


def restart(known: KnownTask) -> KnownTask:
    return msgspec.json.decode(msgspec.json.encode(known), type=KnownTask)


def ranks(known):
    return [known.status.rank, *(one.status.rank for one in known.containers)]


@given(shapes, st.lists(events(), max_size=25), st.integers(0, 25))
def test_nothing_moves_backwards_and_an_end_is_final(wanted, happened, stop_at):
    known = core.accept(wanted, 0.5)
    for index, event in enumerate(happened):
        before = known
        known = core.end(wanted, known, event.time, "x") if index == stop_at else core.observe(wanted, known, event)
        assert all(old <= new for old, new in zip(ranks(before), ranks(known), strict=True))
        assert (before.stop, bool(before.reason)) <= (known.stop, bool(known.reason))
        if before.status is T.STOPPED:
            codes = [one.exit_code for one in before.containers]
            assert known == before or codes != [one.exit_code for one in known.containers]
            assert (known.stopped_at, known.execution_stopped_at) == (before.stopped_at, before.execution_stopped_at)


@given(shapes, st.lists(events(), max_size=25))
def test_a_repeated_event_is_harmless(wanted, happened):
    once = after(wanted, *happened)
    twice = core.accept(wanted, 0.5)
    for event in happened:
        twice = core.observe(wanted, core.observe(wanted, twice, event), event)

    assert twice == once


@given(shapes, st.lists(events(), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_decide_where_a_task_ends(wanted, happened, random):
    """The order may decide what is reported as the cause, never what is over once every container has ended."""
    ends = [happen(one.name, Happened.EXITED, exit_code=0) for one in wanted.task.containers]
    other = [*happened, *ends]
    random.shuffle(other)

    one, two = after(wanted, *happened, *ends), after(wanted, *other)

    assert [c.status for c in one.containers] == [c.status for c in two.containers]
    assert one.status is two.status is T.STOPPED


@given(shapes, st.lists(events(), max_size=25), st.lists(st.booleans(), max_size=25))
def test_a_restart_at_any_point_changes_nothing(wanted, happened, restarts):
    through = core.accept(wanted, 0.5)
    for index, event in enumerate(happened):
        through = core.observe(wanted, through, event)
        if index < len(restarts) and restarts[index]:
            through = restart(through)

    assert through == after(wanted, *happened)
    assert msgspec.json.decode(msgspec.json.encode(wanted), type=core.DesiredTask) == wanted


@given(shapes, st.lists(events(), max_size=25))
def test_the_plan_has_one_step_a_container_and_none_for_one_that_is_over(wanted, happened):
    known = after(wanted, *happened)
    moves = core.plan(wanted, known)

    assert len({move.container for move in moves}) == len(moves)
    assert all(known.container(move.container).status is not C.STOPPED for move in moves)
    assert core.plan(wanted, known) == moves


class Life(RuleBasedStateMachine):
    """A runner, an engine and a control plane that answer when they like, and a process that dies when it likes."""

    @initialize(wanted=shapes)
    def begin(self, wanted):
        self.desired = wanted
        self.known = core.accept(wanted, 0.5)
        self.flights: dict[str, core.Step] = {}
        self.reports: list[KnownTask] = []
        self.now = 1.0

    def observe(self, container, happened, **fields):
        self.now += 1
        before = ranks(self.known)
        self.known = core.observe(self.desired, self.known, happen(container, happened, self.now, **fields))
        assert all(old <= new for old, new in zip(before, ranks(self.known), strict=True))

    @rule()
    def move(self):
        for one in core.plan(self.desired, self.known):
            self.flights.setdefault(one.container, one.step)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def answer(self, data):
        container = data.draw(st.sampled_from(sorted(self.flights)))
        happened = data.draw(st.sampled_from(ANSWERS[self.flights.pop(container)]))
        self.observe(container, happened, error=data.draw(st.sampled_from(["", "SomeError: no"])))

    @rule(data=st.data())
    def the_engine_tells(self, data):
        container = data.draw(st.sampled_from([one.name for one in self.known.containers]))
        self.observe(container, data.draw(st.sampled_from([Happened.STARTED, Happened.EXITED, Happened.VANISHED])))

    @rule()
    def stop(self):
        self.now += 1
        self.desired = msgspec.structs.replace(self.desired, stopped=True)
        self.known = core.end(self.desired, self.known, self.now)

    @rule()
    def report(self):
        if core.unreported(self.known):
            self.reports.append(self.known)

    @precondition(lambda self: self.reports)
    @rule(data=st.data())
    def acknowledge(self, data):
        """In any order, and again."""
        self.known = core.acknowledged(self.known, data.draw(st.sampled_from(self.reports)))

    @rule()
    def die(self):
        self.known = restart(self.known)
        self.flights.clear()

    @invariant()
    def an_essential_end_is_the_tasks(self):
        if not hasattr(self, "known"):
            return
        essential = {one.name for one in self.desired.task.containers if one.essential}
        over = {one.name for one in self.known.containers if one.status is C.STOPPED}
        if essential & over:
            assert self.known.stop
            assert {move.step for move in core.plan(self.desired, self.known)} <= {core.Step.STOP}

    @invariant()
    def a_stopped_task_has_no_container_left(self):
        if hasattr(self, "known"):
            all_over = all(one.status is C.STOPPED for one in self.known.containers)
            assert (self.known.status is T.STOPPED) == all_over

    def teardown(self):
        """Once every step is answered, an ending task is over, and one exchange later the control plane knows."""
        if not hasattr(self, "known"):
            return
        self.stop()
        for _ in range(10):
            for one in core.plan(self.desired, self.known):
                self.observe(one.container, ANSWERS[one.step][0])
        assert self.known.status is T.STOPPED
        for _ in range(2):
            if core.unreported(self.known):
                self.known = core.acknowledged(self.known, self.known)
        assert not core.unreported(self.known)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_task_that_nobody_stops_reaches_running():
    wanted = desired(a=True, b=False)
    known = core.accept(wanted, 0.5)
    while moves := core.plan(wanted, known):
        for one in moves:
            known = core.observe(wanted, known, happen(one.container, ANSWERS[one.step][0]))

    assert known.status is T.RUNNING
