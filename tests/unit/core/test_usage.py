"""Two looks at a host become rates; what has no before, or began anew in between, has none."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core.reserved import Reserved, of_container, of_task
from sexton.core.usage import ContainerUse, HostUse, TaskUse, Throttled, Usage, rates
from sexton.wire import acs_task

MIB = 1 << 20


def container(seconds: float | None, name: str = "app") -> ContainerUse:
    return ContainerUse(name=name, status="RUNNING", reserved=Reserved(), cpu_seconds=seconds, memory=1, held=1)


def usage(at: float, *tasks: TaskUse, busy: float = 0.0, steal: float = 0.0, waits: float = 0.0) -> Usage:
    host = HostUse(
        cores=4,
        capacity=Reserved(),
        reserved=Reserved(),
        busy_seconds=busy,
        steal_seconds=steal,
        stalled={"cpu": waits},
    )
    return Usage(at=at, instance="i", cluster="c", host=host, tasks=tasks)


def task(*containers: ContainerUse, periods: int = 0, used_up: int = 0, waits: float | None = None) -> TaskUse:
    return TaskUse(
        id="t",
        arn="arn:t",
        family="web",
        revision="1",
        status="RUNNING",
        reserved=Reserved(),
        throttled=Throttled(periods=periods, throttled=used_up),
        stalled={} if waits is None else {"memory": waits},
        containers=containers,
    )


def test_half_a_core_a_tenth_stolen_and_a_fifth_of_the_periods_used_up() -> None:
    before = usage(10.0, task(container(1.0), container(5.0, "side"), periods=100, used_up=50, waits=1.0), busy=7)
    after = usage(
        20.0,
        task(container(6.0), container(5.0, "side"), periods=150, used_up=60, waits=2.0),
        busy=17,
        steal=4,
        waits=3,
    )
    found = rates(before, after)

    assert (found.cpu, found.steal, found.stalled) == (1024.0, 0.1, {"cpu": 0.3})
    (of_it,) = found.tasks.values()
    assert (of_it.cpu, of_it.throttled, of_it.stalled) == (512.0, 0.2, {"memory": 0.1})
    assert {name: one.cpu for name, one in of_it.containers.items()} == {"app": 512.0, "side": 0.0}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (container(9.0), container(1.0)),  # started again: its cgroup counts from nothing
        (container(None), container(1.0)),
        (container(9.0), container(None)),
        (container(9.0, "other"), container(9.0)),
    ],
)
def test_what_cannot_be_compared_has_no_rate(before: ContainerUse, after: ContainerUse) -> None:
    found = rates(usage(1.0, task(before)), usage(2.0, task(after)))

    assert found.tasks["arn:t"].cpu is None


def test_a_task_that_is_new_and_two_looks_at_once_say_nothing() -> None:
    assert rates(usage(1.0), usage(2.0, task(container(1.0)))).tasks == {}
    assert rates(usage(1.0), usage(1.0)).cpu is None


def with_reservation(amount: object, **fields: object) -> acs_task.Container:
    text = msgspec.json.encode({"MemoryReservation": amount}).decode()
    return acs_task.Container(name="a", docker_config=acs_task.DockerConfig(host_config=text), **fields)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (acs_task.Container(name="a"), Reserved()),
        (acs_task.Container(name="a", cpu=256, memory=512), Reserved(cpu=256, memory=512, memory_limit=512)),
        (with_reservation(64 * MIB, memory=512), Reserved(memory=64, memory_limit=512)),
        (with_reservation(64 * MIB), Reserved(memory=64)),
        (with_reservation("much", memory=8), Reserved(memory=8, memory_limit=8)),
        (
            acs_task.Container(name="a", memory=8, docker_config=acs_task.DockerConfig(host_config="no json")),
            Reserved(memory=8, memory_limit=8),
        ),
    ],
)
def test_what_a_container_is_promised(given: acs_task.Container, wanted: Reserved) -> None:
    assert of_container(given) == wanted


def test_what_a_task_is_promised() -> None:
    containers = (acs_task.Container(name="a", cpu=100, memory=64), with_reservation(32 * MIB, memory=128, cpu=10))
    alone = acs_task.Task(containers=containers)
    sized = acs_task.Task(containers=containers, cpu=0.5, memory=1024)

    assert of_task(alone) == Reserved(cpu=110, memory=96)
    assert of_task(sized) == Reserved(cpu=512, memory=1024, cpu_limit=512, memory_limit=1024)
    assert of_task(sized, limited=False) == Reserved(cpu=512, memory=1024)
