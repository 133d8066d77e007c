"""Log events: put, read stream by stream, searched over a group.

Sequence tokens are ignored as the service ignores them, with one exception that costs nobody anything: a batch whose
token begins with ``sexton:`` names itself, and one that is named like the newest of its stream came before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping

from sexton.control.context import Call, Context
from sexton.control.logs import following
from sexton.control.logs.asking import NO_STREAM, Operation, find_group, find_stream, one_of, shelf_of
from sexton.control.logs.following import FOLLOWS, Seen
from sexton.control.logs.group import Gone, Group
from sexton.control.logs.streams import sequence_token
from sexton.core import logbatch
from sexton.core.logbatch import BadBatch
from sexton.core.logpage import LAST, Event, Place, Wanted
from sexton.core.logpattern import BadPattern, read_pattern
from sexton.wire import logs
from sexton.wire.errors import InvalidParameterException, ResourceNotFoundException

MOST_EVENTS = 10_000


async def put(context: Context, call: Call, request: logs.PutLogEventsRequest) -> logs.PutLogEventsResponse:
    group = find_group(context, call, request.log_group_name)
    stream = find_stream(group, request.log_stream_name)
    events = request.log_events or ()
    times = [one.timestamp or 0 for one in events]
    texts = [one.message or "" for one in events]
    now = int(call.now * 1000)
    try:
        taken = logbatch.judge(times, texts, now, group.record.retention_days)
    except BadBatch as error:
        raise InvalidParameterException(str(error)) from None
    if taken.first < taken.end:
        kept = slice(taken.first, taken.end)
        try:
            await group.put(stream, times[kept], texts[kept], now, request.sequence_token or "")
        except Gone:
            raise ResourceNotFoundException(NO_STREAM) from None
        shelf_of(context).written(group)
    rejected = None
    if (taken.too_new_start, taken.too_old_end, taken.expired_end) != (None, None, None):
        rejected = logs.RejectedLogEventsInfo(
            too_new_log_event_start_index=taken.too_new_start,
            too_old_log_event_end_index=taken.too_old_end,
            expired_log_event_end_index=taken.expired_end,
        )
    return logs.PutLogEventsResponse(
        next_sequence_token=sequence_token(stream),
        rejected_log_events_info=rejected,
        rejected_entity_info=logs.RejectedEntityInfo(
            error_type=logs.EntityRejectionErrorType.UNSUPPORTED_LOG_GROUP_TYPE
        )
        if request.entity
        else None,
    )


async def get(context: Context, call: Call, request: logs.GetLogEventsRequest) -> logs.GetLogEventsResponse:
    group = find_group(context, call, one_of(request.log_group_name, request.log_group_identifier))
    stream = find_stream(group, request.log_stream_name)
    forward, place = bool(request.start_from_head), None
    if request.next_token:
        direction, place = _read(request.next_token, ("f", "b"))
        forward = direction == "f"
    wanted = _between(call, group, request.start_time, request.end_time)._replace(
        streams=frozenset((stream.id,)),
        after=place if forward else None,
        before=None if forward else place,
        newest=not forward,
        events=min(request.limit or MOST_EVENTS, MOST_EVENTS),
        budget=LAST,
    )
    events = (await group.page(wanted)).events
    # Of a page without events both tokens lead back to where it was looked for.
    here = place or (0, 0)
    return logs.GetLogEventsResponse(
        events=tuple(
            logs.OutputLogEvent(timestamp=one.time, message=one.text, ingestion_time=one.ingested) for one in events
        ),
        next_forward_token=_token("f", events[-1].place if events else here),
        next_backward_token=_token("b", events[0].place if events else here),
    )


async def search(context: Context, call: Call, request: logs.FilterLogEventsRequest) -> logs.FilterLogEventsResponse:
    group = find_group(context, call, one_of(request.log_group_name, request.log_group_identifier))
    try:
        matches = read_pattern(request.filter_pattern or "")
    except BadPattern as error:
        raise InvalidParameterException(f"Invalid filter pattern: {error}") from None
    newest, direction, place = request.start_from_head is False, "", None
    if request.next_token:
        direction, place = _read(request.next_token, ("f", "b", FOLLOWS))
        newest = direction == "b"
    wanted = _between(call, group, request.start_time, request.end_time)._replace(
        streams=_streams(group, request),
        newest=newest,
        events=min(request.limit or MOST_EVENTS, MOST_EVENTS),
        matches=matches,
    )
    if direction == FOLLOWS and place:
        return await _follow(group, lambda: wanted._replace(streams=_streams(group, request)), Seen(*place))
    followers, who = shelf_of(context).followers, _asker(call, group, request)
    follows = bool(who) and not place and followers.follows(who, request.start_time)
    if follows:
        wanted = wanted._replace(came=(-1, group.newest))
    page = await group.page(wanted._replace(after=None if newest else place, before=place if newest else None))
    end = page.events[-1].time if page.events else place[0] if place else request.start_time
    more = _token("b" if newest else "f", page.more) if page.more else None
    if follows and not more:
        more = following.token(Seen(end or 0, wanted.came[1]))
    elif who and not more and end is not None:
        followers.ended(who, end)
    return _found(group, reversed(page.events) if newest else page.events, more)


def _asker(call: Call, group: Group, request: logs.FilterLogEventsRequest) -> Hashable:
    """Who asks for what, of those who may follow; nothing for anybody else."""
    if call.tails is None or request.end_time is not None or request.start_from_head is False:
        return None
    what = (request.filter_pattern, request.log_stream_names, request.log_stream_name_prefix)
    return (call.access_key, call.tails, id(group), what)


async def _follow(group: Group, wanted: Callable[[], Wanted], seen: Seen) -> logs.FilterLogEventsResponse:
    """What has come since, as soon as something has."""
    begin, until = seen.time - following.LATE_MS, time.monotonic() + following.HOLD_SECONDS
    while (left := until - time.monotonic()) > 0 and await group.wait_beyond(seen.number, left):
        await asyncio.sleep(following.GATHER_SECONDS)
        newest = group.newest
        asked = wanted()  # also of streams that were made meanwhile
        page = await group.page(asked._replace(start=max(asked.start, begin), came=(seen.number, newest)))
        if page.more:  # more than a page at a time: from here on by time, as everybody reads
            return _found(group, page.events, _token("f", page.more))
        seen = Seen(max([seen.time, *(one.time for one in page.events)]), newest)
        if page.events:
            return _found(group, page.events, following.token(seen))
    return _found(group, (), following.token(seen))


def _found(group: Group, events: Iterable[Event], more: str | None) -> logs.FilterLogEventsResponse:
    return logs.FilterLogEventsResponse(
        events=tuple(_filtered(group, one) for one in events), searched_log_streams=(), next_token=more
    )


def _filtered(group: Group, one: Event) -> logs.FilteredLogEvent:
    return logs.FilteredLogEvent(
        log_stream_name=group.name_of(one.stream),
        timestamp=one.time,
        message=one.text,
        ingestion_time=one.ingested,
        event_id=f"{one.time:020d}{one.number:036d}",
    )


def _streams(group: Group, request: logs.FilterLogEventsRequest) -> frozenset[int] | None:
    given, prefix = request.log_stream_names, request.log_stream_name_prefix
    if given and prefix:
        raise InvalidParameterException("logStreamNamePrefix and logStreamNames cannot both be specified.")
    if given:
        return frozenset(find_stream(group, one).id for one in given)
    if prefix:
        return frozenset(one.id for name, one in group.streams.items() if name.startswith(prefix))
    return None


def _between(call: Call, group: Group, start: int | None, end: int | None) -> Wanted:
    if start is not None and end is not None and start > end:
        raise InvalidParameterException("endTime must be greater than or equal to startTime.")
    oldest = logbatch.oldest_kept(int(call.now * 1000), group.record.retention_days)
    return Wanted(start=max(start or 0, oldest), end=LAST if end is None else end)


def _token(direction: str, place: Place) -> str:
    return f"{direction}/{place[0]:020d}{place[1]:036d}/s"


def _read(token: str, kinds: tuple[str, ...]) -> tuple[str, Place]:
    parts = token.split("/")
    if len(parts) != 3 or parts[0] not in kinds or len(parts[1]) != 56 or not parts[1].isdecimal():
        raise InvalidParameterException("The specified nextToken is invalid.")
    at, number = int(parts[1][:20]), int(parts[1][20:])
    return parts[0], (min(at, LAST), min(number, LAST))


OPERATIONS: Mapping[str, Operation] = {"PutLogEvents": put, "GetLogEvents": get, "FilterLogEvents": search}
