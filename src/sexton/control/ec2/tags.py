"""Tags of networks, by the ids of what has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from sexton.control import network
from sexton.control.context import CONFLICT_TRIES, Call, Context
from sexton.control.ec2 import asking, groups, interfaces, subnets, vpcs
from sexton.control.ec2.asking import Filters, Listing, Tag
from sexton.control.networkrecords import GROUP, INTERFACE, RULE, SUBNET, VPC, GroupRecord, Kind, RuleRecord, Tags
from sexton.control.query.service import Answer, Operation
from sexton.store.contract import Compare, Put
from sexton.wire.query import DryRun, QueryError, Request

MOST_RESOURCES = 50
"""In one request: each is a condition of one transaction."""

Change = Callable[[Tags], Tags]


class CreateTags(DryRun, frozen=True, kw_only=True):
    resource_id: tuple[str, ...]
    tag: tuple[Tag, ...]


async def create(context: Context, call: Call, request: CreateTags) -> Answer:
    return await _change(context, call, request.resource_id, lambda tags: asking.with_tags(tags, request.tag))


class GoneTag(Request, frozen=True, kw_only=True):
    key: str
    value: str | None = None


class DeleteTags(DryRun, frozen=True, kw_only=True):
    resource_id: tuple[str, ...]
    tag: tuple[GoneTag, ...] = ()


async def delete(context: Context, call: Call, request: DeleteTags) -> Answer:
    """Take off the tags with these keys, where a value is named only if it is that; all tags, when none is named."""
    gone = {(one.key, one.value) for one in request.tag}

    def change(tags: Tags) -> Tags:
        if not gone:
            return {}
        return {key: value for key, value in tags.items() if not gone & {(key, value), (key, None)}}

    return await _change(context, call, request.resource_id, change)


async def _change(context: Context, call: Call, ids: tuple[str, ...], change: Change) -> Answer:
    """Change the tags of all of these, or of none."""
    if not 1 <= len(set(ids)) <= MOST_RESOURCES:
        raise asking.invalid(f"A request can name 1 to {MOST_RESOURCES} resources.")
    for _ in range(CONFLICT_TRIES):
        compares: dict[str, Compare] = {}
        writes: dict[str, Put] = {}
        # Rules live in their groups, so that several ids may change one record.
        after: dict[str, GroupRecord] = {}
        for one in dict.fromkeys(ids):
            compare, put = _one(context, call.region, one, change, after)
            compares[compare.key] = compare
            writes[put.key] = put
        if (await context.records.commit(list(compares.values()), list(writes.values()))).succeeded:
            return {"return": True}
    raise asking.busy("One of the resources")


def _one(
    context: Context, region: str, given: str, change: Change, after: dict[str, GroupRecord]
) -> tuple[Compare, Put]:
    records = context.records
    match asking.kind_of(given):
        case kind if kind is VPC:
            vpc = vpcs.find(context, region, given)
            new = msgspec.structs.replace(vpc.value, tags=change(vpc.value.tags))
            where = region, given
            return records.unchanged(records.vpcs, vpc, *where), records.put(records.vpcs, new, *where)
        case kind if kind is SUBNET:
            subnet = subnets.find(context, region, given)
            tagged = msgspec.structs.replace(subnet.value, tags=change(subnet.value.tags))
            where = region, given
            return records.unchanged(records.subnets, subnet, *where), records.put(records.subnets, tagged, *where)
        case kind if kind is INTERFACE:
            interface = interfaces.find(context, region, given)
            named = msgspec.structs.replace(interface.value, tags=change(interface.value.tags))
            place = network.key_of(named)
            return records.unchanged(records.interfaces, interface, *place), records.put(
                records.interfaces, named, *place
            )
        case kind if kind in (GROUP, RULE):
            group_id = given if kind is GROUP else _group_of_rule(context, region, given)
            entry = groups.find(context, region, group_id)
            group = _tagged(after.get(group_id, entry.value), given, change)
            after[group_id] = group
            where = region, group_id
            return records.unchanged(records.groups, entry, *where), records.put(records.groups, group, *where)
        case _:
            raise QueryError("InvalidID", f"The ID '{given[:100]}' is not valid")


def _group_of_rule(context: Context, region: str, rule_id: str) -> str:
    for _, entry in context.records.groups.under(region):
        if any(one.id == rule_id for one in (*entry.value.ingress, *entry.value.egress)):
            return entry.value.id
    raise asking.missing(RULE, rule_id)


def _tagged(group: GroupRecord, given: str, change: Change) -> GroupRecord:
    if given == group.id:
        return msgspec.structs.replace(group, tags=change(group.tags))

    def tagged(some: tuple[RuleRecord, ...]) -> tuple[RuleRecord, ...]:
        return tuple(msgspec.structs.replace(one, tags=change(one.tags)) if one.id == given else one for one in some)

    return msgspec.structs.replace(group, ingress=tagged(group.ingress), egress=tagged(group.egress))


class DescribeTags(Listing, frozen=True, kw_only=True):
    pass


class _Row(NamedTuple):
    id: str
    kind: Kind
    key: str
    value: str


FILTERS: Filters[_Row] = {
    "resource-id": lambda row: [row.id],
    "resource-type": lambda row: [row.kind.type],
    "key": lambda row: [row.key],
    "value": lambda row: [row.value],
}


async def describe(context: Context, call: Call, request: DescribeTags) -> Answer:
    rows = [
        _Row(one, kind, key, value) for one, kind, tags in _all(context, call.region) for key, value in tags.items()
    ]
    found = asking.chosen(rows, request.filter, FILTERS, lambda row: {row.key: row.value})
    found, token = asking.page(request, found, lambda row: f"{row.id}/{row.key}")
    shown = [{"resourceId": row.id, "resourceType": row.kind.type, "key": row.key, "value": row.value} for row in found]
    return asking.answer("tagSet", shown, token)


def _all(context: Context, region: str) -> Iterator[tuple[str, Kind, Tags]]:
    records = context.records
    for _, vpc in records.vpcs.under(region):
        yield vpc.value.id, VPC, vpc.value.tags
    for _, subnet in records.subnets.under(region):
        yield subnet.value.id, SUBNET, subnet.value.tags
    for _, interface in records.interfaces.under(region):
        yield interface.value.id, INTERFACE, interface.value.tags
    for _, group in records.groups.under(region):
        yield group.value.id, GROUP, group.value.tags
        for rule in (*group.value.ingress, *group.value.egress):
            yield rule.id, RULE, rule.tags


OPERATIONS = {
    "CreateTags": Operation(CreateTags, create),
    "DeleteTags": Operation(DeleteTags, delete),
    "DescribeTags": Operation(DescribeTags, describe),
}
