"""Calls of the ECS API, against Amazon's endpoint or anything that speaks it.

In: the name of an operation and its request structure; out: its response structure. One call is one signed POST: no
hidden retries, so that whoever calls decides (``transient.retrying``) what is worth trying again. The one exception is
a refusal of the credentials themselves: the keyring is asked anew, and if it has others the call is made once more.

Fails with ``EcsError`` when the service answered no, with ``Unreachable`` when there was no usable answer, with
``NoCredentials`` when there is nothing to sign with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar, overload

import aiohttp
import msgspec

from sexton.cloud.credentials import Credentials, CredentialSource
from sexton.cloud.exchange import USER_AGENT, Request, Unreachable, exchange
from sexton.cloud.websocket import SERVICE, target_of
from sexton.wire.ecs_agent import OPERATIONS, TARGET_PREFIX, Operation
from sexton.wire.errors import UNREADABLE, EcsError, decode_error

# The largest answers are pages of a hundred descriptions, well below this.
LARGEST_ANSWER = 32 << 20
# The key is unknown, its token has ended, or the secret is an older one: another set may be there by now.
_REFUSED_CREDENTIALS = frozenset(
    {"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidSignatureException"}
)

Answer = TypeVar("Answer", bound=msgspec.Struct)


__all__ = ["EcsClient", "Unreachable"]


def _whole(endpoint: str) -> str:
    whole = endpoint if "://" in endpoint else f"https://{endpoint}"
    target_of(whole)  # says at once what cannot be called
    return whole


def _operation(name: str) -> Operation:
    """What is known of an operation; the whole API is loaded only where more than agents' calls are made."""
    if name in OPERATIONS:
        return OPERATIONS[name]
    from sexton.wire import ecs

    return ecs.OPERATIONS[name]


class EcsClient:
    """Calls one endpoint in one region; the session is the caller's and stays open.

    An endpoint may be several, separated by commas, that serve the same: one of them is called until it cannot be
    reached or says that it cannot serve, and then, with the next call, the one behind it.
    """

    def __init__(
        self,
        endpoint: str,
        region: str,
        credentials: CredentialSource,
        session: aiohttp.ClientSession,
        *,
        clock: Callable[[], float] = time.time,
        user_agent: str = USER_AGENT,
    ) -> None:
        self._places = [_whole(one.strip()) for one in endpoint.split(",")]
        self._region = region
        self._credentials = credentials
        self._session = session
        self._clock = clock
        self._user_agent = user_agent

    @overload
    async def call(self, operation: str, request: msgspec.Struct) -> msgspec.Struct: ...

    @overload
    async def call(self, operation: str, request: msgspec.Struct, answer: type[Answer]) -> Answer: ...

    async def call(
        self, operation: str, request: msgspec.Struct, answer: type[msgspec.Struct] | None = None
    ) -> msgspec.Struct:
        """Make one call. Naming the response structure as ``answer`` is for the type checker; it is verified."""
        known = _operation(operation)
        if not isinstance(request, known.request):
            raise TypeError(f"cannot call {operation} with a {type(request).__name__}: give {known.request.__name__}")
        shape = known.response or msgspec.Struct
        if answer is not None and answer is not shape:
            raise TypeError(f"cannot take a {answer.__name__} from {operation}: it answers {shape.__name__}")
        body = msgspec.json.encode(request)
        reply = await self._send(operation, body)
        try:
            return msgspec.json.decode(reply or b"{}", type=shape)
        except UNREADABLE as error:
            raise Unreachable(
                f"cannot read the answer of {self._endpoint} to {operation}: {error}. Check what listens there"
            ) from None

    async def _send(self, operation: str, body: bytes) -> bytes:
        credentials = await self._credentials.current()
        try:
            return await self._post(operation, body, credentials)
        except EcsError as error:
            if error.code not in _REFUSED_CREDENTIALS:
                raise
            self._credentials.forget(credentials)
            others = await self._credentials.current()
            if others == credentials:
                raise
        return await self._post(operation, body, others)

    @property
    def _endpoint(self) -> str:
        return self._places[0]

    async def _post(self, operation: str, body: bytes, credentials: Credentials) -> bytes:
        place = self._places[0]
        try:
            return await self._post_to(place, operation, body, credentials)
        except (Unreachable, EcsError) as error:
            away = isinstance(error, Unreachable) or error.status == HTTPStatus.SERVICE_UNAVAILABLE
            if away and self._places[0] is place:
                self._places.append(self._places.pop(0))
            raise

    async def _post_to(self, endpoint: str, operation: str, body: bytes, credentials: Credentials) -> bytes:
        request = Request(
            method="POST",
            url=endpoint,
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"{TARGET_PREFIX}.{operation}",
            },
            body=body,
            what=operation,
            region=self._region,
            service=SERVICE,
        )
        reply = await exchange(
            self._session,
            request,
            credentials,
            now=self._clock(),
            limit=LARGEST_ANSWER,
            user_agent=self._user_agent,
        )
        if reply.status != HTTPStatus.OK:
            error = error_of(reply.status, reply.body, reply.headers.get("x-amzn-errortype", ""))
            error.request_id = reply.headers.get("x-amzn-requestid", "")
            raise error
        return reply.body


def error_of(status: int, body: bytes, error_type: str) -> EcsError:
    """Read an error answer; a service that leaves the code out of the body has it in a header."""
    error = decode_error(status, body)
    code = error_type.partition(":")[0].rpartition("#")[2].strip()
    if not code or b'"__type"' in body:
        return error
    return EcsError.known.get(code, EcsError)(error.message, code=code, status=status, members=error.members)
