"""Log streams: made, listed, deleted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from sexton.control.context import Call, Context
from sexton.control.logs.asking import (
    NO_GROUP,
    NO_STREAM,
    Operation,
    find_group,
    find_stream,
    one_of,
    read_text_token,
    shelf_of,
    stream_arn,
    text_token,
)
from sexton.control.logs.group import Gone, Stream
from sexton.control.logs.shelf import MOST_STREAMS
from sexton.wire import logs
from sexton.wire.errors import (
    InvalidParameterException,
    LimitExceededException,
    ResourceAlreadyExistsException,
    ResourceNotFoundException,
)

MOST_LISTED = 50


async def create(context: Context, call: Call, request: logs.CreateLogStreamRequest) -> None:
    group = find_group(context, call, request.log_group_name)
    if shelf_of(context).streams >= MOST_STREAMS:
        raise LimitExceededException(f"Resource limit exceeded: there are {MOST_STREAMS} log streams.")
    try:
        made = await group.create_stream(request.log_stream_name or "", int(call.now * 1000))
    except Gone:
        raise ResourceNotFoundException(NO_GROUP) from None
    if not made:
        raise ResourceAlreadyExistsException("The specified log stream already exists")


async def delete(context: Context, call: Call, request: logs.DeleteLogStreamRequest) -> None:
    group = find_group(context, call, request.log_group_name)
    stream = find_stream(group, request.log_stream_name)
    if not await group.delete_stream(stream.name):
        raise ResourceNotFoundException(NO_STREAM)


async def describe(
    context: Context, call: Call, request: logs.DescribeLogStreamsRequest
) -> logs.DescribeLogStreamsResponse:
    group = find_group(context, call, one_of(request.log_group_name, request.log_group_identifier))
    prefix = request.log_stream_name_prefix or ""
    by_time = request.order_by == logs.OrderBy.LAST_EVENT_TIME
    if by_time and prefix:
        raise InvalidParameterException("Cannot order by LastEventTime with a logStreamNamePrefix.")
    keys = sorted(_key(one, by_time) for one in group.streams.values() if one.name.startswith(prefix))
    if request.descending:
        keys.reverse()
    start = 0
    if request.next_token:
        last = _read(request.next_token)
        order = [_turned(key, bool(request.descending)) for key in keys]
        start = bisect_right(order, _turned(last, bool(request.descending)))
    limit = request.limit or MOST_LISTED
    shown = keys[start : start + limit]
    return logs.DescribeLogStreamsResponse(
        log_streams=tuple(_shown(context, call, group.record.name, group.streams[name]) for _, name in shown),
        next_token=text_token(f"{shown[-1][0]} {shown[-1][1]}") if start + limit < len(keys) and shown else None,
    )


def _key(stream: Stream, by_time: bool) -> tuple[int, str]:
    return (stream.last or 0 if by_time else 0, stream.name)


def _turned(key: tuple[int, str], descending: bool) -> tuple[int, tuple[int, ...]]:
    """A key that sorts the way the list does."""
    sign = -1 if descending else 1
    # Behind the last letter a shorter name ends, which comes first, and last the other way round.
    return sign * key[0], (*(sign * ord(one) for one in key[1]), *([1] if descending else ()))


def _read(token: str) -> tuple[int, str]:
    number, space, name = read_text_token(token).partition(" ")
    if not space or not number.isdecimal():
        raise InvalidParameterException("The specified nextToken is invalid.")
    return int(number), name


def _shown(context: Context, call: Call, group: str, stream: Stream) -> logs.LogStream:
    return logs.LogStream(
        log_stream_name=stream.name,
        creation_time=stream.created,
        first_event_timestamp=stream.first,
        last_event_timestamp=stream.last,
        last_ingestion_time=stream.ingested,
        upload_sequence_token=sequence_token(stream),
        arn=stream_arn(context, call, group, stream.name),
        stored_bytes=0,  # as with the service since 2019: only groups say
    )


def sequence_token(stream: Stream) -> str:
    """What is answered for clients that want one; nobody asks for it back."""
    return f"{stream.number:056d}"


OPERATIONS: Mapping[str, Operation] = {
    "CreateLogStream": create,
    "DeleteLogStream": delete,
    "DescribeLogStreams": describe,
}
