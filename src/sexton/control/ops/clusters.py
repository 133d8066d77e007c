"""Clusters: a name under which hosts and tasks meet.

The default cluster exists from the first start, as it does for anyone who has used ECS once. A deleted cluster
stays as INACTIVE, as ECS keeps it, and becomes active again when it is created anew.
"""

from __future__ import annotations

import msgspec

from sexton.control import clusterview, providers
from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    cluster_name,
    invalid,
    page,
)
from sexton.control.fields import Fields
from sexton.control.ops import accountsettings, clustersettings
from sexton.control.records import ClusterRecord, Entry
from sexton.core import names, tagging
from sexton.wire import ecs
from sexton.wire.errors import (
    ClusterContainsContainerInstancesException,
    ClusterContainsServicesException,
    ClusterContainsTasksException,
    EcsError,
)

MOST_DESCRIBED = 100


async def create(context: Context, call: Call, request: ecs.CreateClusterRequest) -> ecs.CreateClusterResponse:
    name = cluster_name(request.cluster_name)
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    clustersettings.check_configuration(request.configuration)
    insights = accountsettings.effective(context, call, ecs.SettingName.CONTAINER_INSIGHTS).value
    settings = (ecs.ClusterSetting(name=ecs.SettingName.CONTAINER_INSIGHTS, value=insights),)
    for _ in range(CONFLICT_TRIES):
        entry = context.records.clusters.get(call.region, name)
        if entry is not None and entry.value.cluster.status == "ACTIVE":
            break  # creating what exists answers with it
        members, unchanged = providers.members(context, call, request.capacity_providers or ())
        cluster = ecs.Cluster(
            cluster_arn=names.cluster_arn(context.place(call), name),
            cluster_name=name,
            status="ACTIVE",
            statistics=(),
            tags=request.tags,
            settings=clustersettings.settings(request.settings, settings),
            configuration=request.configuration,
            capacity_providers=members,
            default_capacity_provider_strategy=providers.default_strategy(
                request.default_capacity_provider_strategy, members
            ),
            service_connect_defaults=clustersettings.namespace(request.service_connect_defaults),
        )
        table = context.records.clusters
        record = ClusterRecord(region=call.region, cluster=cluster)
        # A conflict means that somebody else made it: the next turn finds it.
        await context.records.commit(
            [context.records.unchanged(table, entry, call.region, name), *unchanged],
            [context.records.put(table, record, call.region, name)],
        )
    else:
        raise busy(f"cluster {name}")
    return ecs.CreateClusterResponse(cluster=clusterview.shown(context, entry))


async def delete(context: Context, call: Call, request: ecs.DeleteClusterRequest) -> ecs.DeleteClusterResponse:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = active_cluster(context, call, request.cluster)
        name = entry.value.name
        _refuse_in_use(context, call, name)
        inactive = msgspec.structs.replace(entry.value.cluster, status="INACTIVE")
        ended = msgspec.structs.replace(entry.value, cluster=inactive, ended_at=call.now)
        if not await _swap(context, entry, ended):
            continue
        after = records.clusters.get(call.region, name)
        try:
            # Instances join only while the cluster is active. One that came just before is seen now, and stays.
            _refuse_in_use(context, call, name)
        except EcsError:
            if after is not None:
                await _swap(context, after, entry.value)
            raise
        return ecs.DeleteClusterResponse(cluster=clusterview.shown(context, after or entry))
    raise busy(f"cluster {request.cluster}")


def _refuse_in_use(context: Context, call: Call, name: str) -> None:
    if any(one.value.service.status != "INACTIVE" for _, one in context.records.services.under(call.region, name)):
        raise ClusterContainsServicesException("The Cluster cannot be deleted while Services are active.")
    if context.records.instances.group(f"{call.region}/{name}"):
        raise ClusterContainsContainerInstancesException(
            "The Cluster cannot be deleted while Container Instances are active or draining.",
        )
    if any(not one.value.stopped for _, one in context.records.tasks.under(call.region, name)):
        raise ClusterContainsTasksException("The Cluster cannot be deleted while Tasks are active.")


async def _swap(context: Context, entry: Entry[ClusterRecord], record: ClusterRecord) -> bool:
    table, where = context.records.clusters, (record.region, record.name)
    result = await context.records.commit(
        [context.records.unchanged(table, entry, *where)], [context.records.put(table, record, *where)]
    )
    return result.succeeded


async def describe(context: Context, call: Call, request: ecs.DescribeClustersRequest) -> ecs.DescribeClustersResponse:
    include = set(request.include or ())
    if len(request.clusters or ()) > MOST_DESCRIBED:
        raise invalid(f"Clusters cannot have more than {MOST_DESCRIBED} entries.")
    found, failures = [], []
    for given in request.clusters or (names.DEFAULT_CLUSTER,):
        name = names.parse_cluster(given)
        entry = context.records.clusters.get(call.region, name) if name else None
        if entry is None:
            arn = given if given.startswith("arn:") else names.cluster_arn(context.place(call), given)
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
        else:
            found.append(clusterview.shown(context, entry, include))
    return ecs.DescribeClustersResponse(clusters=tuple(found), failures=tuple(failures))


async def listing(context: Context, call: Call, request: ecs.ListClustersRequest) -> ecs.ListClustersResponse:
    keys = [key for key, one in context.records.clusters.under(call.region) if one.value.cluster.status == "ACTIVE"]
    chosen, token = page(keys, request.next_token, request.max_results)
    rows = (context.records.clusters.get(key) for key in chosen)
    arns = tuple(row.value.cluster.cluster_arn or "" for row in rows if row)
    return ecs.ListClustersResponse(cluster_arns=arns, next_token=token)


FIELDS: dict[str, Fields] = {"CreateCluster": Fields(accepted=clustersettings.SHOWN)}

OPERATIONS: dict[str, Operation] = {
    "CreateCluster": create,
    "DeleteCluster": delete,
    "DescribeClusters": describe,
    "ListClusters": listing,
}
