"""Which control planes are alive, and whose connection each agent is on.

    a replica starts -> its record under a lease -> agents connect: "connected, at this replica" -> it dies: the lease
    ends, the record goes -> the leader writes "not connected" for every agent that was there -> they come elsewhere

Every claim "connected here" is written on the condition that the replica's record stands, and every "nobody is there"
of the leader's on the condition that it does not; so whatever a replica that was cut off for a while finds afterwards,
it finds all of it, and shows its agents anew. A control plane that has its store for itself needs none of this: it has
no name, and whoever was connected when it starts no longer is.

While its store is away a replica keeps its agents: they have nothing to be told. Only when another replica says that
it is well are they sent there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence

import aiohttp
import msgspec

from sexton import __version__
from sexton.control.context import CONFLICT_TRIES, Call, Context, busy
from sexton.control.fence import Fence
from sexton.control.leader import LEASE_SECONDS, RENEWALS, since_boot
from sexton.control.records import Entry, InstanceRecord, Records, ReplicaRecord
from sexton.core import names
from sexton.kit.retry import Backoff
from sexton.store.contract import Compare, Store, StoreError
from sexton.store.transfer import MARK
from sexton.wire import ecs

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.2, cap=2.0)
"""Between attempts to announce this replica: its agents count as gone until one succeeds."""

PROBE_SECONDS = 2.0
"""How long another replica may take to say that it is well."""

LOOK_AGAIN_SECONDS = 5.0
"""Between two looks of the leader for agents of dead replicas, when nothing tells it sooner."""

RESIGN_SECONDS = 2.0
"""How long leaving may hold up a shutdown; unsaid, the lease says it later."""


class BeingLoaded(Exception):  # noqa: N818 - the message is for a person
    """The store is being replaced beneath this control plane."""


def replica_name() -> str:
    """A name of this process alone, that tells people where it runs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


async def show(
    context: Context, call: Call, cluster: str, text: str, *, here: bool, versions: ecs.VersionInfo | None = None
) -> Entry[InstanceRecord] | None:
    """Write whether an instance's agent is connected to this control plane, and of which version it is; None when there
    is nothing to write on."""
    records, me = context.records, context.replica
    for _ in range(CONFLICT_TRIES):
        member = names.parse_instance(text)
        entry = member and records.instances.get(call.region, cluster, member.id)
        if not entry:
            return None
        record = entry.value
        compares: list[Compare] = []
        if me:
            own = records.replicas.get(me)
            if own is None:
                return None  # as soon as this replica is announced, all its agents are shown anew
            compares.append(records.unchanged(records.replicas, own, me))
        if not here and record.replica != me:
            return entry  # it is connected elsewhere by now
        after = msgspec.structs.replace(record, replica=me if here else "")
        shown = record.instance.version_info if versions in (None, ecs.VersionInfo()) else versions
        if (record.instance.agent_connected, record.instance.version_info) != (here, shown):
            version = (record.instance.version or 0) + 1
            instance = msgspec.structs.replace(
                record.instance, agent_connected=here, version_info=shown, version=version
            )
            after = msgspec.structs.replace(after, instance=instance)
        if after == record:
            return entry
        where = (call.region, cluster, names.last_part(record.arn))
        compares.append(records.unchanged(records.instances, entry, *where))
        if (await records.commit(compares, [records.put(records.instances, after, *where)])).succeeded:
            return records.instances.get(*where)
    raise busy(f"container instance {text}")


async def nobody_is_here(context: Context) -> None:
    """A control plane that starts with a store of its own: whoever was connected to it no longer is."""
    for entry in list(context.records.instances.all()):
        record = entry.value
        if record.instance.agent_connected or record.replica:
            await _forget(context, entry, ())


async def forget_dead(context: Context, fence: Sequence[Compare]) -> int:
    """Show every agent as gone whose replica is; how many there were."""
    records = context.records
    lost = [
        entry
        for entry in records.instances.all()
        if entry.value.instance.agent_connected and records.replicas.get(entry.value.replica) is None
    ]
    gone = 0
    for entry in lost:
        absent = Compare(records.replicas.key(entry.value.replica), 0)
        gone += await _forget(context, entry, (absent, *fence))
    if gone:
        log.warning("agents of a control plane that is gone", extra={"instances": gone})
    return gone


async def _forget(context: Context, entry: Entry[InstanceRecord], compares: Sequence[Compare]) -> bool:
    record = entry.value
    version = (record.instance.version or 0) + 1
    instance = msgspec.structs.replace(record.instance, agent_connected=False, version=version)
    after = msgspec.structs.replace(record, instance=instance, replica="")
    records, where = context.records, (record.region, record.cluster, names.last_part(record.arn))
    conditions = [records.unchanged(records.instances, entry, *where), *compares]
    return (await records.commit(conditions, [records.put(records.instances, after, *where)])).succeeded


class Undertaker:
    """The leader's loop that shows the agents of dead replicas as gone."""

    def __init__(self, context: Context, fence: Fence) -> None:
        self._context = context
        self._fence = fence
        self._changed = asyncio.Event()
        context.records.replicas.listen(self._on_replica)

    def _on_replica(self, _key: str, _before: object, after: Entry[ReplicaRecord] | None) -> None:
        if after is None:
            self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            fence = self._fence()
            if fence is not None:
                try:
                    await forget_dead(self._context, fence)
                except StoreError as error:
                    log.warning("cannot show who is gone", extra={"reason": str(error)})
            try:
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue


class Replica:
    """This control plane's own record, kept alive; ``announced`` is called each time it stands anew."""

    def __init__(
        self,
        store: Store,
        records: Records,
        name: str,
        endpoint: str,
        announced: Callable[[], None],
        send_away: Callable[[], None],
        *,
        ttl: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._records = records
        self._record = ReplicaRecord(name=name, endpoint=endpoint, version=__version__, since=time.time())
        self._announced = announced
        self._send_away = send_away
        self._ttl = ttl
        self._lease = 0

    async def run(self) -> None:
        """Until cancelled; then the record goes, so that nobody waits for its lease."""
        try:
            await self._run()
        finally:
            try:
                async with asyncio.timeout(RESIGN_SECONDS):
                    await self._give_back()
            except TimeoutError:
                pass  # the lease ends by itself

    async def _run(self) -> None:
        delays = BACKOFF.delays()
        alive_until = since_boot() + self._ttl
        while True:
            try:
                begun = since_boot()
                if not self._lease or not await self._store.keep_alive(self._lease, time.time()):
                    await self._announce()
                alive_until = begun + self._ttl
                delays = BACKOFF.delays()
                await asyncio.sleep(self._ttl / RENEWALS)
            except StoreError as error:
                log.warning("control plane not announced", extra={"reason": str(error)})
                if since_boot() > alive_until and await self._others_are_well():
                    self._send_away()
                await asyncio.sleep(next(delays))

    async def _announce(self) -> None:
        await self._give_back()
        self._lease = await self._store.grant(self._ttl, time.time())
        put = self._records.put(self._records.replicas, self._record, self._record.name)
        # Whoever loads a store lays down this mark and then looks for replicas: one of the two sees the other.
        result = await self._records.commit([Compare(MARK, 0)], [put._replace(lease=self._lease)])
        if not result.succeeded:
            raise BeingLoaded(
                "cannot go on: this control plane's store is being loaded; start it again when that is done"
            )
        log.info("control plane announced", extra={"replica": self._record.name, "endpoint": self._record.endpoint})
        self._announced()

    async def _give_back(self) -> None:
        lease, self._lease = self._lease, 0
        if lease:
            try:
                await self._store.revoke(lease)
            except StoreError as error:
                log.debug("lease not given back", extra={"lease": lease, "reason": str(error)})

    async def _others_are_well(self) -> bool:
        """Whether another replica, of those known when the store was last seen, can serve agents now."""
        others = [entry.value for entry in self._records.replicas.all() if entry.value.name != self._record.name]
        if not others:
            return False
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return any(await asyncio.gather(*(_is_well(session, one.endpoint) for one in others)))


async def _is_well(session: aiohttp.ClientSession, endpoint: str) -> bool:
    try:
        # A hint and no more: nothing is said or believed here that a stranger in between could use.
        async with session.get(f"{endpoint}/health", ssl=False) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return False
