"""A cluster as the API shows it: the record, what is counted over the other tables, and what was asked to be included.

Counts are made when somebody asks. Those by launch type look at every task of the cluster, which is why they are only
made for whoever includes STATISTICS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from sexton.control.context import Context
from sexton.control.records import ClusterRecord, Entry
from sexton.core import lifecycle
from sexton.wire import ecs
from sexton.wire.ecs import ClusterField

# What an answer to a change of a cluster includes without being asked.
AFTER_CHANGE = frozenset((ClusterField.SETTINGS, ClusterField.CONFIGURATIONS, ClusterField.TAGS))

_LAUNCH_TYPES = {"EC2": "EC2", "FARGATE": "Fargate", "EXTERNAL": "External"}


def shown(context: Context, entry: Entry[ClusterRecord], include: Collection[str] = AFTER_CHANGE) -> ecs.Cluster:
    """The cluster with its counts and what is included."""
    record = entry.value
    cluster = record.cluster
    instances = context.records.instances.group(f"{record.region}/{record.name}")
    running, pending = context.usage.total(one.value.arn for one in instances)
    # Nothing of a provider has to be made here, so what a cluster has of it is complete from the start.
    attached = ClusterField.ATTACHMENTS in include and cluster.capacity_providers
    return msgspec.structs.replace(
        cluster,
        registered_container_instances_count=len(instances),
        running_tasks_count=running,
        pending_tasks_count=pending,
        active_services_count=sum(
            one.value.service.status == "ACTIVE"
            for _, one in context.records.services.under(record.region, record.name)
        ),
        statistics=_statistics(context, record) if ClusterField.STATISTICS in include else (),
        tags=cluster.tags or () if ClusterField.TAGS in include else (),
        settings=cluster.settings or () if ClusterField.SETTINGS in include else (),
        configuration=cluster.configuration if ClusterField.CONFIGURATIONS in include else None,
        attachments=() if attached else None,
        attachments_status="UPDATE_COMPLETE" if attached else None,
    )


def _statistics(context: Context, record: ClusterRecord) -> tuple[ecs.KeyValuePair, ...]:
    """Tasks and services by launch type, under the names that ECS gives them."""
    tasks: Counter[tuple[bool, str]] = Counter()
    for _, entry in context.records.tasks.under(record.region, record.name):
        task = entry.value.task
        if task.last_status == "RUNNING" or lifecycle.waits(task):
            tasks[task.last_status == "RUNNING", task.launch_type or "EC2"] += 1
    counts = {
        f"{word}{name}TasksCount": tasks[word == "running", launch_type]
        for word in ("running", "pending")
        for launch_type, name in _LAUNCH_TYPES.items()
    }
    services: Counter[tuple[str, str]] = Counter()
    for _, service in context.records.services.under(record.region, record.name):
        shown = service.value.service
        services[shown.status or "", shown.launch_type or "EC2"] += 1
    counts |= {
        f"{word}{name}ServiceCount": services[word.upper(), launch_type]
        for word in ("active", "draining")
        for launch_type, name in _LAUNCH_TYPES.items()
    }
    return tuple(ecs.KeyValuePair(name=name, value=str(count)) for name, count in counts.items())
