"""What every container instance's tasks take of it, kept up to date change by change.

In flow the changes of the task table, and the promises of tasks that were placed a moment ago and are still on their
way to the store. A promise turns into its record in the very step in which the record shows, so a task is never
counted twice and two requests that arrive together never get the same memory. Out come sums that cost the same
however many tasks there are and ever were.

Nothing survives a restart: the table's first loading counts everything again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sexton.control.records import Entry, Table, TaskRecord
from sexton.core import lifecycle
from sexton.core.resources import NOTHING, Resources


class Used(NamedTuple):
    """The sums of one container instance. Promised tasks count as tasks, but neither run nor wait yet."""

    resources: Resources = NOTHING
    tasks: int = 0
    running: int = 0
    pending: int = 0
    groups: Mapping[str, int] = {}  # tasks that are to run there, by their group
    gpus: frozenset[str] = frozenset()  # the ids of those that tasks have


class _Tally:
    """One instance's sums while they change."""

    __slots__ = ("cpu", "gpu_ids", "gpus", "groups", "memory", "pending", "running", "tasks", "tcp", "udp")

    def __init__(self) -> None:
        self.cpu = self.memory = self.gpus = self.tasks = self.running = self.pending = 0
        self.tcp: Counter[int] = Counter()
        self.udp: Counter[int] = Counter()
        self.groups: Counter[str] = Counter()
        self.gpu_ids: Counter[str] = Counter()

    def change(self, record: TaskRecord, sign: int) -> None:
        demand = record.demand
        self.cpu += sign * demand.cpu
        self.memory += sign * demand.memory
        self.tasks += sign
        if demand.gpus:
            self.gpus += sign * demand.gpus
            for container in record.task.containers or ():
                for device in container.gpu_ids or ():
                    self.gpu_ids[device] += sign
        for ports, counts in ((demand.tcp, self.tcp), (demand.udp, self.udp)):
            for port in ports:
                counts[port] += sign
                if not counts[port]:
                    del counts[port]

    def used(self) -> Used:
        tcp, udp = frozenset(self.tcp), frozenset(self.udp)
        taken = Resources(cpu=self.cpu, memory=self.memory, tcp=tcp, udp=udp, gpus=self.gpus)
        gpus = frozenset(+self.gpu_ids)
        return Used(taken, self.tasks, self.running, self.pending, dict(self.groups), gpus)


class Usage:
    """Follows the task table."""

    def __init__(self, tasks: Table[TaskRecord]) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._promised: dict[str, TaskRecord] = {}
        self._listeners: list[Callable[[str, str, str], None]] = []
        tasks.listen(self._changed)

    def listen(self, listener: Callable[[str, str, str], None]) -> None:
        """Call ``listener(region, cluster, instance_arn)`` whenever an instance's sums have changed."""
        self._listeners.append(listener)

    def of(self, instance_arn: str) -> Used:
        tally = self._tallies.get(instance_arn)
        return tally.used() if tally else Used()

    def total(self, instance_arns: Iterable[str]) -> tuple[int, int]:
        """How many tasks run and wait on these instances."""
        tallies = [tally for arn in instance_arns if (tally := self._tallies.get(arn))]
        return sum(one.running for one in tallies), sum(one.pending for one in tallies)

    @contextmanager
    def promised(self, placed: Sequence[tuple[str, TaskRecord]]) -> Iterator[None]:
        """Count tasks, by key, that are about to be written; what was not written in the end is let go."""
        for key, record in placed:
            self._promised[key] = record
            self._tally(record, 1)
        try:
            yield
        finally:
            for key, record in placed:
                if self._promised.pop(key, None) is not None:
                    self._tally(record, -1)

    def _changed(self, key: str, before: Entry[TaskRecord] | None, after: Entry[TaskRecord] | None) -> None:
        promise = self._promised.pop(key, None)
        if promise is not None:
            self._tally(promise, -1)
        if before is not None and not before.value.stopped:
            self._tally(before.value, -1, shown=True)
        if after is not None and not after.value.stopped:
            self._tally(after.value, 1, shown=True)

    def _tally(self, record: TaskRecord, sign: int, *, shown: bool = False) -> None:
        arn = record.task.container_instance_arn or ""
        tally = self._tallies.get(arn)
        if tally is None:
            tally = self._tallies[arn] = _Tally()
        tally.change(record, sign)
        if record.task.desired_status != "STOPPED":
            group = record.task.group or ""
            tally.groups[group] += sign
            if not tally.groups[group]:
                del tally.groups[group]
        if shown and record.task.last_status == "RUNNING":
            tally.running += sign
        elif shown and lifecycle.waits(record.task):
            tally.pending += sign
        if not tally.tasks:
            del self._tallies[arn]
        for listener in self._listeners:
            listener(record.region, record.cluster, arn)
