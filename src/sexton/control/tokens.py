"""Client tokens: a RunTask that is sent again does nothing again.

The first request's record is written in one transaction with its tasks, on the condition that the token is free; so
whatever dies in between, a repetition finds either both or neither. It is answered with the same tasks as they are
now, and refused when its parameters differ. As in ECS, a token is good for 24 hours or as long as its tasks are
known, whichever is shorter; retention removes it then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from sexton.control.context import Call, Context, invalid
from sexton.control.records import Entry, TokenRecord
from sexton.core import names
from sexton.wire import ecs
from sexton.wire.errors import ConflictException

KEEP_SECONDS = 24 * 3600.0
_TOKEN = re.compile(r"[!-~]{1,64}")


def check(token: str | None) -> None:
    """The API's error for a token that cannot be one."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise invalid("clientToken must have 1 to 64 characters in the range of 33-126.")


def fingerprint(request: ecs.RunTaskRequest) -> str:
    """The same for every repetition of a request, another for other parameters."""
    plain = msgspec.structs.replace(request, client_token=None)
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()


def remember(
    call: Call, cluster: str, request: ecs.RunTaskRequest, tasks: Sequence[str], failures: tuple[ecs.Failure, ...]
) -> TokenRecord:
    """What the first request with a token did."""
    return TokenRecord(
        region=call.region,
        cluster=cluster,
        fingerprint=fingerprint(request),
        tasks=tuple(tasks),
        failures=failures,
        made_at=call.now,
    )


def good(context: Context, record: TokenRecord, now: float) -> bool:
    """Whether a token still stands for what it did."""
    known = (context.records.tasks.get(record.region, record.cluster, one) for one in record.tasks)
    return now - record.made_at < KEEP_SECONDS and any(known)


def repeated(
    context: Context, call: Call, cluster: str, entry: Entry[TokenRecord] | None, request: ecs.RunTaskRequest
) -> ecs.RunTaskResponse | None:
    """The answer to a repetition, or None when this is the first request with the token."""
    if entry is None or not good(context, entry.value, call.now):
        return None
    record = entry.value
    if record.fingerprint != fingerprint(request):
        place = context.place(call)
        raise ConflictException(
            "The client token was already used for a request with other parameters.",
            members={"resourceIds": [names.task_arn(place, cluster, one) for one in record.tasks]},
        )
    rows = (context.records.tasks.get(record.region, record.cluster, one) for one in record.tasks)
    return ecs.RunTaskResponse(tasks=tuple(row.value.task for row in rows if row), failures=record.failures)
