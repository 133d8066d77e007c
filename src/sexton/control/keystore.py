"""The access keys in the store: made, listed, switched off, replaced; the same for every control plane over it.

    none in the store -> the first control plane makes its own, an administrator's -> a copy in each one's keys file
    create -> the secret is shown this once -> used -> rotate: a new key now, the old one ends after a while
                                                    -> disable, enable, delete: at once, on every replica

The store holds the secrets as they are, since a signature cannot be verified without: whoever may write to the store
can start any task on any host anyway. Every change is seen by all replicas through the store's watch, without a
restart. The control plane's own key can be rotated and not deleted: somebody must be let in.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sexton.cloud.credentials import Credentials
from sexton.control.context import CONFLICT_TRIES, busy, invalid
from sexton.control.keys import Key, Keys, KeysError, new_key, read_keys, write_keys
from sexton.control.records import Entry, KeyRecord, PointerRecord, Records
from sexton.core import names
from sexton.core.roles import Role
from sexton.kit.supervise import Nursery
from sexton.store.contract import Put
from sexton.wire.errors import ResourceInUseException, ResourceNotFoundException

log = logging.getLogger(__name__)

OWN = "own-key"

MOST_KEYS = 10_000
"""More are a mistake: each costs memory in every replica."""

GRACE_SECONDS = 3600.0
"""How long the old key is still accepted after a rotation, unless its owner says otherwise."""

LONGEST_GRACE_SECONDS = 30 * 86400.0
LONGEST_NAME = 128


class Keystore:
    """All keys of the control plane, and its own."""

    def __init__(self, records: Records, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._records = records
        self._path = path
        self._clock = clock

    @property
    def own(self) -> Key:
        """The administrator's key that this control plane made for itself."""
        entry = self._own()
        assert entry is not None, "the key store has been opened"
        return Key(access_key_id=entry.value.access_key_id, secret_access_key=entry.value.secret_access_key)

    def find(self, access_key_id: str) -> Credentials | None:
        """The credentials of a key that is accepted now."""
        entry = self._records.keys.get(access_key_id)
        if entry is None or entry.value.disabled:
            return None
        key = entry.value
        if key.ends_at and key.ends_at <= self._clock():
            return None
        return Credentials(key.access_key_id, key.secret_access_key)

    async def open(self, nursery: Nursery) -> None:
        """Make the first key if there is none, and keep the file as the store says from now on."""
        file = read_keys(self._path)
        if self._own() is None:
            await self._begin(file)
        if file is None or file.keys != (self.own,):
            write_keys(self._path, Keys(keys=(self.own,)))

        def renew(*_: object) -> None:
            nursery.start("keys-file", self._renew_file())

        self._records.pointers.listen(renew)

    def _own(self) -> Entry[KeyRecord] | None:
        pointer = self._records.pointers.get(OWN)
        return self._records.keys.get(pointer.value.to) if pointer else None

    async def _begin(self, file: Keys | None) -> None:
        """The first start over this store. Keys that a file already holds stay what they are."""
        records = self._records
        found = file.keys if file else (new_key(),)
        writes: list[Put] = []
        for index, key in enumerate(found):
            record = KeyRecord(
                access_key_id=key.access_key_id,
                secret_access_key=key.secret_access_key,
                role=Role.ADMIN,
                name="control plane" if index == 0 else "keys file",
                created_at=self._clock(),
                own=index == 0,
            )
            writes.append(records.put(records.keys, record, record.access_key_id))
        pointer = records.pointers.get(OWN)
        writes.append(records.put(records.pointers, PointerRecord(to=found[0].access_key_id), OWN))
        # Of several that start at once, one makes the key and the others find it.
        await records.commit([records.unchanged(records.pointers, pointer, OWN)], writes)

    async def _renew_file(self) -> None:
        try:
            await asyncio.to_thread(write_keys, self._path, Keys(keys=(self.own,)))
        except KeysError as error:
            log.error("keys file not renewed", extra={"reason": str(error)})

    def listing(self) -> list[KeyRecord]:
        """Every key, the oldest first."""
        return sorted((one.value for one in self._records.keys.all()), key=lambda one: one.created_at)

    async def create(self, role: str, name: str, instance: str, by: str) -> KeyRecord:
        """A new key; its secret is to be shown now and never again."""
        if role not in set(Role):
            raise invalid(f"The role must be one of: {', '.join(Role)}.")
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise invalid(f"The name must have at most {LONGEST_NAME} characters, all of them printable.")
        if instance and role != Role.AGENT:
            raise invalid("Only a key with the role agent belongs to a container instance.")
        if instance and (names.parse_instance(instance) is None or not names.region_of(instance)):
            raise invalid("The container instance must be given by its whole ARN.")
        if len(self._records.keys) >= MOST_KEYS:
            raise invalid(f"There are {MOST_KEYS} keys already; delete some first.")
        record = _made(role, name, instance, by, self._clock())
        await self._records.commit([], [self._records.put(self._records.keys, record, record.access_key_id)])
        log.info("key made", extra={"access_key": record.access_key_id, "role": role, "by": by})
        return record

    async def switch(self, access_key_id: str, *, disabled: bool, by: str) -> KeyRecord:
        """Stop accepting a key, or accept it again."""
        records = self._records
        for _ in range(CONFLICT_TRIES):
            entry = self._known(access_key_id)
            if disabled:
                _not_own(entry.value, "disabled")
            after = msgspec.structs.replace(entry.value, disabled=disabled)
            unchanged = records.unchanged(records.keys, entry, access_key_id)
            if (await records.commit([unchanged], [records.put(records.keys, after, access_key_id)])).succeeded:
                log.info("key switched", extra={"access_key": access_key_id, "disabled": disabled, "by": by})
                return after
        raise busy(f"key {access_key_id}")

    async def delete(self, access_key_id: str, by: str) -> KeyRecord:
        """Forget a key."""
        records = self._records
        for _ in range(CONFLICT_TRIES):
            entry = self._known(access_key_id)
            _not_own(entry.value, "deleted")
            unchanged = records.unchanged(records.keys, entry, access_key_id)
            if (await records.commit([unchanged], [records.delete(records.keys, access_key_id)])).succeeded:
                log.info("key deleted", extra={"access_key": access_key_id, "by": by})
                return entry.value
        raise busy(f"key {access_key_id}")

    async def rotate(self, access_key_id: str, grace: float, by: str) -> KeyRecord:
        """A key in the place of another, which ends after ``grace`` seconds."""
        if not 0 <= grace <= LONGEST_GRACE_SECONDS:
            raise invalid(f"The grace must be between 0 and {LONGEST_GRACE_SECONDS:g} seconds.")
        records = self._records
        for _ in range(CONFLICT_TRIES):
            entry = self._known(access_key_id)
            old = entry.value
            if old.disabled or old.successor:
                state = "is disabled" if old.disabled else f"was replaced by {old.successor}"
                raise invalid(f"The key {access_key_id} {state}, so there is nothing to rotate.")
            now = self._clock()
            new = msgspec.structs.replace(_made(old.role, old.name, old.instance, by, now), own=old.own)
            ending = msgspec.structs.replace(old, ends_at=now + grace, successor=new.access_key_id, own=False)
            compares = [records.unchanged(records.keys, entry, access_key_id)]
            writes = [
                records.put(records.keys, ending, access_key_id),
                records.put(records.keys, new, new.access_key_id),
            ]
            if old.own:
                pointer = records.pointers.get(OWN)
                compares.append(records.unchanged(records.pointers, pointer, OWN))
                writes.append(records.put(records.pointers, PointerRecord(to=new.access_key_id), OWN))
            if (await records.commit(compares, writes)).succeeded:
                log.info("key rotated", extra={"access_key": access_key_id, "successor": new.access_key_id, "by": by})
                return new
        raise busy(f"key {access_key_id}")

    def _known(self, access_key_id: str) -> Entry[KeyRecord]:
        entry = self._records.keys.get(access_key_id)
        if entry is None:
            raise ResourceNotFoundException(f"There is no key {access_key_id}.")
        return entry


async def sweep(records: Records, now: float) -> int:
    """Forget keys whose time is over; returns how many."""
    gone = 0
    for key, entry in records.keys.items():
        if entry.value.ends_at and entry.value.ends_at <= now:
            unchanged = records.unchanged(records.keys, entry, key)
            gone += (await records.commit([unchanged], [records.delete(records.keys, key)])).succeeded
    return gone


def _made(role: str, name: str, instance: str, by: str, now: float) -> KeyRecord:
    key = new_key()
    return KeyRecord(
        access_key_id=key.access_key_id,
        secret_access_key=key.secret_access_key,
        role=role,
        name=name,
        instance=instance,
        created_at=now,
        created_by=by,
    )


def _not_own(key: KeyRecord, what: str) -> None:
    if key.own:
        raise ResourceInUseException(
            f"The key {key.access_key_id} is the control plane's own and cannot be {what}; rotate it instead."
        )
