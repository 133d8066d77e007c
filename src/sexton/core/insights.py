"""A minute of this host's tasks as the metrics that CloudWatch's Container Insights knows, by their names and units.

Each task gives one value to each metric of its cluster, of its family and of its service, so that a sum is the use of
all tasks and an average that of one. Values of several tasks travel together. Those about the host have the names that
begin with ``instance_``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

# What one datum may hold, as the service says.
MOST_VALUES = 150

Dimensions = tuple[tuple[str, str], ...]


class TaskMinute(NamedTuple):
    """One task over the minute: CPU in units, memory in MB, bytes a second over the network, bytes of disks."""

    family: str
    service: str
    cpu_reserved: float
    cpu_used: float
    memory_reserved: float
    memory_used: float
    received: float = 0.0
    sent: float = 0.0
    read: float = 0.0
    written: float = 0.0
    restarts: int = 0


class HostMinute(NamedTuple):
    """The host over the minute; shares are percentages."""

    cpu_reserved: float
    cpu_used: float
    memory_reserved: float
    memory_used: float
    tasks: int


class Datum(NamedTuple):
    """One metric at one moment: its values, each with how often it was seen."""

    name: str
    unit: str
    dimensions: Dimensions
    values: tuple[tuple[float, int], ...]


_OF_TASK = (
    ("CpuReserved", "None", "cpu_reserved"),
    ("CpuUtilized", "None", "cpu_used"),
    ("MemoryReserved", "Megabytes", "memory_reserved"),
    ("MemoryUtilized", "Megabytes", "memory_used"),
    ("NetworkRxBytes", "Bytes/Second", "received"),
    ("NetworkTxBytes", "Bytes/Second", "sent"),
    ("StorageReadBytes", "Bytes", "read"),
    ("StorageWriteBytes", "Bytes", "written"),
    ("RestartCount", "Count", "restarts"),
)
_OF_HOST = (
    ("instance_cpu_reserved_capacity", "Percent", "cpu_reserved"),
    ("instance_cpu_utilization", "Percent", "cpu_used"),
    ("instance_memory_reserved_capacity", "Percent", "memory_reserved"),
    ("instance_memory_utilization", "Percent", "memory_used"),
    ("instance_number_of_running_tasks", "Count", "tasks"),
)


def of_tasks(cluster: str, tasks: Sequence[TaskMinute]) -> Iterator[Datum]:
    """Every metric of every group of tasks."""
    groups: dict[Dimensions, list[TaskMinute]] = {}
    of_cluster = (("ClusterName", cluster),)
    for one in tasks:
        groups.setdefault(of_cluster, []).append(one)
        groups.setdefault((*of_cluster, ("TaskDefinitionFamily", one.family)), []).append(one)
        if one.service:
            groups.setdefault((*of_cluster, ("ServiceName", one.service)), []).append(one)
    for dimensions, members in groups.items():
        for name, unit, field in _OF_TASK:
            yield from _data(name, unit, dimensions, (float(getattr(one, field)) for one in members))


def of_host(cluster: str, instance: str, ec2_instance: str, host: HostMinute) -> Iterator[Datum]:
    """The host's part in its cluster, and the host by itself; outside EC2 it has no instance id."""
    alone: Dimensions = (("ClusterName", cluster), ("ContainerInstanceId", instance))
    if ec2_instance:
        alone = (*alone, ("InstanceId", ec2_instance))
    for name, unit, field in _OF_HOST:
        for dimensions in ((("ClusterName", cluster),), alone):
            yield from _data(name, unit, dimensions, [float(getattr(host, field))])


def _data(name: str, unit: str, dimensions: Dimensions, values: Iterable[float]) -> Iterator[Datum]:
    counts: dict[float, int] = {}
    for value in values:
        rounded = round(value, 3)
        counts[rounded] = counts.get(rounded, 0) + 1
    several = sorted(counts.items())
    for start in range(0, len(several), MOST_VALUES):
        yield Datum(name, unit, dimensions, tuple(several[start : start + MOST_VALUES]))
