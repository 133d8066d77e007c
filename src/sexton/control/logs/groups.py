"""Log groups: made, listed, kept for so long, protected, tagged, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sexton.control.context import Call, Context
from sexton.control.logs.asking import (
    NO_GROUP,
    Operation,
    find_group,
    group_arn,
    name_of,
    read_text_token,
    shelf_of,
    text_token,
)
from sexton.control.logs.formats import GroupRecord
from sexton.control.logs.group import Group
from sexton.control.logs.shelf import MOST_GROUPS
from sexton.core.logbatch import RETENTION_DAYS
from sexton.wire import logs
from sexton.wire.errors import (
    InvalidParameterException,
    LimitExceededException,
    OperationAbortedException,
    ResourceAlreadyExistsException,
    ResourceNotFoundException,
    TooManyTagsException,
)

MOST_LISTED = 50
MOST_TAGS = 50
# Those whose lines are read as any other's.
CLASSES = (logs.LogGroupClass.STANDARD, logs.LogGroupClass.INFREQUENT_ACCESS)


async def create(context: Context, call: Call, request: logs.CreateLogGroupRequest) -> None:
    shelf = shelf_of(context)
    name = request.log_group_name or ""
    if name.lower().startswith("aws/"):
        raise InvalidParameterException("Log groups starting with AWS/ are reserved for AWS.")
    if request.kms_key_id:
        raise InvalidParameterException("cannot use kmsKeyId: this control plane does not encrypt log groups.")
    chosen = request.log_group_class or logs.LogGroupClass.STANDARD
    if chosen not in CLASSES:
        raise InvalidParameterException(f"cannot make a log group of class {chosen}: {' and '.join(CLASSES)} are kept.")
    if len(shelf) >= MOST_GROUPS:
        raise LimitExceededException(f"Resource limit exceeded: there are {MOST_GROUPS} log groups.")
    record = GroupRecord(
        name=name,
        created=int(call.now * 1000),
        tags=dict(request.tags or {}),
        log_group_class=chosen,
        protected=bool(request.deletion_protection_enabled),
    )
    if not await shelf.create(call.region, record):
        raise ResourceAlreadyExistsException("The specified log group already exists")


async def delete(context: Context, call: Call, request: logs.DeleteLogGroupRequest) -> None:
    group = find_group(context, call, request.log_group_name)
    if group.record.protected:
        raise OperationAbortedException(
            "The log group is protected against deletion; disable its deletion protection first."
        )
    if not await shelf_of(context).delete(call.region, group.record.name):
        raise ResourceNotFoundException(NO_GROUP)


async def describe(
    context: Context, call: Call, request: logs.DescribeLogGroupsRequest
) -> logs.DescribeLogGroupsResponse:
    shelf = shelf_of(context)
    prefix, part = request.log_group_name_prefix, request.log_group_name_pattern
    if prefix and part:
        raise InvalidParameterException("LogGroup name prefix and LogGroup name pattern are mutually exclusive.")
    if any(one != context.account for one in request.account_identifiers or ()):
        raise InvalidParameterException("cannot list log groups of other accounts.")
    named = {name_of(one) for one in request.log_group_identifiers or ()}
    after = read_text_token(request.next_token) if request.next_token else ""
    found: Iterable[Group] = (
        one
        for one in shelf.groups(call.region)
        if one.record.name > after
        and one.record.name.startswith(prefix or "")
        and (part or "") in one.record.name
        and (not named or one.record.name in named)
        and request.log_group_class in (None, one.record.log_group_class)
    )
    limit = request.limit or MOST_LISTED
    page = [one for one, _ in zip(found, range(limit + 1), strict=False)]
    shown = page[:limit]
    return logs.DescribeLogGroupsResponse(
        log_groups=tuple(_shown(context, call, one) for one in shown),
        next_token=text_token(shown[-1].record.name) if len(page) > limit else None,
    )


def _shown(context: Context, call: Call, group: Group) -> logs.LogGroup:
    record = group.record
    arn = group_arn(context, call, record.name)
    return logs.LogGroup(
        log_group_name=record.name,
        creation_time=record.created,
        retention_in_days=record.retention_days,
        metric_filter_count=0,
        arn=f"{arn}:*",
        stored_bytes=group.size,
        log_group_class=record.log_group_class,
        log_group_arn=arn,
        deletion_protection_enabled=record.protected or None,
    )


async def put_retention(context: Context, call: Call, request: logs.PutRetentionPolicyRequest) -> None:
    days = request.retention_in_days
    if days not in RETENTION_DAYS:
        allowed = ", ".join(map(str, sorted(RETENTION_DAYS)))
        raise InvalidParameterException(
            f"1 validation error detected: Value '{days}' at 'retentionInDays' failed to satisfy constraint: "
            f"Member must satisfy enum value set: [{allowed}]"
        )
    await _change(context, call, request.log_group_name, retention_days=days)


async def delete_retention(context: Context, call: Call, request: logs.DeleteRetentionPolicyRequest) -> None:
    await _change(context, call, request.log_group_name, retention_days=None)


async def protect(context: Context, call: Call, request: logs.PutLogGroupDeletionProtectionRequest) -> None:
    name = name_of(request.log_group_identifier or "")
    await _change(context, call, name, protected=bool(request.deletion_protection_enabled))


async def _change(context: Context, call: Call, name: str | None, **fields: object) -> None:
    group = find_group(context, call, name)
    await shelf_of(context).change(group, lambda record: msgspec.structs.replace(record, **fields))


async def list_tags(
    context: Context, call: Call, request: logs.ListTagsForResourceRequest
) -> logs.ListTagsForResourceResponse:
    group = find_group(context, call, _named(request.resource_arn))
    return logs.ListTagsForResourceResponse(tags=group.record.tags)


async def tag(context: Context, call: Call, request: logs.TagResourceRequest) -> None:
    await _tag(context, call, _named(request.resource_arn), request.tags or {})


async def untag(context: Context, call: Call, request: logs.UntagResourceRequest) -> None:
    await _untag(context, call, _named(request.resource_arn), request.tag_keys or ())


async def list_tags_of_group(
    context: Context, call: Call, request: logs.ListTagsLogGroupRequest
) -> logs.ListTagsLogGroupResponse:
    return logs.ListTagsLogGroupResponse(tags=find_group(context, call, request.log_group_name).record.tags)


async def tag_group(context: Context, call: Call, request: logs.TagLogGroupRequest) -> None:
    await _tag(context, call, request.log_group_name or "", request.tags or {})


async def untag_group(context: Context, call: Call, request: logs.UntagLogGroupRequest) -> None:
    await _untag(context, call, request.log_group_name or "", request.tags or ())


def _named(arn: str | None) -> str:
    given = arn or ""
    if not given.startswith("arn:"):
        raise InvalidParameterException("The resourceArn must be the ARN of a log group.")
    return name_of(given)


async def _tag(context: Context, call: Call, name: str, more: dict[str, str]) -> None:
    def change(record: GroupRecord) -> GroupRecord:
        tags = {**record.tags, **more}
        if len(tags) > MOST_TAGS:
            raise TooManyTagsException(f"A log group may have {MOST_TAGS} tags.")
        return msgspec.structs.replace(record, tags=tags)

    await shelf_of(context).change(find_group(context, call, name), change)


async def _untag(context: Context, call: Call, name: str, keys: Iterable[str]) -> None:
    gone = frozenset(keys)

    def change(record: GroupRecord) -> GroupRecord:
        return msgspec.structs.replace(
            record, tags={key: value for key, value in record.tags.items() if key not in gone}
        )

    await shelf_of(context).change(find_group(context, call, name), change)


OPERATIONS: Mapping[str, Operation] = {
    "CreateLogGroup": create,
    "DeleteLogGroup": delete,
    "DescribeLogGroups": describe,
    "PutRetentionPolicy": put_retention,
    "DeleteRetentionPolicy": delete_retention,
    "PutLogGroupDeletionProtection": protect,
    "ListTagsForResource": list_tags,
    "TagResource": tag,
    "UntagResource": untag,
    "ListTagsLogGroup": list_tags_of_group,
    "TagLogGroup": tag_group,
    "UntagLogGroup": untag_group,
}
