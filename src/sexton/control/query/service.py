"""A service of the query protocols: its name in a signature's scope, its envelopes, its own codes, its operations.

a service module -> OPERATIONS: action -> (typed request, function) -> the door serves it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from sexton.cloud.sigv4_verify import SignatureFault
from sexton.control.context import Call, Context
from sexton.wire.query import QueryError, Request, element

Answer = Mapping[str, object]


class Operation(NamedTuple):
    """One action: what it takes, and what does it."""

    request: type[Request]
    serve: Callable[[Context, Call, Any], Awaitable[Answer]]


class Codes(NamedTuple):
    """How a service names what every service may answer."""

    denied: str
    signature: Mapping[SignatureFault, tuple[str, int]]


class Service(NamedTuple):
    """One service."""

    name: str  # as in a signature's scope, and before the colon of an action in policies
    title: str
    operations: Mapping[str, Operation]
    codes: Codes
    success: Callable[[str, Answer, str], str]  # action, answer, request id
    failure: Callable[[QueryError, str], str]


def wrapped(namespace: str) -> Callable[[str, Answer, str], str]:
    """A success of the query protocol: the answer in a result of its own."""

    def success(action: str, answer: Answer, request_id: str) -> str:
        result = element(f"{action}Result", answer, "member")
        told = element("ResponseMetadata", {"RequestId": request_id}, "member")
        return f'<{action}Response xmlns="{namespace}">{result}{told}</{action}Response>'

    return success


def query_failure(error: QueryError, request_id: str) -> str:
    """An error of the query protocol."""
    fault = "Sender" if error.status < 500 else "Receiver"
    told = element("Error", {"Type": fault, "Code": error.code, "Message": error.message}, "member")
    return f"<ErrorResponse>{told}{element('RequestId', request_id, 'member')}</ErrorResponse>"


def flat(namespace: str) -> Callable[[str, Answer, str], str]:
    """A success as EC2 writes it: the request's id beside the answer's own elements."""

    def success(action: str, answer: Answer, request_id: str) -> str:
        inside = "".join(element(name, one, "item") for name, one in answer.items())
        return f'<{action}Response xmlns="{namespace}"><requestId>{request_id}</requestId>{inside}</{action}Response>'

    return success


def ec2_failure(error: QueryError, request_id: str) -> str:
    """An error as EC2 writes it."""
    told = element("Error", {"Code": error.code, "Message": error.message}, "item")
    return f"<Response><Errors>{told}</Errors><RequestID>{request_id}</RequestID></Response>"
