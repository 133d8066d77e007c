"""Posts what happens to findings to a URL, as JSON.

    ledger's outbox (written with the event itself) -> POST, one after another -> removed once the other side took it

An event leaves the outbox only when a 2xx answered it, so none is lost to a crash; one that was taken just before a
crash is sent again under the same ``id`` (also in the ``Idempotency-Key`` header): receivers drop what they have seen.
A receiver that is away is tried with growing delays; after ``ATTEMPTS`` the event is given up and counted, and
the outbox itself is bounded. With a secret, ``X-Sexton-Signature: t=TIME,v1=HMAC-SHA256(TIME.BODY)`` says who sent it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sexton import __version__
from sexton.core.ledger import Delivery
from sexton.kit.retry import Backoff

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

JSON_SCHEMA = 1
# One post; a receiver that needs longer has taken it or has not: it is sent again.
POST_SECONDS = 10.0
# Between two tries of one event. Some minutes of a receiver's absence are bridged, then others get their turn.
BACKOFF = Backoff(first=1.0, cap=60.0)
ATTEMPTS = 8
# A body that no receiver should have to refuse; longer evidence is cut.
EVIDENCE_TOLD = 20


Waiting = Callable[[], Awaitable[tuple[Delivery, ...]]]
Taken = Callable[[str], Awaitable[None]]


class WebhookExport:
    """Empties an outbox towards one URL. ``wake`` tells it that something waits."""

    def __init__(self, url: str, secret: bytes, waiting: Waiting, taken: Taken, backoff: Backoff = BACKOFF) -> None:
        self._url = url
        self._secret = secret
        self._waiting = waiting
        self._taken = taken
        self._backoff = backoff
        self._news = asyncio.Event()
        self._news.set()
        self.delivered = 0
        self.given_up = 0
        self.failing = ""

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        import aiohttp  # only a caretaker with a webhook needs it

        timeout = aiohttp.ClientTimeout(total=POST_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self._news.wait()
                self._news.clear()
                for delivery in await self._waiting():
                    await self._deliver(session, delivery)

    async def _deliver(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        body = body_of(delivery)
        for _, delay in zip(range(ATTEMPTS), self._backoff.delays(), strict=False):
            trouble = await self._post(session, delivery.id, body)
            if trouble is None:
                await self._taken(delivery.id)
                self.delivered += 1
                self.failing = ""
                return
            if not self.failing:
                log.warning("webhook does not take an event", extra={"reason": trouble, "event": delivery.id})
            self.failing = trouble
            await asyncio.sleep(delay)
        log.error("webhook event given up", extra={"reason": self.failing, "event": delivery.id})
        await self._taken(delivery.id)
        self.given_up += 1

    async def _post(self, session: aiohttp.ClientSession, ident: str, body: bytes) -> str | None:
        """Why it was not taken; None when it was."""
        import aiohttp

        try:
            async with session.post(
                self._url, data=body, headers=headers_of(ident, body, self._secret, time.time()), allow_redirects=False
            ) as answer:
                return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except (aiohttp.ClientError, OSError) as error:
            return f"cannot reach it: {type(error).__name__}"
        except TimeoutError:
            return f"no answer within {POST_SECONDS:g} s"


def headers_of(ident: str, body: bytes, secret: bytes, now: float) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"sexton-care/{__version__}",
        "Idempotency-Key": ident,
    }
    if secret:
        headers["X-Sexton-Signature"] = signature(secret, body, now)
    return headers


def signature(secret: bytes, body: bytes, now: float) -> str:
    """Says who sent a body, and when: a recorded one cannot be sent again later."""
    at = str(int(now))
    return f"t={at},v1={hmac.new(secret, at.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def read_secret(path: Path) -> bytes:
    """The secret that signs; OSError when it cannot be read, ValueError when there is none in it."""
    secret = path.read_bytes().strip()
    if not secret:
        raise ValueError(f"cannot sign webhook posts: {path} is empty")
    return secret


def body_of(delivery: Delivery) -> bytes:
    """An event as its receivers get it; the shape is documented in ``docs/care.md``."""
    record, entry = delivery.record, delivery.entry
    finding = record.finding
    return msgspec.json.encode(
        {
            "schema": JSON_SCHEMA,
            "id": delivery.id,
            "host": socket.gethostname(),
            "at": datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds"),
            "event": entry.kind,
            "says": entry.says,
            "fingerprint": finding.fingerprint,
            "severity": finding.severity,
            "title": finding.title,
            "culprit": finding.culprit,
            "state": record.state(entry.at),
            "first_seen": datetime.fromtimestamp(record.first_seen, UTC).isoformat(timespec="milliseconds"),
            "times": record.times,
            "evidence": finding.evidence[:EVIDENCE_TOLD],
            "next_step": finding.next_step,
        }
    )
