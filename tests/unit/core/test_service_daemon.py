"""DAEMON services: one task on every host, exchanged in place."""

from __future__ import annotations

from sexton.core.breaker import Breaker
from sexton.core.servicetask import Stage
from sexton.core.serviceview import Terms
from unit.core.service_cluster import Cluster, replace

DAEMON = Terms(daemon=True, minimum_percent=0, maximum_percent=100)
HOSTS = {f"h{number}": "a" for number in range(4)}


def steady(terms: Terms = DAEMON) -> Cluster:
    cluster = Cluster(terms, hosts=HOSTS)
    assert cluster.until(cluster.steady)
    return cluster


def test_every_host_gets_one_and_a_new_host_too():
    cluster = steady()
    assert sorted(task.host for task in cluster.present()) == sorted(HOSTS)
    cluster.hosts["h9"] = "b"
    assert [start.host for start in cluster.look().starts] == ["h9"]
    assert not cluster.look().acts


def test_a_host_that_leaves_loses_its_task():
    cluster = steady()
    cluster.leaving.add("h1")
    (stop,) = cluster.look().stops
    assert [cluster.tasks[task].host for task in stop.tasks] == ["h1"]
    assert cluster.until(cluster.steady)
    assert not any(task.host == "h1" for task in cluster.present())


def test_the_old_one_ends_before_the_new_one_starts():
    cluster = steady(replace(DAEMON, minimum_percent=50))
    new = cluster.deploy()
    decision = cluster.look()
    assert not decision.starts
    assert sum(len(stop.tasks) for stop in decision.stops) == 2
    assert not cluster.look().acts
    cluster.work()
    assert len(cluster.look().starts) == 2
    assert cluster.until(cluster.steady)
    assert {task.deployment for task in cluster.present()} == {new}


def test_without_a_minimum_all_are_exchanged_at_once():
    cluster = steady()
    cluster.deploy()
    assert sum(len(stop.tasks) for stop in cluster.look().stops) == 4


def test_nothing_makes_way_for_a_revision_that_waits():
    cluster = steady(replace(DAEMON, minimum_percent=75))
    old = cluster.primary.id
    cluster.deploy(good=False)
    cluster.until(lambda: cluster.primary.strikes >= 4)
    assert len([task for task in cluster.of(old) if task.stage == Stage.RUNNING]) == 3
    cluster.terms = replace(cluster.terms, minimum_percent=0)
    assert not cluster.look().stops
    cluster.now = cluster.primary.not_before
    assert sum(len(stop.tasks) for stop in cluster.look().stops) == 3


def test_a_failing_daemon_is_rolled_back():
    cluster = steady(replace(DAEMON, breaker=Breaker(enabled=True, rollback=True)))
    old = cluster.primary.id
    cluster.deploy(good=False)
    assert cluster.until(lambda: bool(cluster.rollbacks))
    assert cluster.until(cluster.steady)
    assert cluster.primary.id == old


def test_of_two_tasks_on_one_host_the_healthy_one_stays():
    cluster = steady()
    first = cluster.in_stage(Stage.RUNNING)[0]
    cluster.tasks["twin"] = replace(cluster.tasks[first], id="twin", stage=Stage.STARTING, started_at=0.0)
    assert [stop.tasks for stop in cluster.look().stops] == [("twin",)]


def test_a_cluster_without_hosts_is_steady():
    cluster = Cluster(DAEMON, hosts={"h1": "a"})
    cluster.hosts.clear()
    cluster.look()
    assert cluster.primary.completed
