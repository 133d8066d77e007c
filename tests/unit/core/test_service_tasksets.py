"""EXTERNAL services: each task set is kept at its share, alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.core import service, taskset
from sexton.core.servicetask import ServiceTask, Stage
from sexton.core.serviceview import Memory, ScaledSet, ServiceView, Terms
from unit.core.service_cluster import replace


class External:
    """A service with task sets whose tasks start at once and end at once."""

    def __init__(self, desired: int):
        self.desired = desired
        self.now = 100.0
        self.sets: dict[str, ScaledSet] = {}
        self.tasks: dict[str, ServiceTask] = {}
        self.memory = Memory()
        self.events: list[str] = []
        self.serial = 0

    def add(self, name: str, percent: float) -> None:
        self.sets[name] = taskset.begin(
            set_id=name, revision=f"td-{name}", desired=self.desired, scale_percent=percent, now=self.now
        )

    def look(self):
        view = ServiceView(
            name="web",
            terms=Terms(desired=self.desired, external=True),
            tasks=tuple(self.tasks.values()),
            task_sets=tuple(self.sets.values()),
            memory=self.memory,
        )
        decision = service.decide(view, self.now)
        for one in decision.task_sets:
            self.sets[one.state.id] = one
        for name in decision.task_sets_gone:
            del self.sets[name]
        self.memory = decision.memory or self.memory
        self.events += decision.events
        for task in decision.accounted:
            del self.tasks[task]
        for stop in decision.stops:
            for task in stop.tasks:
                self.tasks[task] = replace(
                    self.tasks[task], stage=Stage.STOPPED, stopped_at=self.now, stop_code="ServiceSchedulerInitiated"
                )
        for start in decision.starts:
            for _ in range(start.count):
                self.serial += 1
                self.tasks[f"t{self.serial}"] = ServiceTask(
                    id=f"t{self.serial}",
                    deployment=start.deployment,
                    stage=Stage.RUNNING,
                    created_at=self.now,
                    started_at=self.now,
                )
        return decision

    def settle(self) -> None:
        for _ in range(20):
            decision = self.look()
            if not decision.acts and not decision.stores:
                return
            self.now += 41
        raise AssertionError("it never settles")

    def held(self) -> dict[str, int]:
        return {name: sum(task.deployment == name for task in self.tasks.values()) for name in self.sets}


def test_shares_round_up():
    assert [taskset.computed(desired, percent) for desired, percent in ((3, 40), (10, 30), (10, 0.1), (7, 0))] == [
        2,
        3,
        1,
        0,
    ]


def test_a_set_is_brought_to_its_share_and_says_so():
    external = External(3)
    external.add("ecs-svc/7", 40)
    external.settle()
    assert external.held() == {"ecs-svc/7": 2}
    assert external.sets["ecs-svc/7"].stability == "STEADY_STATE"
    assert external.events == [
        "(service web, taskSet ecs-svc/7) updated state to STEADY_STATE.",
        "(service web) has reached a steady state.",
    ]
    external.events.clear()
    external.desired = 5
    assert external.look().events == ("(service web) updated computedDesiredCount for taskSet ecs-svc/7 to 2.",) * 0
    external.sets["ecs-svc/7"] = replace(external.sets["ecs-svc/7"], scale_percent=100.0)
    assert "(service web) updated computedDesiredCount for taskSet ecs-svc/7 to 5." in external.look().events
    assert external.sets["ecs-svc/7"].stability == "STABILIZING"


def test_a_draining_set_goes_and_the_other_stays():
    external = External(2)
    external.add("blue", 100)
    external.add("green", 100)
    external.settle()
    external.sets["blue"] = replace(external.sets["blue"], draining=True)
    external.settle()
    assert external.held() == {"green": 2}


@settings(deadline=None)
@given(
    st.integers(0, 9),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.booleans()), max_size=8),
)
def test_whatever_is_asked_each_set_gets_its_share_alone(desired, asked):
    external = External(desired)
    for name, percent, draining in asked:
        if name not in external.sets:
            external.add(name, percent)
        external.sets[name] = replace(external.sets[name], scale_percent=percent, draining=draining)
        external.now += 5
        external.look()
    external.settle()
    assert external.held() == {
        name: taskset.computed(desired, one.scale_percent) for name, one in external.sets.items()
    }
    assert not any(one.draining for one in external.sets.values())
    assert not external.look().acts
