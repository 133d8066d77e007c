"""Starts tasks of a service: chooses their hosts and makes them durable together with what the service says of it.

One start is one transaction, on the condition that the service and the hosts are what they were when it was decided,
so a service that was deleted or updated meanwhile gets no task of yesterday's decision. A start that finds too little
room places what fits; that it did not fit is written into the deployment, which waits longer each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from sexton.control import providers, serviceview, tasknetwork, taskroles, tasksetview
from sexton.control.context import Call, Context
from sexton.control.ops import tasks
from sexton.control.providers import Portion
from sexton.control.records import DefinitionRecord, Entry, ServiceRecord, TaskRecord, revision_key
from sexton.control.scheduler import choose
from sexton.control.serviceevents import with_events
from sexton.core import breaker, capabilities, capacity, names, rebalance, speech, tagging
from sexton.core import servicewords as words
from sexton.core.constraint import RuleError
from sexton.core.deployment import Deployment
from sexton.core.pace import Pace
from sexton.core.placement import Refusal, Wanted
from sexton.core.serviceview import StartTasks
from sexton.store.contract import Compare
from sexton.wire import ecs
from sexton.wire.errors import EcsError

# Tasks in one transaction: a store bounds how large one may be. What is missing then is decided again.
MOST_STARTED = 25
ZONE_ATTRIBUTE = "ecs.availability-zone"
# Of several refusals, the one that came closest to a yes is told.
_CLOSENESS = {
    "ATTRIBUTE": 1,
    "AGENT": 2,
    "RESOURCE:PORTS": 3,
    "RESOURCE:ENI": 4,
    "RESOURCE:CPU": 3,
    "RESOURCE:MEMORY": 3,
    "RESOURCE:GPU": 3,
}


class _Found(NamedTuple):
    """The tasks that found a host, and why the next one did not."""

    made: list[TaskRecord]
    refusals: tuple[Refusal, ...]
    problem: str = ""  # when no host could have helped
    network: tasknetwork.Chosen | None = None


async def begin(
    context: Context, entry: Entry[ServiceRecord], start: StartTasks, fence: Sequence[Compare], pace: Pace, now: float
) -> bool:
    """Carry one start out as far as there is room; False when something has changed meanwhile."""
    record = entry.value
    deployment = tasksetview.state_of(record, start.deployment)
    if deployment is None:
        return False
    count = min(start.count, MOST_STARTED)
    found = _find(context, record, deployment, start, count, now)
    records, where = context.records, (record.region, record.cluster, record.name)
    compares = [records.unchanged(records.services, entry, *where), *fence]
    if any(one.task.capacity_provider_name for one in found.made):
        # A provider is taken from a cluster only when no task is on its way through it.
        home = records.clusters.get(record.region, record.cluster)
        compares.append(records.unchanged(records.clusters, home, record.region, record.cluster))
    with tasknetwork.plugged(context, found.made, found.network, now) as plugged:
        found = found._replace(made=plugged.tasks, refusals=plugged.refusals or found.refusals)
        after = _remembered(context, record, deployment, start, found, len(found.made) < count, pace, now)
        writes = [records.put(records.services, after, *where), *plugged.writes]
        return await tasks.accept(context, found.made, [*compares, *plugged.compares], writes)


def _find(
    context: Context, record: ServiceRecord, deployment: Deployment, start: StartTasks, count: int, now: float
) -> _Found:
    revision = serviceview.revision_of(context, record, deployment.revision)
    name = names.parse_definition(revision.task_definition or "") if revision else None
    entry = name and context.records.definitions.get(record.region, name.family, revision_key(name.revision))
    if not entry or revision is None:
        return _Found([], ())
    try:
        network = _network(context, record, revision, entry.value.definition)
    except EcsError as error:
        return _Found([], (), error.message)  # a subnet or a group is gone since the service was made
    try:
        wanted = serviceview.wanted(record, entry.value.definition)
        chosen, refusals = _choose(context, record, revision, wanted, start, count)
    except (EcsError, RuleError):
        # The cluster has no hosts, or lost the provider, since the service was made: no room, for now.
        return _Found([], ())
    if chosen and capabilities.undeliverable(entry.value.definition):
        # A host that says it can is not enough: no payload of this control plane would say all of it.
        return _Found([], refusals)
    if chosen and (problem := taskroles.problem(context, record.region, entry.value.definition)):
        return _Found([], refusals, problem)  # the roles file said otherwise when the service was made
    made = [
        providers.through(_task(context, record, deployment, revision, entry.value, wanted, host, now), provider)
        for host, provider in chosen
    ]
    return _Found(tasks.with_gpus(context, made), refusals, network=network)


def _network(
    context: Context, record: ServiceRecord, revision: ecs.ServiceRevision, of: ecs.TaskDefinition
) -> tasknetwork.Chosen | None:
    configuration, fargate = revision.network_configuration, bool(revision.platform_family)
    return tasknetwork.choose(context, record.region, configuration, of, fargate=fargate)


def _choose(
    context: Context,
    record: ServiceRecord,
    revision: ecs.ServiceRevision,
    wanted: Wanted,
    start: StartTasks,
    count: int,
) -> tuple[list[tuple[str, str]], tuple[Refusal, ...]]:
    portions = _portions(context, record, revision, count)
    pick = partial(_pick, context, record, wanted, start)
    return providers.place(context, record.region, record.cluster, portions, pick)


def _portions(
    context: Context, record: ServiceRecord, revision: ecs.ServiceRevision, count: int
) -> tuple[Portion, ...]:
    """Through which providers the next tasks go, so that all of the service's tasks together follow its strategy."""
    strategy = capacity.of_request(revision.capacity_provider_strategy)
    if not strategy:
        return (Portion("", count),)
    present = Counter(
        one.value.task.capacity_provider_name or ""
        for one in context.service_tasks.of(serviceview.key_of(record))
        if one.value.task.desired_status != "STOPPED"
    )
    return tuple(Portion(*part) for part in Counter(capacity.assign(strategy, present, count)).items())


def _pick(
    context: Context, record: ServiceRecord, wanted: Wanted, start: StartTasks, provider: str, many: int
) -> tuple[list[str], tuple[Refusal, ...]]:
    if not (start.host or start.zone):
        return context.scheduler.place(record.region, record.cluster, provider, wanted, many)
    meant = [
        host
        for host in context.scheduler.board(record.region, record.cluster, provider)
        if (not start.host or host.arn == start.host)
        and (not start.zone or host.values.get(ZONE_ATTRIBUTE) == start.zone)
    ]
    return choose(meant, wanted, many)


def _task(
    context: Context,
    record: ServiceRecord,
    deployment: Deployment,
    revision: ecs.ServiceRevision,
    definition: DefinitionRecord,
    wanted: Wanted,
    host: str,
    now: float,
) -> TaskRecord:
    service = record.service
    request = ecs.RunTaskRequest(
        task_definition=revision.task_definition,
        group=wanted.group,
        started_by=deployment.id,
        launch_type=revision.launch_type,
        platform_version=revision.platform_version,
        network_configuration=revision.network_configuration,
    )
    order = tasks.Order(record.cluster, definition, serviceview.NO_OVERRIDES, wanted, request)
    made = tasks.record_of(context, Call(record.region, "", now), order, host)
    inherited: tuple[ecs.Tag, ...] = ()
    if service.propagate_tags == ecs.PropagateTags.TASK_DEFINITION:
        inherited = definition.tags
    elif service.propagate_tags == ecs.PropagateTags.SERVICE:
        inherited = tuple(one for one in service.tags or () if not tagging.reserved(one.key))
    managed = bool(service.enable_ecs_managed_tags)
    tags = tagging.of_task((), inherited, managed=managed, cluster=record.cluster, service=record.name)
    return msgspec.structs.replace(made, service=record.name, task=msgspec.structs.replace(made.task, tags=tags))


def _remembered(
    context: Context,
    record: ServiceRecord,
    deployment: Deployment,
    start: StartTasks,
    found: _Found,
    short: bool,
    pace: Pace,
    now: float,
) -> ServiceRecord:
    """The service once the start is carried out."""
    events: tuple[str, ...] = ()
    memory = record.memory
    task_set = deployment.id if record.task_sets else ""
    if found.made:
        ids = [one.id for one in found.made]
        events = (
            words.started(record.name, ids, replaced=start.replaces_unhealthy, zone=start.zone, task_set=task_set),
        )
        deployment = breaker.placed(deployment)
    if short:
        closest, problem = _closest(found.refusals)
        text = words.unplaced(record.name, closest, problem, zone=start.zone, task_set=task_set)
        if found.problem:
            text = words.not_launched(record.name, found.problem, task_set=task_set)
        if start.zone:
            memory = rebalance.refused(memory, now)
        else:
            deployment = breaker.not_placed(deployment, pace=pace, now=now)
        memory, said = speech.unplaced(memory, text, pace, now)
        events += said
    after = msgspec.structs.replace(tasksetview.with_state(record, deployment), memory=memory)
    return with_events(context, after, events, now)


def _closest(refusals: Sequence[Refusal]) -> tuple[str, str]:
    """The id of the host that lacked least, and what its problem is."""
    if not refusals:
        return "", ""
    best = max(refusals, key=lambda one: (_CLOSENESS.get(str(one.why), 0), one.arn))
    return names.last_part(best.arn), words.PROBLEMS.get(str(best.why), "")
