"""Somebody who follows the stream of events through every break, and remembers what each task was told to be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
from yarl import URL

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

REGION = "us-east-1"


class Follower:
    """Follows one of several control planes, and the next one whenever the stream ends."""

    def __init__(self, hosts: Sequence[str], key: Credentials) -> None:
        self._hosts = list(hosts)
        self._key = key
        self._cursor = ""
        self.gaps = 0
        self.breaks = 0
        self.ids: list[str] = []
        self.versions: dict[str, list[int]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=30)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    await self._follow(http)
                self.breaks += 1
                self._hosts.append(self._hosts.pop(0))
                await asyncio.sleep(0.05)

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        host, path, query = self._hosts[0], "/sexton/events", "follow=true&since=oldest"
        headers = {"Host": host}
        headers |= sign("GET", path, query, headers, b"", self._key, region=REGION, service="ecs", now=time.time())
        if self._cursor:
            headers["Last-Event-ID"] = self._cursor
        async with http.get(URL(f"http://{host}{path}?{query}", encoded=True), headers=headers) as answer:
            if answer.status != 200:
                return
            fields: dict[str, str] = {}
            async for raw in answer.content:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                    continue
                if "data" in fields:
                    self._take(fields)
                fields = {}

    def _take(self, fields: dict[str, str]) -> None:
        if fields.get("event") == "gap":
            self.gaps += 1
            return
        self._cursor = fields["id"]
        event: dict[str, Any] = json.loads(fields["data"])
        self.ids.append(event["id"])
        if event["detail-type"] == "ECS Task State Change":
            self.versions.setdefault(event["resources"][0], []).append(event["detail"]["version"])

    def check(self, finals: dict[str, int]) -> None:
        """Every version of every task was told once and in order."""
        assert self.gaps == 0
        assert len(set(self.ids)) == len(self.ids), "an event was told twice"
        for arn, versions in self.versions.items():
            assert versions == list(range(1, len(versions) + 1)), (arn, versions)
        for arn, version in finals.items():
            assert len(self.versions.get(arn, [])) == version, (arn, version, self.versions.get(arn))
