"""Whatever happens to a service, every decision keeps its bounds, and when the storm is over it gets where it should.

The storm: tasks that take their time, fail, fall sick; hosts that drain, vanish and return; users that scale, deploy
good and bad revisions, protect tasks, change the bounds and stop deployments; control planes that die between two
steps. ``service_cluster.check`` holds every single decision to the promises; the end of each story holds the whole.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from sexton.core import breaker, crew, deployment, replica, service, servicetask
from sexton.core.breaker import Breaker
from sexton.core.deployment import Bounds
from sexton.core.servicetask import Health, Stage
from sexton.core.serviceview import Terms
from unit.core.service_cluster import Cluster, replace

HOSTS = {"h1": "a", "h2": "a", "h3": "b", "h4": "c"}
percents = st.sampled_from([(0, 100), (50, 100), (50, 150), (100, 150), (100, 200), (0, 200), (75, 125), (33, 133)])
breakers = st.builds(
    Breaker,
    enabled=st.booleans(),
    rollback=st.booleans(),
    reset_on_healthy=st.booleans(),
    kind=st.sampled_from(["COUNT", "BOUNDED_PERCENT", "UNBOUNDED_PERCENT"]),
    value=st.integers(1, 100),
)
whole = st.integers(0, 1 << 16)


class Storm(RuleBasedStateMachine):
    daemon = False

    @initialize(
        desired=st.integers(0, 7), percent=percents, breaker=breakers, good=st.booleans(), balance=st.booleans()
    )
    def create(self, desired, percent, breaker, good, balance):
        low, high = (percent[0], 100) if self.daemon else percent
        terms = Terms(
            desired=0 if self.daemon else desired,
            daemon=self.daemon,
            minimum_percent=low,
            maximum_percent=high,
            breaker=breaker,
            grace=30.0,
            rebalancing=balance and not self.daemon,
        )
        self.cluster = Cluster(terms, good=good, hosts=HOSTS)
        self.cluster.look()

    def pick(self, number, *stages):
        found = self.cluster.in_stage(*stages)
        return found[number % len(found)] if found else None

    @rule(lose_starts=st.booleans())
    def look(self, lose_starts):
        self.cluster.look(lose_starts=lose_starts)

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 41.0, 300.0]))
    def wait(self, seconds):
        self.cluster.now += seconds
        self.cluster.look()

    @rule()
    def work(self):
        self.cluster.work()
        self.cluster.look()

    @rule(seconds=st.sampled_from([1.0, 41.0]))
    def work_for_a_while(self, seconds):
        for _ in range(4):
            self.cluster.now += seconds
            self.cluster.work()
            self.cluster.look()

    @rule(number=whole)
    def a_task_runs(self, number):
        if task := self.pick(number, Stage.STARTING):
            self.cluster.run(task)

    @rule(number=whole, health=st.sampled_from([Health.HEALTHY, Health.UNHEALTHY, Health.UNKNOWN]))
    def a_check_speaks(self, number, health):
        if task := self.pick(number, Stage.RUNNING):
            self.cluster.check(task, health)

    @rule(number=whole, code=st.sampled_from(["EssentialContainerExited", "UserInitiated", "TaskFailedToStart"]))
    def a_task_ends(self, number, code):
        if task := self.pick(number, Stage.STARTING, Stage.RUNNING):
            self.cluster.end(task, code)

    @rule(number=whole)
    def a_stopping_task_ends(self, number):
        if task := self.pick(number, Stage.STOPPING):
            self.cluster.end(task)

    @rule(number=whole)
    def a_task_is_protected(self, number):
        if task := self.pick(number, Stage.RUNNING):
            self.cluster.tasks[task] = replace(self.cluster.tasks[task], protected_until=self.cluster.now + 500)

    @rule(host=st.sampled_from(sorted(HOSTS)))
    def a_host_drains(self, host):
        if host in self.cluster.hosts:
            self.cluster.leaving ^= {host}

    @rule(host=st.sampled_from(sorted(HOSTS)))
    def a_host_is_lost_or_back(self, host):
        if host in self.cluster.hosts:
            self.cluster.lose_host(host)
        else:
            self.cluster.hosts[host] = HOSTS[host]
            self.cluster.room_since = self.cluster.now

    @rule(room=st.integers(0, 12))
    def the_cluster_is_small(self, room):
        self.cluster.room = room

    @precondition(lambda self: not self.daemon)
    @rule(desired=st.integers(0, 7))
    def scale(self, desired):
        self.cluster.terms = replace(self.cluster.terms, desired=desired)
        self.cluster.look()

    @precondition(lambda self: not self.daemon)
    @rule(percent=percents)
    def other_bounds(self, percent):
        self.cluster.terms = replace(self.cluster.terms, minimum_percent=percent[0], maximum_percent=percent[1])

    @rule(good=st.booleans(), checked=st.booleans())
    def deploy(self, good, checked):
        self.cluster.deploy(good=good, checked=checked)

    @rule(stop_type=st.sampled_from(["ROLLBACK", "ABORT"]))
    def stop_deployment(self, stop_type):
        self.cluster.request_stop(stop_type)
        self.cluster.look()

    def teardown(self):
        if hasattr(self, "cluster"):
            calm(self.cluster)


def calm(cluster: Cluster) -> None:
    """The storm is over: everything works as its revision does. Does the service get where it should?

    What drains goes on draining and what is sick stays sick: neither may be waited for.
    """
    cluster.hosts, cluster.room = dict(HOSTS), 10_000
    if not cluster.usable():
        cluster.leaving = set()
    cluster.room_since = cluster.now
    terms = cluster.terms
    limits = deployment.bounds(cluster.target(), terms.minimum_percent, terms.maximum_percent)
    movable = limits.minimum < limits.maximum or not cluster.target()
    cluster.until(lambda: cluster.steady() or cluster.primary.frozen or doomed(cluster))
    if cluster.primary.frozen:
        # Without a way back nothing is started any more; what others serve is left alone. A fix gets it going again.
        cluster.deploy(good=True)
        assert cluster.until(cluster.steady) or not movable, (cluster.decision.why, cluster.deployments)
    elif doomed(cluster):
        cluster.deploy(good=True)
        assert cluster.until(cluster.steady) or not movable, (cluster.decision.why, cluster.deployments)
    else:
        assert cluster.steady() or not movable, (cluster.decision.why, cluster.deployments)
    if not cluster.steady():
        return
    assert cluster.good[cluster.primary.revision] or not cluster.target()
    assert cluster.rollout is None
    quiet(cluster)
    bad = cluster.deploy(good=False)
    if terms.breaker.enabled and terms.breaker.rollback and cluster.target() and movable:
        assert cluster.until(lambda: cluster.steady() and not cluster.of(bad)), cluster.decision.why
        assert cluster.primary.id != bad
        assert cluster.records[-1].status == "ROLLBACK_SUCCESSFUL"
        quiet(cluster)


def doomed(cluster: Cluster) -> bool:
    """A revision that never starts, and nobody who would call it off: a breaker watches until completion only."""
    bad = not cluster.good[cluster.primary.revision] and cluster.target() > 0
    return bad and (not cluster.terms.breaker.enabled or cluster.primary.completed)


def quiet(cluster: Cluster) -> None:
    """Once moves between zones are done, nothing is done, stored or said, however often one looks."""
    for _ in range(200):
        cluster.work()
        cluster.look()
        moving = cluster.memory.rebalance is not None and cluster.memory.rebalance.extra
        if not (moving or cluster.decision.acts or cluster.decision.stores):
            break
        cluster.now += 41
    for _ in range(3):
        cluster.look()
        assert not cluster.decision.acts
        assert not cluster.decision.stores


class DaemonStorm(Storm):
    daemon = True


STORM = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(120)
def test_a_replica_service_survives_any_storm():
    run_state_machine_as_test(Storm, settings=STORM)


@pytest.mark.timeout(120)
def test_a_daemon_service_survives_any_storm():
    run_state_machine_as_test(DaemonStorm, settings=STORM)


# Each takes one thing away that a promise rests on; the storm above must notice.
def rounds_the_minimum_down(monkeypatch):
    def bounds(desired, low, high):
        return Bounds(desired * low // 100, deployment.bounds(desired, low, high).maximum)

    monkeypatch.setattr(service, "bounds", bounds)


def rounds_the_maximum_up(monkeypatch):
    def bounds(desired, low, high):
        return Bounds(deployment.bounds(desired, low, high).minimum, max(desired, -(-desired * high // 100)))

    monkeypatch.setattr(service, "bounds", bounds)


def spends_one_healthy_task_too_many(monkeypatch):
    made = crew.Stops.__init__

    def generous(self, crews, minimum, now):
        made(self, crews, minimum - 1, now)

    monkeypatch.setattr(crew.Stops, "__init__", generous)


def takes_what_runs_for_a_replacement(monkeypatch):
    def spare(crews, minimum):
        runs = sum(servicetask.serving(task) for one in crews for task in (*one.fresh, *one.leaving_poor))
        return {one.state.id: sum(other.healthy for other in crews) + runs - minimum for one in crews}

    monkeypatch.setattr(crew, "_unproven_spare", spare)


def forgets_that_stopping_tasks_are_there(monkeypatch):
    monkeypatch.setattr(crew.Crew, "present", crew.Crew.live)


def ignores_protection(monkeypatch):
    made = crew.Stops.__init__

    def late(self, crews, minimum, now):
        made(self, crews, minimum, now + 1e6)

    monkeypatch.setattr(crew.Stops, "__init__", late)


def never_trips(monkeypatch):
    monkeypatch.setattr(breaker, "tripped", lambda *_: False)


def never_retires_the_sick(monkeypatch):
    monkeypatch.setattr(replica._Round, "_retire", lambda *_: None)


def never_makes_room(monkeypatch):
    monkeypatch.setattr(replica._Round, "_make_room", lambda *_: 0)


def goes_by_the_order_of_the_listing(monkeypatch):
    monkeypatch.setattr(crew.scalein, "evenly", lambda tasks, among: list(tasks))
    monkeypatch.setattr(crew, "sorted", lambda tasks, key=None: tasks, raising=False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "mutant",
    [
        rounds_the_minimum_down,
        rounds_the_maximum_up,
        spends_one_healthy_task_too_many,
        takes_what_runs_for_a_replacement,
        forgets_that_stopping_tasks_are_there,
        ignores_protection,
        never_trips,
        never_retires_the_sick,
        never_makes_room,
        goes_by_the_order_of_the_listing,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_storm_notices(mutant, monkeypatch):
    mutant(monkeypatch)
    seeking = settings(
        STORM, max_examples=2000, phases=[Phase.generate], derandomize=True, database=None, report_multiple_bugs=False
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Storm, settings=seeking)
