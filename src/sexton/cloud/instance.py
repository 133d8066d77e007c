"""What an EC2 instance can be asked about itself: identity, region, user data, notices of its end, its tags.

Plain facts from the instance metadata service, each question bounded to a few seconds, with one session token for many.
Whether this host is an EC2 instance at all is seen from its firmware first, so that no other host is ever made to wait
for an address where nobody is. ``None`` means that the service says there is no such thing; ``Unreachable`` that nobody
knows.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp

from sexton.cloud import places
from sexton.cloud.bodies import TooLarge, read_bounded
from sexton.cloud.client import error_of
from sexton.cloud.credential_endpoints import INSTANCE_ADDRESS
from sexton.cloud.credentials import CredentialSource
from sexton.cloud.exchange import Request, Unreachable, exchange
from sexton.wire.errors import EcsError

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 3.0
# The longest a session may live; ours is renewed before.
_SESSION_SECONDS = 21600
_RENEW_SECONDS = 18000.0
_LARGEST_ANSWER = 256 * 1024
_EC2_VERSION = "2016-11-15"

_TAG = re.compile(r"<item>(.*?)</item>", re.DOTALL)
_PART = re.compile(r"<(key|value)>(.*?)</\1>", re.DOTALL)


class Identity(NamedTuple):
    """The signed identity document, as text, and what of it is needed here."""

    document: str = ""
    signature: str = ""
    instance_id: str = ""
    region: str = ""


class SpotNotice(NamedTuple):
    """EC2 takes this instance back."""

    action: str
    at: str


def is_instance(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether there is any use in asking; by firmware, or because somebody names an address to ask."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        return True
    for name, word in {
        "sys/class/dmi/id/sys_vendor": "amazon ec2",
        "sys/class/dmi/id/bios_vendor": "amazon ec2",
        "sys/class/dmi/id/product_uuid": "ec2",
        "sys/hypervisor/uuid": "ec2",
    }.items():
        try:
            text = (root / name).read_text(errors="replace")
        except OSError:
            continue
        if text.strip().lower().startswith(word):
            return True
    return False


class InstanceService:
    """The metadata service of the instance that this is."""

    def __init__(self, environ: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._base = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or INSTANCE_ADDRESS).rstrip("/")
        self._session = session
        self._token = ""
        self._until = 0.0

    async def identity(self) -> Identity:
        """Who this instance is."""
        document = await self.get("dynamic/instance-identity/document")
        signature = await self.get("dynamic/instance-identity/signature")
        if document is None or signature is None:
            return Identity()
        try:
            facts = json.loads(document)
            return Identity(document, signature, str(facts["instanceId"]), str(facts["region"]))
        except (ValueError, KeyError, TypeError):
            raise Unreachable(f"cannot read the identity document of {self._base}: it is not one") from None

    async def user_data(self) -> str:
        return await self.get("user-data") or ""

    async def spot_notice(self) -> SpotNotice | None:
        text = await self.get("meta-data/spot/instance-action")
        if text is None:
            return None
        try:
            facts = json.loads(text)
            return SpotNotice(str(facts["action"]), str(facts.get("time", "")))
        except (ValueError, KeyError, TypeError):
            raise Unreachable(f"cannot read the spot notice of {self._base}: it is not one") from None

    async def lifecycle_state(self) -> str | None:
        """Where this instance is to be in the life of its Auto Scaling group."""
        text = await self.get("meta-data/autoscaling/target-lifecycle-state")
        return text.strip() if text is not None else None

    async def get(self, path: str) -> str | None:
        """One fact; None when there is none."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, text = await self._ask("GET", path, {"X-aws-ec2-metadata-token": await self._session_token()})
                if status == HTTPStatus.UNAUTHORIZED:
                    self._token = ""
                    status, text = await self._ask(
                        "GET", path, {"X-aws-ec2-metadata-token": await self._session_token()}
                    )
        except TimeoutError:
            raise Unreachable(f"cannot reach {self._base}: no answer within {ANSWER_SECONDS:g} s") from None
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise Unreachable(f"cannot get {path} of {self._base}: the answer was HTTP {status}")
        return text

    async def _session_token(self) -> str:
        if not self._token or time.monotonic() > self._until:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_SESSION_SECONDS)}
            status, text = await self._ask("PUT", "api/token", ttl)
            if status != HTTPStatus.OK:
                raise Unreachable(f"cannot get a session of {self._base}: the answer was HTTP {status}")
            self._token, self._until = text.strip(), time.monotonic() + _RENEW_SECONDS
        return self._token

    async def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.request(
                method, f"{self._base}/latest/{path}", headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, (await read_bounded(response, _LARGEST_ANSWER)).decode("utf-8", "replace")
        except (aiohttp.ClientError, TooLarge, OSError, ValueError) as error:
            raise Unreachable(f"cannot reach {self._base}: {error or type(error).__name__}") from None


async def tags_of(
    session: aiohttp.ClientSession,
    environ: Mapping[str, str],
    instance_id: str,
    region: str,
    keys: CredentialSource,
    clock: Callable[[], float] = time.time,
) -> dict[str, str]:
    """The EC2 tags of an instance; EcsError when EC2 says no."""
    base = places.configured("EC2", environ) or f"https://ec2.{region}.{places.dns_suffix(region)}"
    fields = {"Action": "DescribeTags", "Version": _EC2_VERSION}
    fields |= {"Filter.1.Name": "resource-id", "Filter.1.Value.1": instance_id}
    request = Request(
        "POST",
        f"{base}/",
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        urlencode(fields).encode(),
        "DescribeTags",
        region,
        "ec2",
    )
    reply = await exchange(session, request, await keys.current(), now=clock(), limit=_LARGEST_ANSWER, seconds=10.0)
    text = reply.body.decode("utf-8", "replace")
    if reply.status != HTTPStatus.OK:
        found = re.search(r"<Code>([^<]{1,200})</Code>.*?<Message>([^<]{0,2000})", text, re.DOTALL)
        if found:
            raise EcsError(found[2], code=found[1], status=reply.status)
        raise error_of(reply.status, reply.body, "")
    from html import unescape

    tags = {}
    for item in _TAG.findall(text):
        parts = {name: unescape(value) for name, value in _PART.findall(item)}
        if parts.get("key") and not parts["key"].startswith("aws:"):
            tags[parts["key"]] = parts.get("value", "")
    return tags
