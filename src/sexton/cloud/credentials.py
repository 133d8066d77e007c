"""Who the agent is to a control plane: a key pair that never shows itself, and where one may come from.

``Credentials`` is the value that travels. A ``Provider`` is one place that may have some; the places are in
``credential_files`` and ``credential_endpoints``. A ``Keyring`` asks its providers in order, keeps the answer and
asks again before it expires, however many callers wait. When nobody has any, ``NoCredentials`` says in one
line what was tried and why it did not help: that line is what an operator reads when the agent stands down.

Nothing here is stored: after a restart the providers are asked again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

# Renewal starts this long before the end, so that an endpoint may be away for minutes without a failed call.
REFRESH_AHEAD = 300.0
# No provider is asked more often than this while what it gave is still good, however short-lived that is.
REFRESH_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, and for temporary ones a token and an end (Unix seconds). Prints as its key id alone."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None

    def expired(self, now: float) -> bool:
        """Whether a request signed now would be refused for its age alone."""
        return self.expires_at is not None and self.expires_at <= now


class Found(NamedTuple):
    """What a provider had, and after how many seconds it may have something newer (None: never by itself)."""

    credentials: Credentials
    refresh_after: float | None = None


class Unavailable(Exception):  # noqa: N818 - an answer the chain reads and goes on from, not a failure
    """This place has no credentials, and why. ``may_heal``: it should have had some, asking later can help."""

    def __init__(self, reason: str, *, may_heal: bool = False) -> None:
        super().__init__(reason)
        self.reason = " ".join(reason.split())
        self.may_heal = may_heal


class Provider(Protocol):
    """One place credentials may come from."""

    @property
    def name(self) -> str:
        """What an operator calls the place."""

    async def fetch(self) -> Found:
        """Give what is there now, in bounded time, or raise Unavailable."""


class Attempt(NamedTuple):
    """One place that was asked in vain."""

    source: str
    reason: str
    may_heal: bool


class NoCredentials(Exception):  # noqa: N818 - a state of the host that the agent stands down for
    """No place had credentials. The message lists each place and its reason, in one line."""

    def __init__(self, tried: Sequence[Attempt]) -> None:
        self.tried = tuple(tried)
        reasons = "; ".join(f"{source} ({reason})" for source, reason, _ in self.tried) or "no source is configured"
        super().__init__(
            f"cannot find AWS credentials: {reasons}."
            " Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role"
        )

    @property
    def may_heal(self) -> bool:
        """Whether a configured place failed in passing, so that waiting can help."""
        return any(attempt.may_heal for attempt in self.tried)


class CredentialSource(Protocol):
    """What a caller who signs needs: the credentials of this moment, and a way to say they were refused."""

    async def current(self) -> Credentials:
        """Credentials that have not expired, or NoCredentials."""

    def forget(self, refused: Credentials) -> None:
        """Ask the providers again next time, unless that has happened since these were handed out."""


class Keyring:
    """Asks providers in order, keeps what it found, renews it ahead of time. For one event loop.

    The place that answered last is asked first at renewal: a slow place before it in the order is paid for once.
    """

    def __init__(self, providers: Sequence[Provider], clock: Callable[[], float] = time.time) -> None:
        self._providers = tuple(providers)
        self._clock = clock
        self._kept: Credentials | None = None
        self._refresh_at = float("inf")
        self._source: Provider | None = None
        self._told: dict[str, str] = {}
        self._flight: asyncio.Future[Credentials | NoCredentials | None] | None = None

    async def current(self) -> Credentials:
        """See CredentialSource. Callers that arrive while the providers are asked share the one answer."""
        while True:
            now = self._clock()
            kept = self._kept if self._kept is not None and not self._kept.expired(now) else None
            if kept is not None and (now < self._refresh_at or self._flight is not None):
                return kept
            if self._flight is None:
                return await self._lead(kept)
            outcome = await asyncio.shield(self._flight)
            if isinstance(outcome, NoCredentials):
                # A new one for each caller: an instance raised in many tasks would collect all their tracebacks.
                raise NoCredentials(outcome.tried)
            if outcome is not None:
                return outcome
            # The caller that asked was cancelled before it had an answer: one of the others asks instead.

    def forget(self, refused: Credentials) -> None:
        """See CredentialSource."""
        if self._kept == refused:
            self._kept = None

    async def _lead(self, kept: Credentials | None) -> Credentials:
        flight: asyncio.Future[Credentials | NoCredentials | None] = asyncio.get_running_loop().create_future()
        self._flight = flight
        outcome: Credentials | NoCredentials | None = None
        try:
            outcome = await self._ask(kept)
        finally:
            self._flight = None
            if not flight.done():
                flight.set_result(outcome)
        if isinstance(outcome, NoCredentials):
            raise outcome
        return outcome

    async def _ask(self, kept: Credentials | None) -> Credentials | NoCredentials:
        tried: list[Attempt] = []
        last = self._source
        for provider in sorted(self._providers, key=lambda provider: provider is not last):
            try:
                found = await provider.fetch()
            except Unavailable as unavailable:
                tried.append(Attempt(provider.name, unavailable.reason, unavailable.may_heal))
                continue
            now = self._clock()
            if found.credentials.expired(now):
                tried.append(Attempt(provider.name, "what it holds has expired", may_heal=True))
                continue
            return self._keep(provider, found, now)
        refusal = NoCredentials(tried)
        if kept is None:
            return refusal
        self._refresh_at = self._clock() + REFRESH_PAUSE
        log.warning("credentials not renewed, the old ones are still good", extra={"cause": str(refusal)})
        return kept

    def _keep(self, provider: Provider, found: Found, now: float) -> Credentials:
        credentials = found.credentials
        due = [float("inf") if found.refresh_after is None else now + found.refresh_after]
        if credentials.expires_at is not None:
            due.append(max(credentials.expires_at - REFRESH_AHEAD, now + REFRESH_PAUSE))
        facts = {"source": provider.name, "access_key_id": credentials.access_key_id}
        if facts != self._told:
            log.info("credentials found", extra=facts)
            self._told = facts
        self._kept, self._refresh_at, self._source = credentials, min(due), provider
        return credentials
