"""Where a task's cgroups are, for whoever reads them: each container's, and those in which its quota is kept.

A task has a cgroup of its own above its containers, a directory or a slice, and its quota and its pressure are there.
Where the engine is none of those that are known, its containers' own stand for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sexton.core.task import ContainerStatus, KnownContainer
from sexton.core.usage import Throttled
from sexton.host.container_counters import ContainerCounters
from sexton.host.taskcgroup import TaskCgroups
from sexton.runtime.cgroup_path import container_cgroup


class Groups:
    """The cgroups of one host's tasks."""

    def __init__(self, cgroups: TaskCgroups | None, driver: str) -> None:
        self._cgroups = cgroups
        self._driver = driver

    @property
    def limited(self) -> bool:
        """Whether tasks are held to their own limits here."""
        return self._cgroups is not None

    def container(self, task_id: str, runtime_id: str) -> str:
        if self._cgroups is not None:
            return self._cgroups.container_group(task_id, runtime_id)
        return container_cgroup(runtime_id, "", self._driver)

    def of_task(self, task_id: str, containers: Iterable[KnownContainer]) -> Sequence[str]:
        """The task's own, or else those of its running containers."""
        if self._cgroups is not None:
            return (self._cgroups.group(task_id),)
        return [self.container(task_id, one.runtime_id) for one in containers if one.runtime_id and runs(one)]


def runs(one: KnownContainer) -> bool:
    return one.status is ContainerStatus.RUNNING and not one.restarting


def throttled(counters: ContainerCounters, paths: Iterable[str]) -> Throttled | None:
    """What a quota has held back in all of these together; None where none has one."""
    found = [one for path in paths if (one := counters.throttling(path)) is not None]
    if not found:
        return None
    return Throttled(
        periods=sum(one.periods for one in found),
        throttled=sum(one.throttled for one in found),
        seconds=sum(one.throttled_ns for one in found) / 1e9,
    )


def stalled(counters: ContainerCounters, paths: Iterable[str]) -> dict[str, float]:
    """The longest wait in any of these, by resource: waits at the same time must not count twice."""
    worst: dict[str, float] = {}
    for path in paths:
        for resource, seconds in counters.stalled(path).items():
            worst[resource] = max(worst.get(resource, 0.0), seconds)
    return worst
