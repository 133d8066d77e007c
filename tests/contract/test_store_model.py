"""Random histories: whatever is done to a store, it holds what a plain dict would, and a watch rebuilds it.

The model keeps key -> (value, created, modified, lease) and applies each step by the words of the contract.
After every step the store is read back whole and compared. Watches opened on the way replay into dicts of
their own, which must equal the store's state for their prefix. Only the numbers of the revisions are the store's own
to choose, growing. Runs over each row of ``store_backends``; where a server's clock counts the leases, they are long.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contract.store_backends import BACKENDS, Backend
from sexton.store.contract import Compare, Delete, KeyValue, Put, TxnResult, Watch, Write

KEYS = ["a", "a/", "a/1", "a/10", "a/2", "a0", "b", "b/\0", "é", "\U0001f600", "\U0010ffff", "\U0010ffff/x"]
PREFIXES = ["", "a", "a/", "a/1", "b/", "c", "é", "\U0010ffff"]
PATIENCE = 10.0
LONG = 1000
"""Seconds of a lease that no test lives to see the end of."""

keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(PREFIXES)
values = st.binary(max_size=4)


@dataclass
class Follower:
    """A watch, and what its reader has rebuilt from it so far."""

    prefix: str
    context: AbstractAsyncContextManager[Watch]
    watch: Watch
    state: dict[str, bytes]
    revision: int


class StoreMachine(RuleBasedStateMachine):
    """One store, its model, and the watches opened so far."""

    backend: Backend

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory(prefix="sexton-model-")
        self.records: dict[str, KeyValue] = {}
        self.leases: dict[int, tuple[float, float]] = {}
        self.revision = 0
        self.now = 0.0
        self.followers: list[Follower] = []

    @initialize()
    def open(self) -> None:
        self.store = self.runner.run(self.backend.open(Path(self.directory.name)))
        self.revision = self.store.revision

    def teardown(self) -> None:
        self.runner.run(self._end_watches())
        self.runner.run(self.store.close())
        self.runner.close()
        self.directory.cleanup()

    @rule(
        writes=st.lists(
            st.tuples(keys, st.none() | values, st.booleans()), max_size=4, unique_by=lambda write: write[0]
        ),
        compares=st.lists(st.tuples(keys, st.sampled_from([0, 0, 0, -1, 1])), max_size=2),
    )
    def transaction(self, writes: list[tuple[str, bytes | None, bool]], compares: list[tuple[str, int]]) -> None:
        lease = max(self.leases, default=0)
        conditions = [Compare(key, max(0, self._modified(key) + off)) for key, off in compares]
        changes: list[Write] = [
            Delete(key) if value is None else Put(key, value, lease if leased else 0) for key, value, leased in writes
        ]
        holds = all(condition.mod_revision == self._modified(condition.key) for condition in conditions)
        result = self.runner.run(self.store.txn(conditions, changes))
        if holds:
            self._write(changes, result.revision)

        assert result == TxnResult(holds, self.revision)

    @rule(changes=st.lists(st.tuples(keys, values), min_size=2, max_size=8))
    def writers_at_once(self, changes: list[tuple[str, bytes]]) -> None:
        """In flight together, they must come out as if done one after the other, those of a key in the order asked."""

        async def write() -> list[TxnResult]:
            return await asyncio.gather(
                *(self.store.compare_and_swap(key, expected, value) for (key, value), expected in asked)
            )

        asked = [((key, value), self._modified(key)) for key, value in changes]
        first = {key: who for who, (key, _) in reversed(list(enumerate(changes)))}
        results = self.runner.run(write())
        winners = sorted(first.values(), key=lambda who: results[who].revision)
        for who in winners:
            key, value = changes[who]
            self._write([Put(key, value)], results[who].revision)

        assert [result.succeeded for result in results] == [who in winners for who in range(len(changes))]
        # Those who lost were told no earlier than what was in their way.
        for (key, _), result in zip(changes, results, strict=True):
            assert results[first[key]].revision <= result.revision <= self.revision

    @rule(ttl=st.integers(1, 5))
    def grant(self, ttl: int) -> None:
        ttl = ttl if self.backend.callers_clock else LONG
        lease = self.runner.run(self.store.grant(float(ttl), self.now))

        assert lease not in self.leases
        self.leases[lease] = (float(ttl), self.now + ttl)

    @rule(passed=st.integers(0, 3))
    def time_passes(self, passed: int) -> None:
        self.now += passed
        over = sorted(lease for lease, (_, ends) in self.leases.items() if ends <= self.now)
        ended = self.runner.run(self.store.expire(self.now))
        kept = [lease for lease in over if any(record.lease == lease for record in self.records.values())]
        for lease in over:
            # Each lease with keys was one change, the oldest lease first.
            behind = len(kept) - kept.index(lease) - 1 if lease in kept else 0
            self._end(lease, self.store.revision - behind)

        assert ended == len(over)

    @precondition(lambda self: self.leases)
    @rule(passed=st.integers(0, 3))
    def keep_alive(self, passed: int) -> None:
        self.now += passed
        lease = min(self.leases)
        ttl, ends = self.leases[lease]
        if alive := ends > self.now:
            self.leases[lease] = (ttl, self.now + ttl)

        assert self.runner.run(self.store.keep_alive(lease, self.now)) == alive

    @precondition(lambda self: self.leases)
    @rule()
    def revoke(self) -> None:
        lease = min(self.leases)
        self.runner.run(self.store.revoke(lease))
        self._end(lease, self.store.revision)

    @rule(prefix=prefixes)
    def watch(self, prefix: str) -> None:
        async def enter() -> None:
            context = self.store.watch(prefix, self.revision)
            watch = await context.__aenter__()
            self.followers.append(Follower(prefix, context, watch, self._under(prefix), self.revision))

        self.runner.run(enter())

    @precondition(lambda self: self.followers)
    @rule()
    def watches_rebuild_the_state(self) -> None:
        for follower in self.followers:
            self.runner.run(self._follow(follower, self._under(follower.prefix)))

    @rule()
    def reopen(self) -> None:
        self.runner.run(self._end_watches())
        self.runner.run(self.store.close())
        self.store = self.runner.run(self.backend.open(Path(self.directory.name)))
        # A server that others share may have moved on meanwhile.
        assert self.store.revision >= self.revision
        self.revision = self.store.revision

    @rule(prefix=prefixes, after=st.just("") | keys, limit=st.integers(0, 5))
    def page(self, prefix: str, after: str, limit: int) -> None:
        wanted = [self.records[key] for key in sorted(self.records) if key.startswith(prefix) and key > after]
        page = self.runner.run(self.store.range(prefix, after=after, limit=limit))

        assert page.items == tuple(wanted[:limit] if limit else wanted)
        assert page.more == (limit > 0 and len(wanted) > limit)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        page = self.runner.run(self.store.range(""))

        assert page.items == tuple(self.records[key] for key in sorted(self.records))
        assert page.revision == self.store.revision == self.revision

    def _under(self, prefix: str) -> dict[str, bytes]:
        return {key: record.value for key, record in self.records.items() if key.startswith(prefix)}

    def _modified(self, key: str) -> int:
        return self.records[key].mod_revision if key in self.records else 0

    def _write(self, writes: list[Write], revision: int) -> None:
        """What the store should have made of it, which was a new revision if it changed anything."""
        before = self.revision
        for write in writes:
            if isinstance(write, Put):
                old = self.records.get(write.key)
                created = old.create_revision if old else revision
                self.records[write.key] = KeyValue(write.key, write.value, created, revision, write.lease)
                self.revision = revision
            elif self.records.pop(write.key, None):
                self.revision = revision
        assert self.revision == before or revision > before

    def _end(self, lease: int, revision: int) -> None:
        del self.leases[lease]
        self._write([Delete(key) for key, record in self.records.items() if record.lease == lease], revision)

    async def _follow(self, follower: Follower, wanted: dict[str, bytes]) -> None:
        while follower.state != wanted:
            batch = await asyncio.wait_for(anext(aiter(follower.watch)), PATIENCE)
            assert {change.revision for change in batch} == {batch[0].revision}
            assert follower.revision < batch[0].revision <= self.revision
            follower.revision = batch[0].revision
            for change in batch:
                if change.value is None:
                    del follower.state[change.key]
                else:
                    follower.state[change.key] = change.value

    async def _end_watches(self) -> None:
        for follower in self.followers:
            await follower.context.__aexit__(None, None, None)
        self.followers.clear()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_a_store_is_a_dict_with_a_history(name: str) -> None:
    machine = type("Machine", (StoreMachine,), {"backend": BACKENDS[name]})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
