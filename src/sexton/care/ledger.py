"""The caretaker's memory of findings and of what was done about them, in one SQLite file.

    finding/FINGERPRINT             a record: the finding as last seen, its state, its mute
    history/FINGERPRINT/NUMBER      what happened to it, in order; the oldest in the middle make room
    outbox/TIME-FINGERPRINT-NUMBER  an event that somebody is still to be told (only where there is such a somebody)
    eye/PROBE                       whether a probe can see, and since when
    action/ID                       what a remedy means to do, did, and proved; written before anything is touched

Whatever belongs together is one transaction, so a process that dies leaves the ledger as it was before or after it.
The store's lock lets one process use the file: the daemon, or, when none runs, the command that was typed. Writes
outlive the process but not the last moments before a power cut: the host itself can tell these things again.

The rules are in ``core/ledger.py``; this module reads, writes and hands out what is worth telling.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from sexton.core.action import Action, Did, Outcome, Plan, Proof
from sexton.core.ledger import (
    Changed,
    Delivery,
    Entry,
    Eye,
    Kind,
    Look,
    Mute,
    Record,
    dropped_entries,
    file_look,
    forgotten,
    muted,
    mutes_over,
    orphans,
    unmuted,
    written,
)
from sexton.store.contract import Delete, Durability, Put, Store, StoreError, Write
from sexton.store.opening import open_store

# Actions are kept as long as the policy looks back on them, and some more for people.
ACTIONS_KEPT = 200
# A finding that merely still holds is written down again after this long: its last sight is then that old at most.
REFRESH = 60.0
# Events that wait for a receiver that is away; the oldest make room.
OUTBOX_KEPT = 200
# Keys that are read or deleted at once.
PAGE = 500

Told = Callable[[Record, Entry], None]
"""Is handed each entry as soon as it is durable; it must not block."""


class UnknownFinding(LookupError):  # noqa: N818 - the message is for a person
    """There is no such finding on record."""


def ledger_file(data_dir: Path) -> Path:
    return data_dir / "care" / "ledger.db"


def _finding_key(fingerprint: str) -> str:
    return f"finding/{quote(fingerprint, safe='')}"


def _history_prefix(fingerprint: str) -> str:
    return f"history/{quote(fingerprint, safe='')}/"


def _entry_key(fingerprint: str, number: int) -> str:
    return f"{_history_prefix(fingerprint)}{number:012d}"


def _outbox_key(record: Record, entry: Entry, number: int) -> str:
    return f"outbox/{int(entry.at * 1000):014d}-{quote(record.fingerprint, safe='')}-{number}"


class Ledger:
    """Belongs to the event loop that opened it. ``told`` hears of every new entry. While the disk takes nothing, looks
    are filed in memory only and ``trouble`` says so; nothing is done to the host that was not written down before."""

    def __init__(
        self,
        store: Store,
        records: dict[str, Record],
        actions: dict[str, Action],
        eyes: dict[str, Eye],
        told: Told | None,
        outbox: bool,
    ) -> None:
        self._store = store
        self._records = records
        self._eyes = eyes
        self._saved = {fingerprint: record.last_seen for fingerprint, record in records.items()}
        self._actions = actions
        self._told = told
        self._outbox = outbox
        # Why the last write did not become durable; empty when it did.
        self.trouble = ""

    @property
    def records(self) -> tuple[Record, ...]:
        """All findings on record: the open ones first, the worst and then the newest of them first."""
        return tuple(
            sorted(
                self._records.values(),
                key=lambda one: (not one.open, one.finding.severity, -one.opened, one.fingerprint),
            )
        )

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was done, oldest first."""
        return tuple(sorted(self._actions.values(), key=lambda one: (one.begun, one.id)))

    @property
    def eyes(self) -> tuple[Eye, ...]:
        """How each probe's last look ended."""
        return tuple(self._eyes[name] for name in sorted(self._eyes))

    def find(self, wanted: str) -> Record:
        """The finding of that fingerprint, or the only one whose fingerprint begins so."""
        if wanted in self._records:
            return self._records[wanted]
        near = sorted(name for name in self._records if name.startswith(wanted)) if wanted else []
        if len(near) == 1:
            return self._records[near[0]]
        if near:
            raise UnknownFinding(f"'{wanted}' could be any of: {', '.join(near[:5])}")
        raise UnknownFinding(f"there is no finding '{wanted}' on record; 'sexton findings --all' lists what is")

    async def history(self, fingerprint: str) -> tuple[Entry, ...]:
        """What happened to a finding, in order."""
        page = await self._store.range(_history_prefix(fingerprint))
        return tuple(msgspec.json.decode(item.value, type=Entry) for item in page.items)

    async def file(self, look: Look, now: float, only: str | None = None) -> tuple[Changed, ...]:
        """Write down what one look found; with ``only``, as far as it concerns that finding."""
        look = msgspec.structs.replace(look, first=look.probe not in self._eyes)
        records: Mapping[str, Record] = self._records
        if only is not None:
            records = {only: self._records[only]} if only in self._records else {}
            mine = tuple(one for one in look.findings if one.fingerprint == only)
            look = msgspec.structs.replace(look, findings=mine)
        return await self._write(file_look(records, look, now), now)

    async def watch_eye(self, eye: Eye) -> None:
        """Write down how a probe's look ended, when that has changed."""
        was = self._eyes.get(eye.probe)
        if was is not None and was.sight is eye.sight:
            self._eyes[eye.probe] = msgspec.structs.replace(eye, since=was.since)
            return
        self._eyes[eye.probe] = eye
        with contextlib.suppress(StoreError):  # the same trouble is told when findings are filed
            await self._store.txn((), (Put(f"eye/{quote(eye.probe, safe='')}", msgspec.json.encode(eye)),))

    async def advise(self, fingerprint: str, kind: Kind, says: str, now: float) -> None:
        """Write down once an episode what a remedy would do, or why none may."""
        record = self._records.get(fingerprint)
        if record is None or record.advised == record.opened:
            return
        record = msgspec.structs.replace(record, advised=record.opened)
        await self._write((written(record, Entry(at=now, kind=kind, says=says)),), now)

    async def tidy(self, probes: frozenset[str], now: float) -> None:
        """End mutes whose time is over, close what nobody looks for any more, forget what is long gone."""
        await self._write(mutes_over(self._records.values(), now), now)
        await self._write(orphans(self._records.values(), probes, now), now)
        gone = forgotten(self._records.values(), now)
        for fingerprint in gone:
            await self._forget(fingerprint)
        surplus = [action for action in self.actions if action.ended is not None][:-ACTIONS_KEPT]
        for action in surplus:
            await self._store.txn((), (Delete(f"action/{action.id}"),))
            del self._actions[action.id]
        waiting = (await self._store.range("outbox/")).items
        for item in waiting[: max(0, len(waiting) - OUTBOX_KEPT) if self._outbox else None]:
            await self._store.txn((), (Delete(item.key),))
        for name in [name for name in self._eyes if name not in probes]:
            await self._store.txn((), (Delete(f"eye/{quote(name, safe='')}"),))
            del self._eyes[name]

    async def mute(self, fingerprint: str, mute: Mute) -> Record:
        await self._write((muted(self.find(fingerprint), mute),), mute.since)
        return self.find(fingerprint)

    async def unmute(self, fingerprint: str, who: str, now: float) -> Record:
        record = self.find(fingerprint)
        if record.mute is None:
            raise UnknownFinding(f"{record.fingerprint} is not muted")
        await self._write((unmuted(record, now, f"by {who}"),), now)
        return self.find(fingerprint)

    async def note(self, fingerprint: str, kind: Kind, says: str, now: float) -> None:
        """Add a line to a finding's history; the same line twice in a row is one."""
        record = self._records.get(fingerprint)
        if record is None:
            return
        last = (await self.history(fingerprint))[-1:]
        if last and last[0].kind is kind and last[0].says == says:
            return
        await self._write((written(record, Entry(at=now, kind=kind, says=says)),), now)

    async def outbox(self) -> tuple[Delivery, ...]:
        """Events that are still to be told, oldest first."""
        page = await self._store.range("outbox/")
        return tuple(msgspec.json.decode(item.value, type=Delivery) for item in page.items)

    async def delivered(self, ident: str) -> None:
        """Somebody took this event, or it is given up."""
        await self._store.txn((), (Delete(ident),))

    async def begin(self, ident: str, plan: Plan, who: str, why: str, now: float) -> Action:
        """Write down what is about to be done. Only then may anything be touched."""
        action = Action(id=ident, plan=plan, who=who, why=why, begun=now)
        await self._act(action, Kind.ACTING, f"{plan.remedy}: {plan.says}; asked for by {who}: {why}", now)
        return action

    async def step(self, action: Action, did: Did, now: float) -> Action:
        """Write down that a step is done."""
        after = msgspec.structs.replace(action, done=(*action.done, did))
        await self._act(after, Kind.STEP, f"{did.key}: {did.says}", now)
        return after

    async def end(self, action: Action, outcome: Outcome, says: str, now: float, proof: Proof | None = None) -> Action:
        """Write down how it ended, and what was proved."""
        after = msgspec.structs.replace(action, outcome=outcome, ended=now, says=says)
        if proof is not None:
            await self.note(action.plan.fingerprint, Kind.PROVED, proof.says, now)
        kind = Kind.DONE if outcome is Outcome.DONE else Kind.FAILED
        await self._act(after, kind, f"{action.plan.remedy}: {says}", now)
        return after

    async def _act(self, action: Action, kind: Kind, says: str, now: float) -> None:
        writes: list[Write] = [Put(f"action/{action.id}", msgspec.json.encode(action))]
        record = self._records.get(action.plan.fingerprint)
        entries: tuple[Entry, ...] = ()
        if record is not None:
            told = kind in (Kind.DONE, Kind.FAILED) and not record.is_muted(now)
            changed = written(record, Entry(at=now, kind=kind, says=says, told=told))
            writes += self._writes(changed)
            record, entries = changed.record, changed.entries
        await self._store.txn((), writes)
        self._actions[action.id] = action
        if record is not None:
            self._keep(Changed(record, entries))

    async def _write(self, changes: Iterable[Changed], now: float) -> tuple[Changed, ...]:
        """Make changes durable, all of them or none; true here and known they are in any case."""
        changes = tuple(changes)
        lasting = [one for one in changes if one.entries or self._worth_writing(one.record, now)]
        if lasting:
            try:
                await self._store.txn((), [write for one in lasting for write in self._writes(one)])
                self._saved.update((one.record.fingerprint, one.record.last_seen) for one in lasting)
                self.trouble = ""
            except StoreError as error:
                # A full disk must not make the caretaker blind or have it tell the same thing for ever.
                self.trouble = str(error)
        for changed in changes:
            self._keep(changed)
        return changes

    def _worth_writing(self, record: Record, now: float) -> bool:
        """Has more changed than that it was seen once more?"""
        was = self._records.get(record.fingerprint)
        if was is None or _standing(was) != _standing(record):
            return True
        return not 0 <= record.last_seen - self._saved.get(record.fingerprint, 0.0) < REFRESH

    def _writes(self, changed: Changed) -> list[Write]:
        record = changed.record
        first = record.written - len(changed.entries)
        writes: list[Write] = [Put(_finding_key(record.fingerprint), msgspec.json.encode(record))]
        writes += [
            Put(_entry_key(record.fingerprint, first + number), msgspec.json.encode(entry))
            for number, entry in enumerate(changed.entries)
        ]
        if self._outbox:
            for number, entry in enumerate(changed.entries):
                if entry.told:
                    ident = _outbox_key(record, entry, first + number)
                    writes.append(Put(ident, msgspec.json.encode(Delivery(ident, record, entry))))
        writes += [Delete(_entry_key(record.fingerprint, number)) for number in dropped_entries(first, record.written)]
        return writes

    def _keep(self, changed: Changed) -> None:
        self._records[changed.record.fingerprint] = changed.record
        if self._told is not None:
            for entry in changed.entries:
                self._told(changed.record, entry)

    async def _forget(self, fingerprint: str) -> None:
        history = await self._store.range(_history_prefix(fingerprint))
        await self._store.txn(
            (), [Delete(_finding_key(fingerprint)), *(Delete(item.key) for item in history.items[:PAGE])]
        )
        self._records.pop(fingerprint, None)
        self._saved.pop(fingerprint, None)


def _standing(record: Record) -> tuple[object, ...]:
    """What of a record is worth a write of its own."""
    return record.open, record.absent_since, record.blind_since, tuple(record.views)


@contextlib.asynccontextmanager
async def open_ledger(path: Path, told: Told | None = None, *, outbox: bool = False) -> AsyncIterator[Ledger]:
    """Use the ledger file; StoreError when it cannot be opened or another process uses it."""
    store = await open_store(f"sqlite://{path}", durability=Durability.NORMAL, history=False)
    try:
        yield await read_ledger(store, told, outbox=outbox)
    finally:
        await store.close()


async def read_ledger(store: Store, told: Told | None = None, *, outbox: bool = False) -> Ledger:
    """What is on record in this store."""
    try:
        records = [msgspec.json.decode(item.value, type=Record) for item in (await store.range("finding/")).items]
        actions = [msgspec.json.decode(item.value, type=Action) for item in (await store.range("action/")).items]
        eyes = [msgspec.json.decode(item.value, type=Eye) for item in (await store.range("eye/")).items]
    except msgspec.MsgspecError as error:
        raise StoreError(f"cannot read the caretaker's ledger: {error}; move it aside to begin anew") from None
    return Ledger(
        store,
        {one.fingerprint: one for one in records},
        {one.id: one for one in actions},
        {one.probe: one for one in eyes},
        told,
        outbox,
    )
