"""Capacity providers: made, changed, shown, deleted.

A provider of an Auto Scaling group is kept with everything that was said of its scaling, and nothing is scaled: hosts
join by themselves and say which provider they belong to. So a change is complete as soon as it is written, and the
update status says so. A deleted provider is shown as INACTIVE for a while; its name may be used again at once. One
that a cluster still has stays, and says why in its update status, as in ECS.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from sexton.control import providers
from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    client_error,
    invalid,
    page,
)
from sexton.control.fields import Fields
from sexton.control.records import Entry, ProviderRecord
from sexton.core import names, tagging
from sexton.core.capacity import FARGATE
from sexton.wire import ecs

T = TypeVar("T", bound=msgspec.Struct)

MOST_DESCRIBED = 100
# The API's own page of this listing.
MOST_PER_PAGE = 10
_NAME = re.compile(r"(?!aws|ecs|fargate)[A-Za-z0-9_-]{1,255}", re.IGNORECASE)
_SCALING = ecs.ManagedScaling(
    status="DISABLED",
    target_capacity=100,
    minimum_scaling_step_size=1,
    maximum_scaling_step_size=10000,
    instance_warmup_period=300,
)


async def create(
    context: Context, call: Call, request: ecs.CreateCapacityProviderRequest
) -> ecs.CreateCapacityProviderResponse:
    name = request.name or ""
    if not _NAME.fullmatch(name):
        raise invalid(
            "The specified capacity provider name is invalid. Up to 255 characters are allowed, including letters, "
            'numbers, underscores, and hyphens. The name cannot be prefixed with "aws", "ecs", or "fargate".'
        )
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    group = _group(request)
    table = context.records.providers
    for _ in range(CONFLICT_TRIES):
        entry = table.get(call.region, name)
        if entry is not None and not entry.value.ended_at:
            raise client_error(
                "The specified capacity provider already exists. To change the configuration of an existing capacity "
                "provider, update the capacity provider."
            )
        made = ecs.CapacityProvider(
            capacity_provider_arn=names.capacity_provider_arn(context.place(call), name),
            name=name,
            status="ACTIVE",
            auto_scaling_group_provider=group,
            update_status="CREATE_COMPLETE",
            tags=tagging.added((), request.tags or ()),
            type="EC2_AUTOSCALING",
        )
        if await _swap(context, call, entry, ProviderRecord(region=call.region, provider=made)):
            return ecs.CreateCapacityProviderResponse(capacity_provider=made)
    raise busy(f"capacity provider {name}")


def _group(request: ecs.CreateCapacityProviderRequest) -> ecs.AutoScalingGroupProvider:
    """The group as asked for, with the API's defaults."""
    group = request.auto_scaling_group_provider
    if group is None:
        raise invalid("A capacity provider needs an autoScalingGroupProvider.")
    if not group.auto_scaling_group_arn:
        raise invalid("The specified Auto Scaling group ARN is invalid. Specify a valid ARN or name and try again.")
    defaults = ecs.AutoScalingGroupProvider(
        auto_scaling_group_arn=group.auto_scaling_group_arn,
        managed_scaling=_SCALING,
        managed_termination_protection="DISABLED",
        managed_draining="ENABLED",
    )
    change = ecs.AutoScalingGroupProviderUpdate(
        managed_scaling=group.managed_scaling,
        managed_termination_protection=group.managed_termination_protection,
        managed_draining=group.managed_draining,
    )
    return _changed(defaults, change)


def _changed(
    group: ecs.AutoScalingGroupProvider, change: ecs.AutoScalingGroupProviderUpdate
) -> ecs.AutoScalingGroupProvider:
    """The group with what was said anew; what was not said stays."""
    scaling = _over(group.managed_scaling or _SCALING, change.managed_scaling)
    after = msgspec.structs.replace(_over(group, change), managed_scaling=scaling)
    if (scaling.minimum_scaling_step_size or 0) > (scaling.maximum_scaling_step_size or 0):
        raise invalid("The minimum scaling step size cannot be greater than the maximum scaling step size.")
    if after.managed_termination_protection == "ENABLED" and scaling.status != "ENABLED":
        raise invalid(
            "The managed termination protection setting for the capacity provider is invalid. To enable managed "
            "termination protection for a capacity provider, managed scaling must be enabled."
        )
    return after


def _over(before: T, said: msgspec.Struct | None) -> T:
    """A value with the fields that were said of another with the same names."""
    if said is None:
        return before
    fields = {name: value for name in said.__struct_fields__ if (value := getattr(said, name)) is not None}
    return msgspec.structs.replace(before, **fields)


async def update(
    context: Context, call: Call, request: ecs.UpdateCapacityProviderRequest
) -> ecs.UpdateCapacityProviderResponse:
    if request.auto_scaling_group_provider is None:
        raise invalid("An update of a capacity provider needs an autoScalingGroupProvider.")
    for _ in range(CONFLICT_TRIES):
        entry = _existing(context, call, request.name)
        provider = entry.value.provider
        group = _changed(
            provider.auto_scaling_group_provider or ecs.AutoScalingGroupProvider(), request.auto_scaling_group_provider
        )
        after = msgspec.structs.replace(
            provider, auto_scaling_group_provider=group, update_status="UPDATE_COMPLETE", update_status_reason=None
        )
        if after == provider or await _swap(context, call, entry, msgspec.structs.replace(entry.value, provider=after)):
            return ecs.UpdateCapacityProviderResponse(capacity_provider=after)
    raise busy(f"capacity provider {request.name}")


def _existing(context: Context, call: Call, given: str | None, *, ended: bool = False) -> Entry[ProviderRecord]:
    """A provider that somebody made; also one that has been deleted, when that is asked for."""
    name = names.parse_capacity_provider(given or "")
    if name in FARGATE:
        raise invalid("The specified capacity provider is reserved and cannot be updated or deleted.")
    entry = context.records.providers.get(call.region, name) if name else None
    if entry is None or (entry.value.ended_at and not ended):
        raise client_error("The specified capacity provider does not exist. Specify a valid name or ARN and try again.")
    return entry


async def delete(
    context: Context, call: Call, request: ecs.DeleteCapacityProviderRequest
) -> ecs.DeleteCapacityProviderResponse:
    for _ in range(CONFLICT_TRIES):
        entry = _existing(context, call, request.capacity_provider, ended=True)
        if entry.value.ended_at:
            return ecs.DeleteCapacityProviderResponse(capacity_provider=entry.value.provider)
        kept = _kept(context, call, entry.value)
        after = kept or _ended(entry.value, call.now)
        if after != entry.value and not await _swap(context, call, entry, after):
            continue
        late = None if kept else _kept(context, call, entry.value)
        if late is not None:
            # A cluster took it just before: it is seen now. None can take it any more, since it has changed.
            ended = context.records.providers.get(call.region, after.name)
            await _swap(context, call, ended, late)
        return ecs.DeleteCapacityProviderResponse(capacity_provider=(late or after).provider)
    raise busy(f"capacity provider {request.capacity_provider}")


def _kept(context: Context, call: Call, record: ProviderRecord) -> ProviderRecord | None:
    """The provider with the reason why it is not deleted; None when nothing keeps it."""
    for _, one in context.records.clusters.under(call.region):
        cluster = one.value.cluster
        if cluster.status == "ACTIVE" and record.name in (cluster.capacity_providers or ()):
            reason = (
                f"The capacity provider cannot be deleted because it is associated with cluster: {one.value.name}. "
                "Remove the capacity provider from the cluster and try again."
            )
            provider = msgspec.structs.replace(
                record.provider, update_status="DELETE_FAILED", update_status_reason=reason
            )
            return msgspec.structs.replace(record, provider=provider)
    return None


def _ended(record: ProviderRecord, now: float) -> ProviderRecord:
    provider = msgspec.structs.replace(
        record.provider, status="INACTIVE", update_status="DELETE_COMPLETE", update_status_reason=None
    )
    return msgspec.structs.replace(record, provider=provider, ended_at=now)


async def _swap(context: Context, call: Call, entry: Entry[ProviderRecord] | None, record: ProviderRecord) -> bool:
    table, where = context.records.providers, (call.region, record.name)
    result = await context.records.commit(
        [context.records.unchanged(table, entry, *where)], [context.records.put(table, record, *where)]
    )
    return result.succeeded


async def describe(
    context: Context, call: Call, request: ecs.DescribeCapacityProvidersRequest
) -> ecs.DescribeCapacityProvidersResponse:
    given = request.capacity_providers or ()
    if len(given) > MOST_DESCRIBED:
        raise invalid(f"Capacity providers cannot have more than {MOST_DESCRIBED} entries.")
    known = _known(context, call, ended=bool(given))
    if request.cluster:
        cluster = active_cluster(context, call, request.cluster).value.cluster
        known = {name: one for name, one in known.items() if name in (cluster.capacity_providers or ())}
    asked = {text: names.parse_capacity_provider(text) or "" for text in given}
    failures = tuple(
        ecs.Failure(arn=_arn(context, call, text), reason="MISSING")
        for text, name in asked.items()
        if name not in known
    )
    found = sorted(known.keys() & asked.values() if given else known)
    chosen, token = page(found, request.next_token, request.max_results, MOST_PER_PAGE)
    tags = "TAGS" in (request.include or ())
    return ecs.DescribeCapacityProvidersResponse(
        capacity_providers=tuple(
            msgspec.structs.replace(known[name], tags=known[name].tags or () if tags else ()) for name in chosen
        ),
        failures=failures,
        next_token=token,
    )


def _known(context: Context, call: Call, *, ended: bool) -> dict[str, ecs.CapacityProvider]:
    made = {
        one.value.name: one.value.provider
        for _, one in context.records.providers.under(call.region)
        if ended or not one.value.ended_at
    }
    return {name: providers.built_in(context, call, name) for name in FARGATE} | made


def _arn(context: Context, call: Call, text: str) -> str:
    return text if text.startswith("arn:") else names.capacity_provider_arn(context.place(call), text)


_MANAGED = "hosts join by themselves; leave it out."
_NOT_SCALED = {"autoScalingGroupProvider": "kept and shown; nothing is scaled"}
FIELDS: dict[str, Fields] = {
    "CreateCapacityProvider": Fields(
        accepted=_NOT_SCALED,
        refused={"managedInstancesProvider": _MANAGED, "cluster": "it is for managed instances; leave it out."},
    ),
    "UpdateCapacityProvider": Fields(
        accepted=_NOT_SCALED,
        refused={"managedInstancesProvider": _MANAGED, "cluster": "it is for managed instances; leave it out."},
    ),
    "DeleteCapacityProvider": Fields(
        refused={"cluster": "it is for managed instances; leave it out."},
    ),
}


OPERATIONS: dict[str, Operation] = {
    "CreateCapacityProvider": create,
    "UpdateCapacityProvider": update,
    "DeleteCapacityProvider": delete,
    "DescribeCapacityProviders": describe,
}
