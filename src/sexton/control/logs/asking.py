"""What the operations on logs share: what a request is about, in the service's names and in its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from sexton.control.context import Call, Context
from sexton.control.logs.group import Group, Stream
from sexton.control.logs.shelf import Shelf
from sexton.core import names
from sexton.wire.errors import (
    InvalidParameterException,
    ResourceNotFoundException,
    UnsupportedOperationException,
)

Operation = Callable[[Context, Call, Any], Awaitable[msgspec.Struct | None]]
"""Not every operation of this service answers anything."""

NO_GROUP = "The specified log group does not exist."
NO_STREAM = "The specified log stream does not exist."


def group_arn(context: Context, call: Call, name: str) -> str:
    place = names.Place(call.region, context.account)
    return f"arn:{names.partition(place.region)}:logs:{place.region}:{place.account}:log-group:{name}"


def stream_arn(context: Context, call: Call, group: str, name: str) -> str:
    return f"{group_arn(context, call, group)}:log-stream:{name}"


def shelf_of(context: Context) -> Shelf:
    """Where this control plane keeps logs, or the error that says that it keeps none."""
    if context.logs is None:
        where = f"ask {context.log_endpoint}." if context.log_endpoint else "SEXTON_LOGS_ENDPOINT names none that does."
        raise UnsupportedOperationException(
            f"This control plane keeps no logs, because it shares its store with others; {where}"
        )
    return context.logs


def find_group(context: Context, call: Call, name: str | None) -> Group:
    group = shelf_of(context).get(call.region, name or "")
    if group is None:
        raise ResourceNotFoundException(NO_GROUP)
    return group


def find_stream(group: Group, name: str | None) -> Stream:
    stream = group.streams.get(name or "")
    if stream is None:
        raise ResourceNotFoundException(NO_STREAM)
    return stream


def name_of(given: str) -> str:
    """The group's name, of a name or an ARN."""
    if not given.startswith("arn:"):
        return given
    parts = given.split(":")
    if len(parts) not in (7, 8) or parts[2] != "logs" or parts[5] != "log-group" or parts[7:] not in ([], ["*"]):
        raise InvalidParameterException(f"cannot read '{given[:200]}': it is no log group's ARN")
    return parts[6]


def one_of(name: str | None, identifier: str | None) -> str:
    """The group that a request speaks of, which says so in one of two ways."""
    if bool(name) == bool(identifier):
        raise InvalidParameterException("Exactly one of logGroupName and logGroupIdentifier must be given.")
    return name or name_of(identifier or "")


def arn_of_request(context: Context, call: Call, request: object) -> tuple[str, ...]:
    """The ARNs of what a request touches, for policies: a stream's, or a group's in both of its spellings."""
    given = getattr(request, "resource_arn", None)
    if given:
        bare = given.removesuffix(":*")
        return (bare, f"{bare}:*")
    name = getattr(request, "log_group_name", None) or getattr(request, "log_group_identifier", None) or "*"
    stream = getattr(request, "log_stream_name", None)
    group = name.removesuffix(":*") if name.startswith("arn:") else group_arn(context, call, name)
    if stream:
        return (f"{group}:log-stream:{stream}",)
    return (group,) if name == "*" else (group, f"{group}:*")


def text_token(last: str) -> str:
    return last.encode().hex()


def read_text_token(token: str) -> str:
    try:
        return bytes.fromhex(token).decode()
    except ValueError:
        raise InvalidParameterException("The specified nextToken is invalid.") from None
