"""Which of the control planes over one store decides: the one whose lease holds the leader's key.

    campaign -> the key is free: take it with a lease -> lead -> renew -> ... -> resigned, deposed or out of time
             -> somebody holds it: watch it until it is gone -> campaign again

In flow the store's answers and the passing of time; out flow ``term``, for whoever must know it now, and a call to
every listener when it changes. Two things keep two leaders from acting at once. A term is over by our own clock before
the store can give the key away, counted from before the lease was asked for, so that an answer that took long only
shortens it. And every write a leader makes carries the term's ``fence``, a condition on the very key that made it
leader: should a whole process have stood still beyond its term, its writes fail.

Nothing here survives a restart: a process that was killed is followed by another one when its lease has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from sexton.kit.retry import Backoff
from sexton.store.contract import Change, Compacted, Compare, KeyValue, Put, Store, StoreError

log = logging.getLogger(__name__)

LEADER_KEY = "leader"

LEASE_SECONDS = 9.0
"""How long a dead leader is waited for. Three renewals fit in, so that one lost request or one election of the store
costs nobody the lead."""

RENEWALS = 3
"""Renewals in the time of one lease."""

RETRY = 1 / 20
"""Share of the lease until a renewal that failed is tried again: often enough, and no tight loop."""

MARGIN = 0.1
"""Share of the lease by which a term ends early by our own clock: two machines' clocks do not run at one speed."""

LEAST_SECONDS = 0.001
"""What is left of a term below this is its end: a timer cannot wait for less, and whoever tried would spin."""

BACKOFF = Backoff(first=0.2, cap=3.0)
"""Between campaigns that failed because the store did."""

RESIGN_SECONDS = 2.0
"""How long leaving may hold up a shutdown; unsaid, the lease says it later."""


class Term(NamedTuple):
    """A time of leading."""

    number: int
    """The revision at which it began: later terms have higher numbers, over all leaders."""

    fence: Compare
    """The condition for every write of this leader: false as soon as somebody else may lead."""


Listener = Callable[[Term | None], None]


def since_boot() -> float:
    """Seconds that also pass while the machine sleeps, unlike those of the event loop."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """One candidate. ``name`` tells people which process leads; it must be of this process alone."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        alone: bool = False,
        ttl: float = LEASE_SECONDS,
        elapsed: Callable[[], float] = since_boot,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``alone``: no other process can have this store open, so that whoever holds the key is dead. ``elapsed``
        is a clock that never goes back, for our own term; ``now`` the one the store's leases are counted by."""
        self._store = store
        self._name = name
        self._alone = alone
        self._ttl = ttl
        self._elapsed = elapsed
        self._now = now
        self._listeners: list[Listener] = []
        self._term: Term | None = None
        self._ends = 0.0
        self._lease = 0
        self._changed = asyncio.Event()

    @property
    def term(self) -> Term | None:
        """The term we lead in, while that is sure; ask again after every await."""
        return self._term if self._term is not None and self._elapsed() < self._ends else None

    @property
    def is_leader(self) -> bool:
        return self.term is not None

    def listen(self, listener: Listener) -> None:
        """Call ``listener(term)`` when we begin to lead, and ``listener(None)`` when we no longer do."""
        self._listeners.append(listener)

    async def changed(self) -> None:
        """Wait until a term begins or ends; look at ``term`` then."""
        await self._changed.wait()

    async def leader(self) -> str | None:
        """The name of whoever holds the key, as far as this process has seen."""
        record = await self._store.get(LEADER_KEY)
        return record.value.decode(errors="replace") if record else None

    async def run(self) -> None:
        """Campaign, lead and campaign again until cancelled; then resign, so that the next one need not wait."""
        try:
            await self._run()
        finally:
            self._depose("resigned")
            await self._resign()

    async def _resign(self) -> None:
        try:
            async with asyncio.timeout(RESIGN_SECONDS):
                await self._give_back()
        except TimeoutError:
            log.warning("leader lease not given back", extra={"reason": "the store does not answer in time"})

    async def _run(self) -> None:
        delays = BACKOFF.delays()
        while True:
            try:
                if await self._campaign():
                    delays = BACKOFF.delays()
                    await self._lead()
                else:
                    await self._wait_for_vacancy()
            except StoreError as error:
                log.warning("campaign failed", extra={"reason": str(error)})
                self._depose("the store failed")
                await asyncio.sleep(next(delays))

    async def _campaign(self) -> bool:
        """Take the key if it is free, or was taken by ourselves without our knowing."""
        holder = await self._store.get(LEADER_KEY)
        if holder is not None and not self._mine(holder):
            return False
        await self._give_back()
        begun = self._elapsed()
        self._lease = await self._store.grant(self._ttl, self._now())
        expected = holder.mod_revision if holder else 0
        put = Put(LEADER_KEY, self._name.encode(), self._lease)
        # Giving back our old lease may have removed the key; then this fails, and the next campaign finds it free.
        result = await self._store.txn([Compare(LEADER_KEY, expected)], [put])
        if not result.succeeded:
            return False
        self._ends = begun + self._ttl * (1 - MARGIN)
        self._enter(Term(result.revision, Compare(LEADER_KEY, result.revision)))
        return True

    def _mine(self, holder: KeyValue) -> bool:
        return self._alone or holder.value == self._name.encode()

    async def _lead(self) -> None:
        """Renew until the term ends, one way or the other."""
        term = self._term
        assert term is not None
        renewing = asyncio.ensure_future(self._renew())
        watching = asyncio.ensure_future(self._taken_away(term))
        try:
            await asyncio.wait((renewing, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (renewing, watching):
                task.cancel()
            reasons = await asyncio.gather(renewing, watching, return_exceptions=True)
        self._depose(next(str(reason) for reason in reasons if not isinstance(reason, asyncio.CancelledError)))

    async def _renew(self) -> str:
        """Keep the lease alive; returns why that came to an end."""
        pause = self._ttl / RENEWALS
        while (left := self._ends - self._elapsed()) > LEAST_SECONDS:
            await asyncio.sleep(min(left, pause))
            pause = self._ttl / RENEWALS
            begun = self._elapsed()
            try:
                async with asyncio.timeout(max(0.0, self._ends - begun)):
                    if not await self._store.keep_alive(self._lease, self._now()):
                        return "the lease had ended"
            except TimeoutError:
                continue
            except StoreError as error:
                log.warning("leader lease not renewed", extra={"lease": self._lease, "reason": str(error)})
                pause = self._ttl * RETRY
            else:
                self._ends = begun + self._ttl * (1 - MARGIN)
        return "the lease was not renewed in time"

    async def _taken_away(self, term: Term) -> str:
        """Until the key is not what made us leader; returns what happened to it."""
        while True:
            record = await self._store.get(LEADER_KEY)
            if record is None or record.mod_revision != term.number:
                return "somebody else holds the key" if record else "the key was removed"
            await self._change(record.mod_revision)

    async def _wait_for_vacancy(self) -> None:
        """Until the holder may be gone. Where leases end only when somebody says what time it is, say it."""
        while (holder := await self._store.get(LEADER_KEY)) is not None and not self._mine(holder):
            try:
                async with asyncio.timeout(self._ttl / RENEWALS):
                    await self._change(holder.mod_revision)
            except TimeoutError:
                await self._store.expire(self._now())

    async def _change(self, revision: int) -> None:
        """Wait until the key has changed since this revision, or the store cannot tell."""
        try:
            async with self._store.watch(LEADER_KEY, max(revision, self._store.revision)) as watch:
                record = await self._store.get(LEADER_KEY)
                if record is None or record.mod_revision != revision:
                    return
                async for batch in watch:
                    if any(_is_leaders(change) for change in batch):
                        return
        except Compacted:
            return

    async def _give_back(self) -> None:
        lease, self._lease = self._lease, 0
        if lease:
            try:
                await self._store.revoke(lease)
            except StoreError as error:
                # It ends by itself, and nobody keeps it alive any more.
                log.warning("leader lease not given back", extra={"lease": lease, "reason": str(error)})

    def _enter(self, term: Term) -> None:
        self._term = term
        log.info("leading", extra={"candidate": self._name, "term": term.number})
        self._tell(term)

    def _depose(self, reason: str) -> None:
        if self._term is None:
            return
        number, self._term = self._term.number, None
        log.warning("no longer leading", extra={"candidate": self._name, "term": number, "reason": reason})
        self._tell(None)

    def _tell(self, term: Term | None) -> None:
        for listener in self._listeners:
            listener(term)
        self._changed.set()
        self._changed = asyncio.Event()


def _is_leaders(change: Change) -> bool:
    return change.key == LEADER_KEY
