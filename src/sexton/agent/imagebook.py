"""Which images of this host are ours: those that this agent pulled, since when, and when a task used each last.

Kept by image id, since names move. A pull is written down at once; the time of the last use is written along with the
next clean-up, since losing it makes an image no more than a little older. What is not in the book was here before us
or was made by somebody else, and is left alone.
"""

from __future__ import annotations

import logging

import msgspec

from sexton.store.contract import Delete, Put, Store, StoreError, Write
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

_IMAGES = "images/"


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One image: the references it was pulled by, and when."""

    id: str
    names: tuple[str, ...] = ()
    size: int = 0
    pulled_at: float = 0.0
    used_at: float = 0.0


class ImageBook:
    """What this agent pulled. Without a store it lasts as long as the process."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._records: dict[str, ImageRecord] = {}
        self._dirty: set[str] = set()

    async def load(self) -> None:
        """Read what was written. A record that cannot be read is an image that is not ours any more."""
        if self._store is None:
            return
        try:
            rows = (await self._store.range(_IMAGES)).items
        except StoreError as error:
            log.warning("pulled images are not known", extra={"reason": str(error)})
            return
        for row in rows:
            try:
                record = msgspec.json.decode(row.value, type=ImageRecord)
            except UNREADABLE as error:
                log.warning("record of an image cannot be read", extra={"key": row.key, "reason": str(error)})
                continue
            self._records[record.id] = record

    def records(self) -> dict[str, ImageRecord]:
        return dict(self._records)

    def was_pulled(self, ref: str) -> bool:
        """Whether this agent pulled an image by this reference."""
        return any(ref in record.names for record in self._records.values())

    async def pulled(self, ref: str, image_id: str, size: int, now: float) -> None:
        """An image came by this reference; an older one of the same name has lost it."""
        for other in list(self._records.values()):
            if other.id != image_id and ref in other.names:
                names = tuple(name for name in other.names if name != ref)
                self._put(msgspec.structs.replace(other, names=names))
        known = self._records.get(image_id) or ImageRecord(id=image_id)
        names = known.names if ref in known.names else (*known.names, ref)
        self._put(msgspec.structs.replace(known, names=names, size=size, pulled_at=now, used_at=now))
        await self.flush()

    def used(self, image_id: str, now: float) -> None:
        known = self._records.get(image_id)
        if known is not None:
            self._put(msgspec.structs.replace(known, used_at=now))

    async def forget(self, image_id: str) -> None:
        if self._records.pop(image_id, None) is not None:
            self._dirty.add(image_id)
            await self.flush()

    async def flush(self) -> None:
        """Write what has changed; what cannot be written now is written with the next."""
        if self._store is None or not self._dirty:
            return
        batch, self._dirty = self._dirty, set()
        writes: list[Write] = []
        for image_id in batch:
            record = self._records.get(image_id)
            key = _IMAGES + image_id
            writes.append(Delete(key) if record is None else Put(key, msgspec.json.encode(record)))
        try:
            await self._store.txn([], writes)
        except BaseException as error:
            self._dirty |= batch
            if not isinstance(error, StoreError):
                raise
            log.warning("pulled images cannot be saved", extra={"reason": str(error)})

    def _put(self, record: ImageRecord) -> None:
        self._records[record.id] = record
        self._dirty.add(record.id)
