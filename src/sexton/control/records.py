"""The control plane's records: typed, indexed, in memory, and exactly what the store holds.

One watch over the whole store feeds every table, so the same code serves a store that only this process writes and
one that many replicas share. A write goes to the store first; ``commit`` returns when it is durable and the tables
show it, which makes every later read of this process see it. Whoever must react to a change (the link to an agent,
the event stream) listens here and is told after the tables are up to date.

Nothing here survives a restart and nothing needs to: the tables are read again from the store.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from sexton.control.networkrecords import GroupRecord, InterfaceRecord, SubnetRecord, UseRecord, VpcRecord
from sexton.core import names
from sexton.core.deployment import Deployment
from sexton.core.resources import NOTHING, Resources
from sexton.core.serviceview import Memory, ScaledSet
from sexton.kit.supervise import Nursery
from sexton.store.contract import Change, Compacted, Compare, Delete, Put, Store, TxnResult, Write
from sexton.wire import ecs

log = logging.getLogger(__name__)

# Written only to see it come back; what it holds means nothing.
BARRIER_KEY = "barrier"

T = TypeVar("T", bound=msgspec.Struct)


def revision_key(revision: int) -> str:
    """A revision as part of a key, so that keys sort as numbers do."""
    return f"{revision:010d}"


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A cluster without its counts; those are computed from the other tables when somebody asks."""

    region: str
    cluster: ecs.Cluster
    ended_at: float = 0.0  # when it was deleted; an INACTIVE cluster is forgotten after a while

    @property
    def name(self) -> str:
        return self.cluster.cluster_name or ""


class DefinitionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    definition: ecs.TaskDefinition
    tags: tuple[ecs.Tag, ...] = ()


class FamilyRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The largest number of a family that was removed, so that it is never given again."""

    newest: int


class ProviderRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A capacity provider that somebody made; FARGATE and FARGATE_SPOT are there without one."""

    region: str
    provider: ecs.CapacityProvider
    ended_at: float = 0.0  # when it was deleted; an INACTIVE provider is forgotten after a while

    @property
    def name(self) -> str:
        return self.provider.name or ""


class AccountSettingRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one principal chose; what the account's root chose holds for everyone who chose nothing."""

    principal: str  # its ARN
    name: str
    value: str


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A container instance without its counts and remaining resources, which are computed."""

    region: str
    cluster: str
    instance: ecs.ContainerInstance
    replica: str = ""  # the control plane that holds its agent's connection; none has a name where there is only one

    @property
    def arn(self) -> str:
        return self.instance.container_instance_arn or ""


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Changes with every task placed on a container instance, so that two replicas never give the same room twice."""

    replica: str


class ReplicaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane that is alive: the record goes with its lease."""

    name: str
    endpoint: str
    version: str
    since: float


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An access key. The secret stays out of every representation."""

    access_key_id: str
    secret_access_key: str
    role: str
    name: str = ""  # whatever its owner calls it
    instance: str = ""  # the container instance an agent's key is bound to
    created_at: float
    created_by: str = ""
    disabled: bool = False
    ends_at: float = 0.0  # when it stops being accepted; 0 means never
    successor: str = ""  # the key that took its place
    own: bool = False  # the control plane's own, which is also in each one's keys file

    def __repr__(self) -> str:
        return f"KeyRecord({self.access_key_id}, {self.role})"


class PointerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which of several records is the one that counts."""

    to: str


class SealRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the short-lived keys of roles are made with, the same on every control plane. Stays out of every
    representation."""

    secret: bytes
    made_at: float

    def __repr__(self) -> str:
        return "SealRecord(hidden)"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A task as the API shows it, and what the API does not show: what it takes of its host."""

    region: str
    cluster: str
    id: str
    task: ecs.Task
    demand: Resources = NOTHING
    account: str = ""
    protected_until: float = 0.0  # scale-in and deployments leave the task alone until then
    healthy_at: float = 0.0  # when its checks first found it healthy
    service: str = ""  # the name of the service that started it
    accounted: bool = False  # its service has taken its end into account

    @property
    def arn(self) -> str:
        return self.task.task_arn or ""

    @property
    def stopped(self) -> bool:
        return self.task.last_status == "STOPPED"


class TaskSetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A task set as the API shows it, without its counts, and what the scheduler keeps of it."""

    shown: ecs.TaskSet
    scaled: ScaledSet
    token: str = ""  # of the request that made it, so that its repetition does nothing
    fingerprint: str = ""

    @property
    def id(self) -> str:
        return self.scaled.state.id


class ServiceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A service without its counts, which are computed; its revisions and service deployments have their own tables."""

    region: str
    cluster: str
    service: ecs.Service  # neither deployments nor events are in it: they are here
    deployments: tuple[Deployment, ...] = ()  # PRIMARY first; none with the EXTERNAL controller
    task_sets: tuple[TaskSetRecord, ...] = ()  # the oldest first; only with the EXTERNAL controller
    rollout: str = ""  # the latest service deployment's id
    memory: Memory = Memory()
    events: tuple[ecs.ServiceEvent, ...] = ()  # the newest first
    fingerprint: str = ""  # of the request that made it, so that its repetition does nothing
    ended_at: float = 0.0  # when it became INACTIVE; it is forgotten after a while

    @property
    def name(self) -> str:
        return self.service.service_name or ""

    @property
    def arn(self) -> str:
        return self.service.service_arn or ""


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a request that carried a client token did, so that its repetition does nothing."""

    region: str
    cluster: str
    fingerprint: str  # of the request's parameters
    tasks: tuple[str, ...]  # ids, in the order of the answer
    failures: tuple[ecs.Failure, ...] = ()
    made_at: float


class Entry(Generic[T]):
    """A record with the revision of its last change; ``encoded`` keeps the wire form the API sends most."""

    __slots__ = ("encoded", "revision", "value")

    def __init__(self, value: T, revision: int) -> None:
        self.value = value
        self.revision = revision
        self.encoded: msgspec.Raw | None = None


Companion = Callable[[Sequence[Write]], Sequence[Write]]

Listener = Callable[[str, Entry[T] | None, Entry[T] | None], None]


class Table(Generic[T]):
    """All records under one prefix. Keys here are without the prefix."""

    def __init__(self, prefix: str, kind: type[T]) -> None:
        self.prefix = prefix
        self._decoder = msgspec.json.Decoder(kind)
        self._rows: dict[str, Entry[T]] = {}
        self._keys: list[str] = []  # sorted
        self._groups: dict[str, dict[str, None]] = {}
        self._group_of: Callable[[T], str | None] | None = None
        self._listeners: list[Listener[T]] = []

    def grouped(self, group_of: Callable[[T], str | None]) -> Table[T]:
        """Keep an index by this function as well (None: in no group); call it before anything is loaded."""
        self._group_of = group_of
        return self

    def listen(self, listener: Listener[T]) -> None:
        """Call ``listener(key, before, after)`` after each change."""
        self._listeners.append(listener)

    def key(self, *parts: str) -> str:
        return self.prefix + "/".join(parts)

    def get(self, *parts: str) -> Entry[T] | None:
        return self._rows.get("/".join(parts))

    def under(self, *parts: str) -> list[tuple[str, Entry[T]]]:
        """Records whose key begins with these parts, in the order of their keys."""
        start = "/".join(parts)
        # The character behind "/" ends the stretch of keys that begin with the parts and a "/".
        first, end = bisect_left(self._keys, f"{start}/"), bisect_left(self._keys, f"{start}0")
        rows = self._rows
        return [(key, rows[key]) for key in self._keys[first:end]]

    def all(self) -> Iterator[Entry[T]]:
        return iter(self._rows.values())

    def items(self) -> list[tuple[str, Entry[T]]]:
        return list(self._rows.items())

    def groups(self) -> list[str]:
        return list(self._groups)

    def group(self, name: str) -> list[Entry[T]]:
        return [self._rows[key] for key in self._groups.get(name, ())]

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self, change: Change, written: T | None) -> Callable[[], None] | None:
        """Take one change in; returns the call that tells the listeners, to be made when the batch is complete."""
        key = change.key[len(self.prefix) :]
        before = self._rows.get(key)
        after: Entry[T] | None = None
        if change.value is not None:
            after = Entry(written if written is not None else self._decoder.decode(change.value), change.revision)
            self._rows[key] = after
            if before is None:
                insort(self._keys, key)
        elif before is not None:
            del self._rows[key]
            del self._keys[bisect_left(self._keys, key)]
        if self._group_of is not None:
            self._regroup(key, self._group_of(before.value) if before else None, after)
        if not self._listeners:
            return None
        return lambda: self._tell(key, before, after)

    def _regroup(self, key: str, old: str | None, after: Entry[T] | None) -> None:
        new = self._group_of(after.value) if after and self._group_of else None
        if old == new:
            return
        if old is not None:
            members = self._groups[old]
            del members[key]
            if not members:
                del self._groups[old]
        if new is not None:
            self._groups.setdefault(new, {})[key] = None

    def _tell(self, key: str, before: Entry[T] | None, after: Entry[T] | None) -> None:
        for listener in self._listeners:
            listener(key, before, after)


class Records:
    """Every table of the control plane, and the only way to write them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clusters = Table("clusters/", ClusterRecord)
        self.definitions = Table("definitions/", DefinitionRecord)
        self.families = Table("families/", FamilyRecord)
        self.providers = Table("providers/", ProviderRecord)
        self.settings = Table("settings/", AccountSettingRecord)
        self.instances = Table("instances/", InstanceRecord).grouped(lambda record: f"{record.region}/{record.cluster}")
        # Only tasks that have not ended belong to their instance: the others are kept for an hour, and may be many.
        self.services = Table("services/", ServiceRecord)
        self.service_revisions = Table("service-revisions/", ecs.ServiceRevision)
        self.service_deployments = Table("service-deployments/", ecs.ServiceDeployment)
        self.tasks = Table("tasks/", TaskRecord).grouped(
            lambda record: None if record.stopped else record.task.container_instance_arn
        )
        self.tokens = Table("tokens/", TokenRecord)
        self.slots = Table("slots/", SlotRecord)
        self.replicas = Table("replicas/", ReplicaRecord)
        self.keys = Table("keys/", KeyRecord)
        self.pointers = Table("pointers/", PointerRecord)
        self.seals = Table("seals/", SealRecord)
        self.vpcs = Table("vpcs/", VpcRecord)
        self.subnets = Table("subnets/", SubnetRecord)
        self.groups = Table("groups/", GroupRecord)
        self.interfaces = Table("interfaces/", InterfaceRecord).grouped(lambda record: record.instance or None)
        self.uses = Table("uses/", UseRecord)
        self._tables: dict[str, Table[msgspec.Struct]] = {
            table.prefix: table  # type: ignore[misc]
            for table in (
                self.clusters,
                self.definitions,
                self.families,
                self.groups,
                self.instances,
                self.interfaces,
                self.keys,
                self.pointers,
                self.providers,
                self.replicas,
                self.seals,
                self.service_deployments,
                self.service_revisions,
                self.services,
                self.settings,
                self.slots,
                self.subnets,
                self.tasks,
                self.tokens,
                self.uses,
                self.vpcs,
            )
        }
        self._encoder = msgspec.json.Encoder()
        # Records just written by this process, by the identity of their bytes' content: they need no decoding.
        self._written: dict[bytes, msgspec.Struct] = {}
        self.revision = 0
        self.changes = 0
        """How many changes of records this process has seen: more of them is news."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._catching: asyncio.Lock = asyncio.Lock()
        self._caught = 0
        self._companions: list[Companion] = []
        self._followers: dict[str, Callable[[Change], None]] = {}

    def carry(self, companion: Companion, followers: Mapping[str, Callable[[Change], None]]) -> None:
        """Have ``companion(writes)`` say what is to be written with any writes, and the ``followers`` by prefix (or
        whole key) told of changes that belong to no table; call it before anything is loaded."""
        self._companions.append(companion)
        self._followers.update(followers)

    def written(self, write: Put) -> msgspec.Struct | None:
        """The value of a write that ``put`` made and that is about to be committed."""
        return self._written.get(write.value)

    async def raw(self, key: str) -> bytes | None:
        """What the store holds under a whole key."""
        found = await self._store.get(key)
        return found.value if found else None

    async def start(self, nursery: Nursery) -> None:
        """Read everything, then follow the store."""
        page = await self._store.range("")
        self._take(tuple(Change(one.key, one.value, one.mod_revision) for one in page.items), page.revision)
        nursery.start("records", self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                async with self._store.watch("", self.revision) as watch:
                    async for batch in watch:
                        self._take(batch, batch[-1].revision)
            except Compacted:
                log.warning("records fell behind the store, reading everything again")
            await self._reread()

    async def _reread(self) -> None:
        page = await self._store.range("")
        present = {one.key for one in page.items}
        gone = [
            Change(table.prefix + key, None, page.revision)
            for table in self._tables.values()
            for key, _ in table.items()
            if table.prefix + key not in present
        ]
        # Of what is in no table, a removal in the gap is not told: whoever follows it finds out when it reads.
        here = [Change(one.key, one.value, one.mod_revision) for one in page.items if one.mod_revision > self.revision]
        self._take((*gone, *here), page.revision)
        # What was written in the gap and changed again meanwhile never passes by here.
        self._written.clear()

    def _take(self, batch: Sequence[Change], revision: int) -> None:
        told = []
        for change in batch:
            prefix = change.key[: change.key.find("/") + 1]
            table = self._tables.get(prefix)
            if table is None:
                follower = self._followers.get(prefix) or self._followers.get(change.key)
                if follower is not None:
                    follower(change)
                continue
            self.changes += 1
            written = self._written.pop(change.value, None) if change.value is not None else None
            tell = table.apply(change, written)
            if tell is not None:
                told.append(tell)
        self.revision = max(self.revision, revision)
        if self._waiting:
            ready = [future for wanted, future in self._waiting if wanted <= self.revision]
            self._waiting = [pair for pair in self._waiting if pair[0] > self.revision]
            for future in ready:
                if not future.done():
                    future.set_result(None)
        for tell in told:
            tell()

    def definition_of(self, record: TaskRecord) -> DefinitionRecord | None:
        """The definition that a task was made from."""
        name = names.parse_definition(record.task.task_definition_arn or "")
        entry = name and self.definitions.get(record.region, name.family, revision_key(name.revision))
        return entry.value if entry else None

    def put(self, table: Table[T], value: T, *parts: str) -> Put:
        """The write of one record."""
        data = self._encoder.encode(value)
        self._written[data] = value
        return Put(table.key(*parts), data)

    def delete(self, table: Table[T], *parts: str) -> Delete:
        return Delete(table.key(*parts))

    def unchanged(self, table: Table[T], entry: Entry[T] | None, *parts: str) -> Compare:
        """The condition that a record is still what was read (or still absent)."""
        return Compare(table.key(*parts), entry.revision if entry else 0)

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Make the writes durable if the conditions hold; returns when this process's reads show them."""
        companions = [more for companion in self._companions for more in companion(writes)]
        if companions:
            writes = [*writes, *companions]
        try:
            result = await self._store.txn(compares, writes)
        except BaseException:
            self._forget(writes)
            raise
        if not result.succeeded:
            self._forget(writes)
        # A conflict means somebody else's change is on its way here; deciding again before it arrives is useless.
        if result.revision > self.revision:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((result.revision, future))
            await future
        return result

    async def catch_up(self) -> bool:
        """Wait until these tables show what anybody was told before this call; whether that was news.

        A write of our own comes back behind everything that was written before it. Whoever asks while one is on its
        way waits for the next one, which all of them share.
        """
        before, asked = self.changes, self._caught
        async with self._catching:
            if self._caught < asked + 2:
                await self.commit([], [Put(BARRIER_KEY, b"")])
                self._caught += 1
        return self.changes > before

    def _forget(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, Put):
                self._written.pop(write.value, None)
