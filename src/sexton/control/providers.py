"""Capacity providers as the other operations need them: which there are, which a cluster may use, and where they lead.

A provider is a name that tasks can be started through. ``FARGATE`` and ``FARGATE_SPOT`` are always there and stand for
every host of a cluster; one that somebody made stands for the hosts that name it in an attribute (``core.capacity``).
Whoever places tasks gets portions, so many tasks through this provider, and gives back hosts with the provider's name.

What was decided from a provider or a cluster is written on the condition that it still is what was read, so a
provider is not deleted under a cluster that is about to use it, nor taken from a cluster under a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from sexton.control.context import Call, Context, invalid
from sexton.control.records import TaskRecord
from sexton.core import capacity, fargate, names
from sexton.core.capacity import FARGATE
from sexton.core.fargate import NO_PLATFORM, Platform
from sexton.core.placement import Refusal
from sexton.store.contract import Compare
from sexton.wire import ecs
from sexton.wire.errors import PlatformUnknownException

NOT_FOUND = "The specified capacity provider was not found. Specify a valid name or ARN and try again."
WEIGHTLESS = (
    "At least one capacity provider must have a weight value greater than zero specified. Update the cluster's "
    "default capacity provider strategy or specify a valid capacity provider strategy and try again."
)


class Portion(NamedTuple):
    """So many tasks through a provider; without a name: through none."""

    provider: str
    tasks: int


def built_in(context: Context, call: Call, name: str) -> ecs.CapacityProvider:
    return ecs.CapacityProvider(
        capacity_provider_arn=names.capacity_provider_arn(context.place(call), name),
        name=name,
        status="ACTIVE",
        type=name,
    )


def members(context: Context, call: Call, given: Iterable[str]) -> tuple[tuple[str, ...], list[Compare]]:
    """The names of providers that a cluster is to have, and the condition that they stay; or the API's error."""
    chosen: dict[str, None] = {}
    unchanged = []
    table = context.records.providers
    for text in given:
        name = names.parse_capacity_provider(text)
        if name is None or name in chosen:
            _required(name)
            continue
        entry = table.get(call.region, name)
        if name not in FARGATE:
            _required(entry and not entry.value.ended_at)
            unchanged.append(context.records.unchanged(table, entry, call.region, name))
        chosen[name] = None
    if len(chosen) > capacity.MOST_PROVIDERS:
        raise invalid("The maximum number of capacity providers per cluster has been exceeded.")
    return tuple(chosen), unchanged


def _required(present: object) -> None:
    if not present:
        raise invalid(NOT_FOUND)


def default_strategy(
    given: Sequence[ecs.CapacityProviderStrategyItem] | None, of: Collection[str]
) -> tuple[ecs.CapacityProviderStrategyItem, ...]:
    """The strategy that a cluster with these providers is to have, or the API's error."""
    strategy = capacity.of_request(given)
    problem = capacity.problem(strategy, of)
    if problem:
        raise invalid(problem)
    return capacity.shown(strategy)


def portions(
    cluster: ecs.Cluster,
    definition: ecs.TaskDefinition,
    launch_type: str | None,
    given: Sequence[ecs.CapacityProviderStrategyItem] | None,
    count: int,
) -> tuple[Portion, ...]:
    """How many of a request's tasks go through which provider; through none when nothing asks for one."""
    if given and launch_type:
        raise invalid(
            "Specifying both a launch type and capacity provider strategy is not supported. Remove one and try again."
        )
    default = () if launch_type else cluster.default_capacity_provider_strategy
    strategy = capacity.of_request(given or default)
    if not strategy:
        return (Portion("", count),)
    problem = capacity.problem(strategy, cluster.capacity_providers or ())
    if problem:
        raise invalid(problem)
    if not capacity.usable(strategy):
        which = "capacity provider strategy" if given else "default capacity provider strategy"
        raise invalid(
            f"There are no capacity providers with a weight value greater than zero defined in the {which}. "
            f"{WEIGHTLESS}"
        )
    if strategy[0].provider in FARGATE and fargate.LAUNCH_TYPE not in (definition.compatibilities or ()):
        raise invalid("Task definition does not support launch_type FARGATE.")
    return tuple(Portion(provider, part) for provider, part in capacity.divide(strategy, count).items() if part)


def platform(
    of: ecs.TaskDefinition,
    launch_type: str | None,
    strategy: Sequence[ecs.CapacityProviderStrategyItem] | None,
    version: str | None,
) -> Platform:
    """The platform that is shown for tasks like these, or the API's error for what the launch type does not allow."""
    on_fargate = launch_type == fargate.LAUNCH_TYPE or any(one.capacity_provider in FARGATE for one in strategy or ())
    if not on_fargate:
        if version:
            raise invalid("The platform version must be null when specifying an EC2 launch type.")
        return NO_PLATFORM
    if version and version not in fargate.VERSIONS:
        raise PlatformUnknownException("The specified platform version does not exist.")
    # Whether the definition goes with the providers of a strategy is ``portions``' to say.
    if launch_type and fargate.LAUNCH_TYPE not in (of.compatibilities or ()):
        raise invalid("Task definition does not support launch_type FARGATE.")
    return Platform(version or fargate.LATEST, fargate.FAMILY)


# Chooses up to so many hosts of a capacity provider (of the whole cluster, when it is empty), by ARN; and, when there
# were fewer, says why no host took the next task.
Pick = Callable[[str, int], tuple[list[str], tuple[Refusal, ...]]]


def place(
    context: Context, region: str, cluster: str, wanted: Sequence[Portion], pick: Pick
) -> tuple[list[tuple[str, str]], tuple[Refusal, ...]]:
    """Hosts and the providers through which they were chosen, for as many tasks as there is room for."""
    scheduler = context.scheduler
    if not len(scheduler.board(region, cluster)):
        raise invalid("No Container Instances were found in your cluster.")
    if wanted[0].provider in FARGATE or not wanted[0].provider:
        # All of them lead to the same hosts, so the hosts are chosen together and then shared out.
        chosen, refusals = pick("", sum(one.tasks for one in wanted))
        through = (one.provider for one in wanted for _ in range(one.tasks))
        return list(zip(chosen, through, strict=False)), refusals
    if not all(len(scheduler.board(region, cluster, one.provider)) for one in wanted):
        raise invalid("No Container Instances were found in your capacity provider.")
    placed: list[tuple[str, str]] = []
    why: tuple[Refusal, ...] = ()
    for provider, count in wanted:
        # A host names one provider, so what one portion takes is nothing to the next.
        chosen, refusals = pick(provider, count)
        placed += [(host, provider) for host in chosen]
        why += refusals
    return placed, why


def through(record: TaskRecord, provider: str) -> TaskRecord:
    """The task as one that was started through this provider."""
    if not provider:
        return record
    task = msgspec.structs.replace(record.task, capacity_provider_name=provider, launch_type=str(ecs.LaunchType.EC2))
    if provider in FARGATE:
        task = on_fargate(task, task.platform_version)
    return msgspec.structs.replace(record, task=task)


def on_fargate(task: ecs.Task, version: str | None) -> ecs.Task:
    """The task as Fargate would show it."""
    storage = task.ephemeral_storage or ecs.EphemeralStorage(size_in_gib=fargate.EPHEMERAL_STORAGE)
    return msgspec.structs.replace(
        task,
        launch_type=fargate.LAUNCH_TYPE,
        platform_version=fargate.shown(version or fargate.LATEST),
        platform_family=fargate.FAMILY,
        ephemeral_storage=storage,
        fargate_ephemeral_storage=ecs.TaskEphemeralStorage(size_in_gib=storage.size_in_gib),
    )


def used(context: Context, region: str, cluster: str, providers: Collection[str]) -> bool:
    """Whether a task that has not ended was started through one of these."""
    return bool(providers) and any(
        not one.value.stopped and one.value.task.capacity_provider_name in providers
        for _, one in context.records.tasks.under(region, cluster)
    )
