"""AWS's query protocol: a form goes out, XML comes back, of which a few elements of plain text are taken.

One signed POST without retries. Fails with ``EcsError`` (the service's own code and words), or ``Unreachable``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from html import unescape
from http import HTTPStatus
from urllib.parse import urlencode

import aiohttp

from sexton.cloud import places
from sexton.cloud.credentials import Credentials
from sexton.cloud.exchange import Request, exchange
from sexton.wire.errors import EcsError

CALL_SECONDS = 10.0
LARGEST_ANSWER = 256 << 10


class QueryApi:
    """A service in one region, wherever the environment says that it is; the session is the caller's and stays open."""

    NAME = ""  # as signatures have it
    PLACE = ""  # as AWS_ENDPOINT_URL_... has it
    VERSION = ""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        environment: Mapping[str, str],
        region: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._environment = environment
        self._region = region
        self._clock = clock

    @property
    def url(self) -> str:
        return places.endpoint(self.PLACE, self._region, self._environment)

    async def _call(self, action: str, form: Mapping[str, str], credentials: Credentials) -> str:
        """The text of the answer."""
        request = Request(
            method="POST",
            url=self.url,
            headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            body=urlencode({"Action": action, "Version": self.VERSION, **form}).encode(),
            what=action,
            region=self._region,
            service=self.NAME,
        )
        reply = await exchange(
            self._http, request, credentials, now=self._clock(), limit=LARGEST_ANSWER, seconds=CALL_SECONDS
        )
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
