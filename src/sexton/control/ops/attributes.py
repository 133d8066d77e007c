"""Custom attributes of container instances: put, deleted, listed.

The names that begin with ``ecs.`` or ``com.amazonaws.`` are what agents and the service say of a host; clients see
those and change only the others. A request is done as a whole or not at all, over all instances that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    invalid,
    page,
    same_cluster,
)
from sexton.control.records import Entry, InstanceRecord
from sexton.core import names
from sexton.wire import ecs
from sexton.wire.errors import AttributeLimitExceededException, TargetNotFoundException

# The API's own limits, of one call and of the custom attributes of one instance.
MOST_PER_CALL = 10
MOST_CUSTOM = 10
_RESERVED = ("ecs.", "com.amazonaws.")
_NAME = re.compile(r"[A-Za-z0-9_./\\-]{1,128}")
_VALUE = re.compile(r"(?! )[A-Za-z0-9_.@/\\: -]{1,128}(?<! )")

Attributes = dict[str, ecs.Attribute]


class _Target(NamedTuple):
    """An instance that a request names, and the attributes it says of it."""

    entry: Entry[InstanceRecord]
    said: list[ecs.Attribute]


def custom(name: str) -> bool:
    return not name.startswith(_RESERVED)


def _by_name(entry: Entry[InstanceRecord]) -> Attributes:
    return {one.name or "": one for one in entry.value.instance.attributes or ()}


def _shown(entry: Entry[InstanceRecord], attribute: ecs.Attribute) -> ecs.Attribute:
    return ecs.Attribute(name=attribute.name, value=attribute.value, target_id=entry.value.arn)


def _check(given: tuple[ecs.Attribute, ...]) -> None:
    """The API's error for a request that is wrong whatever the instances are."""
    if not 1 <= len(given) <= MOST_PER_CALL:
        raise invalid(f"Attributes must be between 1 and {MOST_PER_CALL}.")
    for one in given:
        name = one.name or ""
        if not _NAME.fullmatch(name):
            raise invalid(f"Invalid attribute name: {name}")
        if not custom(name):
            raise invalid(f"The attribute {name} is reserved; only custom attributes can be changed.")
        if one.value is not None and not _VALUE.fullmatch(one.value):
            raise invalid(f"Invalid value for attribute {name}: {one.value}")
        if not one.target_id:
            raise invalid(f"The attribute {name} needs a targetId.")
        if not one.target_id.startswith("arn:") and not one.target_type:
            raise invalid("A targetType is required when the targetId is in the short form.")


def _targets(context: Context, call: Call, cluster: str, given: Iterable[ecs.Attribute]) -> list[_Target]:
    found: dict[str, _Target] = {}
    for one in given:
        member = names.parse_instance(one.target_id or "")
        if member is not None:
            same_cluster(member.cluster, cluster)
        entry = member and context.records.instances.get(call.region, cluster, member.id)
        if not entry:
            raise TargetNotFoundException(f"The specified target was not found: {one.target_id}")
        found.setdefault(entry.value.arn, _Target(entry, [])).said.append(one)
    return list(found.values())


async def _change(
    context: Context,
    call: Call,
    cluster: str | None,
    given: tuple[ecs.Attribute, ...],
    change: Callable[[Attributes, list[ecs.Attribute]], Attributes],
) -> list[_Target]:
    """Change the attributes of every instance that is named, in one transaction; the instances as they were before."""
    _check(given)
    records = context.records
    for _ in range(CONFLICT_TRIES):
        targets = _targets(context, call, active_cluster(context, call, cluster).value.name, given)
        compares, writes = [], []
        for entry, said in targets:
            before = _by_name(entry)
            after = change(before, said)
            if after == before:
                continue
            instance = msgspec.structs.replace(entry.value.instance, attributes=tuple(after.values()))
            record = msgspec.structs.replace(entry.value, instance=instance)
            where = (record.region, record.cluster, names.last_part(record.arn))
            compares.append(records.unchanged(records.instances, entry, *where))
            writes.append(records.put(records.instances, record, *where))
        if not writes or (await records.commit(compares, writes)).succeeded:
            return targets
    raise busy(f"the attributes of cluster {cluster or names.DEFAULT_CLUSTER}")


def _with(before: Attributes, said: list[ecs.Attribute]) -> Attributes:
    after = before | {one.name or "": ecs.Attribute(name=one.name, value=one.value) for one in said}
    count = sum(map(custom, after))
    if count > MOST_CUSTOM and count > sum(map(custom, before)):
        raise AttributeLimitExceededException(
            f"You can apply up to {MOST_CUSTOM} custom attributes for each resource; delete one with DeleteAttributes."
        )
    return after


def _without(before: Attributes, said: list[ecs.Attribute]) -> Attributes:
    gone = {one.name for one in said}
    return {name: one for name, one in before.items() if name not in gone}


async def put(context: Context, call: Call, request: ecs.PutAttributesRequest) -> ecs.PutAttributesResponse:
    targets = await _change(context, call, request.cluster, request.attributes or (), _with)
    return ecs.PutAttributesResponse(attributes=tuple(_shown(entry, one) for entry, said in targets for one in said))


async def delete(context: Context, call: Call, request: ecs.DeleteAttributesRequest) -> ecs.DeleteAttributesResponse:
    """Answers with what was there; deleting what is not there is no error, so a request may be sent again."""
    targets = await _change(context, call, request.cluster, request.attributes or (), _without)
    gone = [(entry, _by_name(entry).get(one.name or "")) for entry, said in targets for one in said]
    return ecs.DeleteAttributesResponse(attributes=tuple(_shown(entry, one) for entry, one in gone if one))


async def listing(context: Context, call: Call, request: ecs.ListAttributesRequest) -> ecs.ListAttributesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if request.attribute_value is not None and request.attribute_name is None:
        raise invalid("An attribute name must be specified to filter by value.")
    found = {
        f"{names.last_part(entry.value.arn)} {name}": _shown(entry, one)
        for entry in context.records.instances.group(f"{call.region}/{cluster}")
        for name, one in _by_name(entry).items()
        if request.attribute_name in (None, name) and request.attribute_value in (None, one.value)
    }
    listed, token = page(sorted(found), request.next_token, request.max_results)
    return ecs.ListAttributesResponse(attributes=tuple(found[key] for key in listed), next_token=token)


OPERATIONS: dict[str, Operation] = {
    "PutAttributes": put,
    "DeleteAttributes": delete,
    "ListAttributes": listing,
}
