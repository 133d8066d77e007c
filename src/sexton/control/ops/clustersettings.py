"""What of a cluster can be changed: its settings and configuration, and the capacity providers it has.

A provider is taken from a cluster only when no task that was started through it is left. A task that was being
started just then either is seen, and the cluster keeps the provider, or finds the cluster changed and is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sexton.control import clusterview, providers
from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    invalid,
)
from sexton.control.fields import Fields
from sexton.control.records import ClusterRecord, Entry
from sexton.core import accountsettings
from sexton.store.contract import Compare
from sexton.wire import ecs
from sexton.wire.ecs import ClusterField, ExecuteCommandLogging
from sexton.wire.errors import ResourceInUseException


def settings(
    given: Sequence[ecs.ClusterSetting] | None, before: Sequence[ecs.ClusterSetting]
) -> tuple[ecs.ClusterSetting, ...]:
    """A cluster's settings with those that were given, or the API's error for one that cannot be."""
    after = {one.name: one for one in before}
    for one in given or ():
        problem = accountsettings.problem(one.name, one.value or "") if one.name else "A cluster setting needs a name."
        if problem:
            raise invalid(problem)
        after[one.name] = one
    return tuple(after.values())


def check_configuration(configuration: ecs.ClusterConfiguration | None) -> None:
    """The API's error for a configuration that contradicts itself."""
    execute = configuration.execute_command_configuration if configuration else None
    if execute is None:
        return
    overrides = execute.logging == ExecuteCommandLogging.OVERRIDE
    if overrides and execute.log_configuration is None:
        raise invalid("A logConfiguration must be provided when logging is OVERRIDE.")
    if execute.log_configuration is not None and not overrides:
        raise invalid("A logConfiguration can be provided only when logging is OVERRIDE.")


async def update(context: Context, call: Call, request: ecs.UpdateClusterRequest) -> ecs.UpdateClusterResponse:
    check_configuration(request.configuration)

    def change(cluster: ecs.Cluster) -> ecs.Cluster:
        defaults = request.service_connect_defaults
        return msgspec.structs.replace(
            cluster,
            settings=settings(request.settings, cluster.settings or ()),
            configuration=request.configuration or cluster.configuration,
            service_connect_defaults=namespace(defaults) if defaults else cluster.service_connect_defaults,
        )

    entry = await _change(context, call, request.cluster, change)
    return ecs.UpdateClusterResponse(cluster=clusterview.shown(context, entry))


def namespace(given: ecs.ClusterServiceConnectDefaultsRequest | None) -> ecs.ClusterServiceConnectDefaults | None:
    """An empty name means none."""
    return ecs.ClusterServiceConnectDefaults(namespace=given.namespace) if given and given.namespace else None


async def update_settings(
    context: Context, call: Call, request: ecs.UpdateClusterSettingsRequest
) -> ecs.UpdateClusterSettingsResponse:
    if not request.settings:
        raise invalid("Settings cannot be empty.")

    def change(cluster: ecs.Cluster) -> ecs.Cluster:
        return msgspec.structs.replace(cluster, settings=settings(request.settings, cluster.settings or ()))

    entry = await _change(context, call, request.cluster, change)
    return ecs.UpdateClusterSettingsResponse(cluster=clusterview.shown(context, entry))


async def put_providers(
    context: Context, call: Call, request: ecs.PutClusterCapacityProvidersRequest
) -> ecs.PutClusterCapacityProvidersResponse:
    for _ in range(CONFLICT_TRIES):
        before = active_cluster(context, call, request.cluster)
        names, unchanged = providers.members(context, call, request.capacity_providers or ())
        strategy = providers.default_strategy(request.default_capacity_provider_strategy, names)
        gone = frozenset(before.value.cluster.capacity_providers or ()).difference(names)
        _refuse_used(context, before.value, gone)
        cluster = msgspec.structs.replace(
            before.value.cluster, capacity_providers=names, default_capacity_provider_strategy=strategy
        )
        after = await _swap(context, before, cluster, unchanged)
        if after is None:
            continue
        try:
            # Tasks are started only while the cluster is as it was. One that came just before is seen now, and stays.
            _refuse_used(context, before.value, gone)
        except ResourceInUseException:
            await _swap(context, after, before.value.cluster, [])
            raise
        include = {*clusterview.AFTER_CHANGE, ClusterField.ATTACHMENTS}
        return ecs.PutClusterCapacityProvidersResponse(cluster=clusterview.shown(context, after, include))
    raise busy(f"cluster {request.cluster}")


def _refuse_used(context: Context, record: ClusterRecord, gone: frozenset[str]) -> None:
    if providers.used(context, record.region, record.name, gone):
        raise ResourceInUseException("The specified capacity provider is in use and cannot be removed.")


async def _change(
    context: Context, call: Call, given: str | None, change: Callable[[ecs.Cluster], ecs.Cluster]
) -> Entry[ClusterRecord]:
    for _ in range(CONFLICT_TRIES):
        before = active_cluster(context, call, given)
        after = await _swap(context, before, change(before.value.cluster), [])
        if after is not None:
            return after
    raise busy(f"cluster {given}")


async def _swap(
    context: Context, before: Entry[ClusterRecord], cluster: ecs.Cluster, unchanged: Sequence[Compare]
) -> Entry[ClusterRecord] | None:
    """The cluster as it is after the change; None when it had been changed meanwhile."""
    table, where = context.records.clusters, (before.value.region, before.value.name)
    if cluster == before.value.cluster:
        return before
    record = msgspec.structs.replace(before.value, cluster=cluster)
    result = await context.records.commit(
        [context.records.unchanged(table, before, *where), *unchanged], [context.records.put(table, record, *where)]
    )
    return table.get(*where) if result.succeeded else None


# What a cluster keeps and shows, and nothing acts on.
SHOWN = {
    "configuration": "kept and shown; no command is executed and no storage managed",
    "serviceConnectDefaults": "kept and shown; there is no Service Connect here",
    "settings": "kept and shown; nobody looks at the insights",
}
FIELDS: dict[str, Fields] = {
    "UpdateCluster": Fields(accepted=SHOWN),
    "UpdateClusterSettings": Fields(accepted={"settings": SHOWN["settings"]}),
}

OPERATIONS: dict[str, Operation] = {
    "UpdateCluster": update,
    "UpdateClusterSettings": update_settings,
    "PutClusterCapacityProviders": put_providers,
}
