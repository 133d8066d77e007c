"""A cluster that exists only in memory: it shows a service to ``decide`` and does what the decision says, more or less.

It stores everything through JSON, as the real records do, so that nothing survives here that would not there. It
checks the promises of every decision with arithmetic of its own, before it applies it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec

from sexton.core import breaker, deployment, rebalance, rollout, service, servicewords, speech
from sexton.core.deployment import Deployment
from sexton.core.pace import ECS
from sexton.core.servicetask import Health, ServiceTask, Stage, Standing, standing
from sexton.core.serviceview import DaemonHost, Decision, Memory, ServiceView, StopWhy, Terms
from sexton.wire import ecs

replace = msgspec.structs.replace


def stored(value):
    return None if value is None else msgspec.json.decode(msgspec.json.encode(value), type=type(value))


class Cluster:
    """One service. ``hosts`` maps a host to its zone; ``leaving`` are draining, ``room`` is what all hosts hold."""

    def __init__(self, terms: Terms, *, good=True, hosts=None, room=10_000):
        self.terms = terms
        self.now = 1000.0
        self.pace = ECS
        self.hosts = dict(hosts or {"h1": "a", "h2": "b", "h3": "c"})
        self.leaving: set[str] = set()
        self.room = room
        self.room_since = 0.0
        self.tasks: dict[str, ServiceTask] = {}
        self.counted: set[str] = set()
        self.deployments: tuple[Deployment, ...] = ()
        self.rollout: ecs.ServiceDeployment | None = None
        self.records: list[ecs.ServiceDeployment] = []
        self.memory = Memory()
        self.good: dict[str, bool] = {}  # by revision: whether its tasks start
        self.checked: dict[str, bool] = {}
        self.events: list[str] = []
        self.rollbacks = []
        self.next_look_at: float | None = None
        self.deleting = self.ended = False
        self.serial = 0
        self.decision = Decision()
        self.deploy(good=good)

    # What users do.

    def deploy(self, *, good=True, checked=False):
        self.serial += 1
        revision = f"rev-{self.serial}"
        self.good[revision], self.checked[revision] = good, checked
        ended = rollout.supersede(self.rollout, self.now)
        if ended is not None:
            self.records.append(ended)
        self.deployments = deployment.begin(
            self.deployments,
            deployment_id=f"ecs-svc/{self.serial}",
            revision=revision,
            desired=self.terms.desired,
            now=self.now,
        )
        self.rollout = ecs.ServiceDeployment(status="PENDING", created_at=self.now)
        return f"ecs-svc/{self.serial}"

    def request_stop(self, stop_type):
        if self.rollout is not None:
            self.rollout = rollout.request_stop(self.rollout, stop_type, self.now)

    # What the shell does.

    def view(self) -> ServiceView:
        return ServiceView(
            name="web",
            terms=self.terms,
            deployments=self.deployments,
            tasks=tuple(
                replace(task, leaving=task.host in self.leaving or task.host not in self.hosts)
                for task in self.tasks.values()
                if task.id not in self.counted
            ),
            rollout=self.rollout,
            deleting=self.deleting,
            hosts=tuple(DaemonHost(host) for host in sorted(self.usable())) if self.terms.daemon else (),
            zones=tuple(sorted({self.hosts[host] for host in self.usable()})),
            room_since=self.room_since,
            memory=self.memory,
            pace=self.pace,
        )

    def usable(self) -> set[str]:
        return set(self.hosts) - self.leaving

    def look(self, *, lose_starts=False) -> Decision:
        view = self.view()
        decision = service.decide(view, self.now)
        assert decision == service.decide(replace(view, tasks=view.tasks[::-1]), self.now), "order decides something"
        check(view, decision, self.now)
        self.decision = decision
        by_id = {one.id: one for one in self.deployments}
        by_id.update({one.id: stored(one) for one in decision.deployments})
        self.deployments = tuple(one for one in by_id.values() if one.id not in decision.inactive)
        self.memory = stored(decision.memory) or self.memory
        self.counted |= set(decision.accounted)
        self.events += decision.events
        self.ended = decision.ended
        self.next_look_at = decision.next_look_at
        if decision.rollback:
            self.rollbacks.append(decision.rollback)
        if decision.rollout is not None:
            self.rollout = stored(decision.rollout)
            if rollout.over(self.rollout):
                self.records.append(self.rollout)
                self.rollout = None
        for stop in decision.stops:
            for task_id in stop.tasks:
                task = self.tasks[task_id]
                self.tasks[task_id] = replace(task, stage=Stage.STOPPING, stop_code="ServiceSchedulerInitiated")
        if not lose_starts:
            for start in decision.starts:
                self._place(start)
        return decision

    def _place(self, start):
        state = next(one for one in self.deployments if one.id == start.deployment)
        refused = False
        for _ in range(start.count):
            hosts = [host for host in self.usable() if start.host in ("", host)]
            hosts = [host for host in hosts if start.zone in ("", self.hosts[host])]
            if len(self.present()) >= self.room or not hosts:
                refused = True
                break
            self.serial += 1
            load = {host: sum(task.host == host for task in self.present()) for host in hosts}
            host = min(sorted(hosts), key=load.__getitem__)
            self.tasks[f"t{self.serial:05d}"] = ServiceTask(
                id=f"t{self.serial:05d}",
                deployment=start.deployment,
                stage=Stage.STARTING,
                health=Health.UNKNOWN if self.checked[state.revision] else Health.UNCHECKED,
                created_at=self.now,
                host=host,
                zone=self.hosts[host],
            )
        if refused and start.zone:
            self.memory = rebalance.refused(self.memory, self.now)
            return
        if refused:
            text = servicewords.unplaced("web")
            self.memory, events = speech.unplaced(self.memory, text, self.pace, self.now)
            self.events += events
            after = breaker.not_placed(state, pace=self.pace, now=self.now)
        else:
            after = breaker.placed(state)
        self.deployments = tuple(after if one.id == after.id else one for one in self.deployments)

    # What happens to tasks.

    def present(self):
        return [task for task in self.tasks.values() if task.stage != Stage.STOPPED]

    def in_stage(self, *stages):
        return [task.id for task in self.tasks.values() if task.stage in stages]

    def revision_of(self, task) -> str:
        return next((one.revision for one in self.deployments if one.id == task.deployment), "")

    def run(self, task_id):
        self.tasks[task_id] = replace(self.tasks[task_id], stage=Stage.RUNNING, started_at=self.now)

    def check(self, task_id, health):
        task = self.tasks[task_id]
        if task.health == Health.UNCHECKED:
            return
        first = self.now if health == Health.HEALTHY and not task.healthy_at else task.healthy_at
        self.tasks[task_id] = replace(task, health=health, healthy_at=first)

    def end(self, task_id, code="EssentialContainerExited"):
        task = self.tasks[task_id]
        self.tasks[task_id] = replace(task, stage=Stage.STOPPED, stopped_at=self.now, stop_code=task.stop_code or code)
        self.room_since = self.now

    def lose_host(self, host):
        self.hosts.pop(host)
        self.leaving.discard(host)
        for task in self.present():
            if task.host == host:
                self.end(task.id, "InfrastructureHealth")

    def work(self):
        """Every task does what its revision makes it do; what is told to stop ends."""
        for task in list(self.present()):
            good = self.good.get(self.revision_of(task), True)
            if task.stage == Stage.STOPPING or not good:
                self.end(task.id, "TaskFailedToStart")
            elif task.stage == Stage.STARTING:
                self.run(task.id)
            elif task.health == Health.UNKNOWN:
                self.check(task.id, Health.HEALTHY)

    def until(self, reached, looks=400):
        """Work and look until it is so; time goes on to when the service asks to be looked at, or a little."""
        for _ in range(looks):
            if reached():
                return True
            decision = self.look()
            self.work()
            if not decision.acts and not decision.stores and self.next_look_at:
                self.now = max(self.now + 1, self.next_look_at)
            else:
                self.now += 1
        return reached()

    @property
    def primary(self) -> Deployment:
        return next(one for one in self.deployments if one.status == "PRIMARY")

    def of(self, deployment_id):
        return [task for task in self.present() if task.deployment == deployment_id]

    def target(self) -> int:
        return len(self.usable()) if self.terms.daemon else self.terms.desired

    def steady(self) -> bool:
        """As a waiter sees it: one deployment, as many running tasks as desired, all healthy."""
        only = len(self.deployments) == 1 and self.primary.completed
        mine = self.of(self.primary.id)
        return (
            only
            and len(self.present()) == len(mine) == self.target()
            and all(task.stage == Stage.RUNNING and not self.leaves(task) for task in mine)
        )

    def leaves(self, task) -> bool:
        return task.host in self.leaving or task.host not in self.hosts


def check(view: ServiceView, decision: Decision, now: float) -> None:
    """The promises every decision keeps, whatever the state it was made in."""
    if view.deleting:
        return
    terms = view.terms
    desired = len(view.hosts) if terms.daemon else terms.desired
    least = math.ceil(Fraction(desired * terms.minimum_percent, 100))
    most = max(desired, math.floor(Fraction(desired * terms.maximum_percent, 100)))
    present = [task for task in view.tasks if task.stage != Stage.STOPPED]
    known = {one.id for one in view.deployments}
    healthy = {
        task.id
        for task in present
        if task.live and task.deployment in known and standing(task, view.pace, terms.grace, now) == Standing.GOOD
    }
    stopped = [task for stop in decision.stops for task in stop.tasks]
    assert len(stopped) == len(set(stopped)), "a task is stopped twice"
    live = {task.id: task for task in present if task.live}
    assert set(stopped) <= set(live), "what does not live is stopped"
    gone = len(healthy & set(stopped))
    assert not gone or len(healthy) - gone >= least, f"{len(healthy)} healthy, {gone} stopped, {least} must stay"
    check_unproven(view, healthy, set(stopped), least)
    starting = sum(start.count for start in decision.starts)
    full = not terms.daemon and len(present) + starting > most  # a DAEMON service's maximum is one task a host
    assert not (starting and full), f"{len(present)} there, {starting} started, {most} at most"
    for stop in decision.stops:
        for task_id in stop.tasks:
            task = live[task_id]
            assert stop.deployment == task.deployment
            assert task.protected_until <= now or stop.why == StopWhy.UNHEALTHY, "a protected task is stopped"
    if terms.daemon:
        taken = {task.host for task in present}
        named = [start.host for start in decision.starts]
        assert len(named) == len(set(named))
        assert not taken & set(named), "a second task beside the first"


def check_unproven(view: ServiceView, healthy: set[str], stopped: set[str], least: int) -> None:
    """What runs and is not healthy yet goes only if enough is left of what is healthy or of no newer a deployment."""
    created = {one.id: (one.status == "PRIMARY", one.created_at) for one in view.deployments}
    runs = [
        task
        for task in view.tasks
        if task.stage == Stage.RUNNING
        and task.health in (Health.UNCHECKED, Health.HEALTHY)
        and task.deployment in created
    ]
    for task in runs:
        if task.id not in stopped or task.id in healthy:
            continue
        left = [
            one.id
            for one in runs
            if one.id not in healthy | stopped and created[one.deployment] <= created[task.deployment]
        ]
        count = len(left) + len(healthy - stopped)
        assert count >= least, f"{task.id} is stopped before it is healthy, {count} go on, {least} must"
