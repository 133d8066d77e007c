"""Calls of what Sexton serves beside the ECS API: one signed request to a path below ``/sexton/``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from sexton.cli.connection import DEFAULT_REGION, endpoint, fail, http_session, keyring
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.cloud.exchange import Request, exchange
from sexton.cloud.sigv4 import sign
from sexton.cloud.websocket import SERVICE, target_of
from sexton.wire.errors import decode_error

MOST_ANSWER = 16 << 20
CONNECT_SECONDS = 10.0

T = TypeVar("T")


def region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def ask(method: str, path: str, kind: type[T], body: msgspec.Struct | None = None) -> T:
    """One call and its answer; what goes wrong becomes a sentence."""
    return asyncio.run(_ask(method, path, kind, b"" if body is None else msgspec.json.encode(body)))


async def _ask(method: str, path: str, kind: type[T], body: bytes) -> T:
    request = Request(
        method=method,
        url=endpoint().rstrip("/") + path,
        headers={"Content-Type": "application/json"},
        body=body,
        what=path,
        region=region(),
        service=SERVICE,
    )
    try:
        async with http_session() as session:
            credentials = await keyring().current()
            reply = await exchange(session, request, credentials, now=time.time(), limit=MOST_ANSWER)
    except Unreachable as error:
        raise fail(f"{error}; start a control plane, or set AWS_ENDPOINT_URL to one") from None
    except NoCredentials as error:
        raise fail(f"{error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run as root here") from None
    if reply.status >= 300:
        refusal = decode_error(reply.status, reply.body)
        raise fail(f"{refusal.code}: {refusal.message}")
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.MsgspecError:
        raise fail(f"cannot read the answer of {endpoint()}; check what listens there") from None


@asynccontextmanager
async def stream(
    path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None, *, silence: float = 60.0
) -> AsyncIterator[aiohttp.ClientResponse]:
    """An answer that comes piece by piece. Unreachable, NoCredentials or EcsError when there is none."""
    url = endpoint().rstrip("/") + path + (f"?{urlencode(sorted(fields.items()))}" if fields else "")
    target = target_of(url)
    credentials = await keyring().current()
    signed = {"Host": target.host}
    signature = sign(
        "GET", target.path, target.query, signed, b"", credentials, region=region(), service=SERVICE, now=time.time()
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
    try:
        async with (
            http_session(timeout) as session,
            session.get(URL(url, encoded=True), headers=signed | signature | dict(headers or {})) as answer,
        ):
            if answer.status != 200:
                raise decode_error(answer.status, await answer.content.read(64 << 10))
            yield answer
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"cannot read from {endpoint()}: {error or type(error).__name__}") from None
