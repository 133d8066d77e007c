"""A control plane on a port, and whoever calls it with whatever key."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from yarl import URL

from plane import REGION, open_plane
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

TARGET = "AmazonEC2ContainerServiceV20141113"


class Caller:
    """Signs and sends, as anybody with this key."""

    def __init__(self, plane: Any, http: aiohttp.ClientSession, key: Credentials) -> None:
        self.plane = plane
        self._http = http
        self.key = key

    def as_(self, key: Credentials) -> Caller:
        return Caller(self.plane, self._http, key)

    def with_key(self, made: dict[str, Any]) -> Caller:
        return Caller(self.plane, self._http, Credentials(made["accessKeyId"], made["secretAccessKey"]))

    @asynccontextmanager
    async def open(self, method: str, path: str, body: bytes = b"", region: str = REGION, **headers: str):
        bare, _, query = path.partition("?")
        signed = {"Host": self.plane.host} | headers
        signed |= sign(method, bare, query, signed, body, self.key, region=region, service="ecs", now=time.time())
        url = URL(f"http://{self.plane.host}{path}", encoded=True)
        async with self._http.request(method, url, data=body or None, headers=signed) as answer:
            yield answer

    async def own(self, method: str, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        async with self.open(method, path, json.dumps(fields).encode() if fields else b"") as answer:
            return answer.status, json.loads(await answer.read())

    async def ecs(self, operation: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        target = {"X-Amz-Target": f"{TARGET}.{operation}"}
        async with self.open("POST", "/", json.dumps(fields).encode(), **target) as answer:
            return answer.status, json.loads(await answer.read())

    async def told(self, **fields: str) -> list[dict[str, Any]]:
        """Every event there is, with its cursor."""
        query = urlencode(sorted(({"follow": "false"} | fields).items()))
        async with self.open("GET", f"/sexton/events?{query}") as answer:
            assert answer.status == 200, await answer.text()
            return events_in((await answer.read()).decode())


def events_in(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "data" in fields:
            found.append(json.loads(fields["data"]) | {"cursor": fields.get("id"), "name": fields.get("event")})
    return found


@pytest.fixture
async def plane(tmp_path):
    async with open_plane(tmp_path) as made:
        yield made


@pytest.fixture
async def admin(plane):
    async with aiohttp.ClientSession() as http:
        yield Caller(plane, http, plane.key)
