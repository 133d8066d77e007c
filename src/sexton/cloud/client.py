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
from yarl import URL

from sexton import __version__
from sexton.cloud.bodies import TooLarge, read_bounded
from sexton.cloud.credentials import Credentials, CredentialSource
from sexton.cloud.sigv4 import sign
from sexton.cloud.websocket import SERVICE, target_of
from sexton.wire.ecs import OPERATIONS, TARGET_PREFIX
from sexton.wire.errors import UNREADABLE, EcsError, decode_error

# Connecting, TLS included; what Amazon's agent allows.
CONNECT_TIMEOUT = 30.0
# One call from its first byte to its last; after this the service has forgotten it as well.
CALL_TIMEOUT = 42.0
# The largest answers are pages of a hundred descriptions, well below this.
LARGEST_ANSWER = 32 << 20
USER_AGENT = f"Sexton/{__version__} (linux)"

_TIMEOUT = aiohttp.ClientTimeout(total=CALL_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
# The key is unknown, its token has ended, or the secret is an older one: another set may be there by now.
_REFUSED_CREDENTIALS = frozenset(
    {"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidSignatureException"}
)

Answer = TypeVar("Answer", bound=msgspec.Struct)


class Unreachable(Exception):  # noqa: N818 - a state of the network, told from an answer that says no
    """No answer that is one of the ECS API came back; whether the call took effect is unknown."""


class EcsClient:
    """Calls one endpoint in one region; the session is the caller's and stays open."""

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
        self._endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
        self._target = target_of(self._endpoint)
        self._url = URL(self._endpoint, encoded=True)
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
        known = OPERATIONS[operation]
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

    async def _post(self, operation: str, body: bytes, credentials: Credentials) -> bytes:
        signed = {
            "Host": self._target.host,
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"{TARGET_PREFIX}.{operation}",
        }
        signature = sign(
            "POST",
            self._target.path,
            self._target.query,
            signed,
            body,
            credentials,
            region=self._region,
            service=SERVICE,
            now=self._clock(),
        )
        headers = {**signed, **signature, "User-Agent": self._user_agent}
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=_TIMEOUT, allow_redirects=False
            ) as response:
                reply = await read_bounded(response, LARGEST_ANSWER)
        except TimeoutError:
            raise Unreachable(
                f"cannot reach {self._endpoint} for {operation}: no answer in time"
                f" ({CONNECT_TIMEOUT:g} s to connect, {CALL_TIMEOUT:g} s in all). Check endpoint and network"
            ) from None
        except TooLarge:
            raise Unreachable(
                f"cannot read the answer of {self._endpoint} to {operation}: more than {LARGEST_ANSWER} bytes."
                " Check what listens there"
            ) from None
        except aiohttp.ClientError as error:
            raise Unreachable(
                f"cannot reach {self._endpoint} for {operation}: {error or type(error).__name__}."
                " Check endpoint and network"
            ) from error
        if response.status != HTTPStatus.OK:
            raise _error(response.status, reply, response.headers.get("x-amzn-errortype", ""))
        return reply


def _error(status: int, body: bytes, error_type: str) -> EcsError:
    """Read an error answer; a service that leaves the code out of the body has it in a header."""
    error = decode_error(status, body)
    code = error_type.partition(":")[0].rpartition("#")[2].strip()
    if not code or b'"__type"' in body:
        return error
    return EcsError.known.get(code, EcsError)(error.message, code=code, status=status, members=error.members)
