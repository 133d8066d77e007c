"""Calls of CloudWatch Logs, or of whatever speaks it, by whoever's keys.

One call is one signed POST, without retries: what is worth trying again is for the caller to say. Fails with
``EcsError`` (the service's own code and words), ``Unreachable`` or ``NoCredentials``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import aiohttp
import msgspec

from sexton.cloud.client import error_of
from sexton.cloud.credentials import CredentialSource
from sexton.cloud.exchange import Request, Unreachable, exchange
from sexton.wire.errors import UNREADABLE
from sexton.wire.logs import TARGET_PREFIX

SERVICE = "logs"
# A page of events, each character of which may be written as an escape.
LARGEST_ANSWER = 16 << 20

T = TypeVar("T", bound=msgspec.Struct)


class LogsClient:
    """Calls over one client session, which is the caller's and stays open."""

    def __init__(self, session: aiohttp.ClientSession, clock: Callable[[], float] = time.time) -> None:
        self._session = session
        self._clock = clock

    async def send(
        self, endpoint: str, region: str, keys: CredentialSource, operation: str, body: bytes, seconds: float = 20.0
    ) -> bytes:
        """The body of the answer."""
        request = Request(
            method="POST",
            url=endpoint,
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"{TARGET_PREFIX}.{operation}"},
            body=body,
            what=operation,
            region=region,
            service=SERVICE,
        )
        reply = await exchange(
            self._session, request, await keys.current(), now=self._clock(), limit=LARGEST_ANSWER, seconds=seconds
        )
        if reply.status != HTTPStatus.OK:
            raise error_of(reply.status, reply.body, reply.headers.get("x-amzn-errortype", ""))
        return reply.body

    async def call(
        self,
        endpoint: str,
        region: str,
        keys: CredentialSource,
        operation: str,
        request: msgspec.Struct,
        answer: type[T],
    ) -> T:
        body = await self.send(endpoint, region, keys, operation, msgspec.json.encode(request))
        try:
            return msgspec.json.decode(body or b"{}", type=answer)
        except UNREADABLE as error:
            raise Unreachable(f"cannot read the answer of {endpoint} to {operation}: {error}") from None
