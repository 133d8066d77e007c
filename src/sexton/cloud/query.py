"""One call in AWS's query protocol: a form goes out, XML comes back, of which a few elements of plain text are taken.

One signed POST without retries. Fails with ``EcsError`` (the service's own code and words), or ``Unreachable``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp

from sexton.cloud.credentials import Credentials
from sexton.cloud.exchange import Request, exchange
from sexton.wire.errors import EcsError

CALL_SECONDS = 10.0
LARGEST_ANSWER = 256 << 10


class Service(NamedTuple):
    """Where a service is, in which region, and the version of its API."""

    name: str
    url: str
    region: str
    version: str


async def query(
    http: aiohttp.ClientSession,
    service: Service,
    action: str,
    form: Mapping[str, str],
    credentials: Credentials,
    now: float,
) -> str:
    """The text of the answer."""
    request = Request(
        method="POST",
        url=service.url,
        headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        body=urlencode({"Action": action, "Version": service.version, **form}).encode(),
        what=action,
        region=service.region,
        service=service.name,
    )
    reply = await exchange(http, request, credentials, now=now, limit=LARGEST_ANSWER, seconds=CALL_SECONDS)
    text = reply.body.decode("utf-8", "replace")
    if reply.status != HTTPStatus.OK:
        code = element(text, "Code") or f"HTTP{reply.status}"
        message = element(text, "Message") or f"the answer was HTTP {reply.status}"
        raise EcsError(message, code=code, status=reply.status)
    return text


def element(text: str, name: str) -> str:
    """The text of the first element of this name; empty when there is none."""
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return unescape(found[1]).strip() if found else ""
