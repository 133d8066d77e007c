"""A whole store as lines of JSON, and such lines as a whole store: backup, restore, and moving between stores.

    {"sexton-store": 1, "revision": 417, "records": 2}
    {"key": "clusters/eu-west-1/default", "value": "..."}
    {"key": "blob", "base64": "//79"}
    {"records": 2, "sha256": "..."}

The first line says the format, the last proves that all between them is there and as it was written. Revisions are
not kept, because every store counts its own; keys that live by a lease are left out, because whoever holds the lease
is not moved. In flow a store, out flow lines, and back.

Reading is checked to the last line before anything is written. Stores bound a transaction, so that loading takes many
of them: a mark is laid down first and taken away with the last. A load that fails takes back what it wrote; one that is
killed leaves the mark, and ``check_whole`` refuses to work on such a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence

import msgspec

from sexton.store.contract import Compare, Delete, KeyValue, Put, Store, StoreError, Write

FORMAT = 1

MARK = "transfer/loading"
"""There while a store is being loaded; never exported."""

BATCH_KEYS = 1000
"""Keys in one transaction at most; every store takes four times as many."""

BATCH_BYTES = 512 * 1024
"""Keys and values in one transaction; half of what every store takes. A larger record goes alone."""


class TransferError(StoreError):
    """What was to be loaded is not whole, or must not be loaded there."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = msgspec.field(name="sexton-store")
    revision: int
    records: int


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One record; the value as text where it is UTF-8, so that a person can read an export, else as base64."""

    key: str
    value: str | None = None
    base64: bytes | None = None

    @property
    def content(self) -> bytes:
        if self.base64 is not None:
            return self.base64
        return (self.value or "").encode()


class Trailer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: int
    sha256: str


class Loaded(msgspec.Struct, frozen=True):
    """What a load did."""

    records: int
    replaced: int
    """Records that were there before and had to go."""


async def export(store: Store) -> AsyncIterator[bytes]:
    """Every line with its line feed, of the store as it is at this moment."""
    page = await store.range("")
    kept = [item for item in page.items if not item.lease and item.key != MARK]
    digest = hashlib.sha256()
    for line in _lines(kept, page.revision):
        digest.update(line)
        yield line
    yield msgspec.json.encode(Trailer(len(kept), digest.hexdigest())) + b"\n"


async def load(
    store: Store,
    lines: AsyncIterable[bytes],
    *,
    replace: bool = False,
    nobody_works: Callable[[], Awaitable[None]] | None = None,
) -> Loaded:
    """Make the store hold what the lines say, and nothing else.

    ``nobody_works`` raises TransferError when somebody works on the store. It is asked once the mark is there, which
    keeps everybody else from beginning to: so none can slip in between.

    Refuses a store that is not empty, unless told to replace what is there. Raises TransferError before anything
    is written when the lines are not a whole export; StoreError when the store fails, with everything taken back
    that could be.
    """
    records = await _read(lines)
    before = (await store.range("")).items
    if before and not replace:
        raise TransferError(_occupied(before))
    mark = await store.txn([Compare(MARK, _revision_of(before, MARK))], [Put(MARK, b"")])
    if not mark.succeeded:
        raise TransferError("cannot load into this store: another load is going on; wait for it to end")
    condition = Compare(MARK, mark.revision)
    try:
        if nobody_works is not None:
            await nobody_works()
    except BaseException:
        await _write(store, condition, [Delete(MARK)])
        raise
    gone: list[Write] = [Delete(item.key) for item in before if item.key != MARK]
    try:
        for batch in _batches(gone):
            await _write(store, condition, batch)
        for batch in _batches([Put(record.key, record.content) for record in records]):
            await _write(store, condition, batch)
        await _write(store, condition, [Delete(MARK)])
    except BaseException as error:
        if (gone or not await _take_back(store, condition, records)) and isinstance(error, StoreError):
            note = "the store is half loaded and stays marked so: load again with replace"
            raise StoreError(f"cannot finish loading ({error}); {note}") from error
        raise
    return Loaded(len(records), len(gone))


async def check_whole(store: Store) -> None:
    """Refuse a store that a broken-off load has left in pieces; whoever works on a store asks this first."""
    if await store.get(MARK) is not None:
        raise TransferError(
            "cannot use this store: it is being loaded, or a load broke off; "
            "wait for it to end, or load again with replace"
        )


def _lines(records: Sequence[KeyValue], revision: int) -> Iterator[bytes]:
    yield msgspec.json.encode(Header(FORMAT, revision, len(records))) + b"\n"
    for record in records:
        try:
            line = Line(record.key, value=record.value.decode())
        except UnicodeDecodeError:
            line = Line(record.key, base64=record.value)
        yield msgspec.json.encode(line) + b"\n"


async def _read(lines: AsyncIterable[bytes]) -> list[Line]:
    """All records of a whole export, or TransferError naming the line that is wrong."""
    digest = hashlib.sha256()
    header: Header | None = None
    records: dict[str, Line] = {}
    last = b""
    number = 0
    # One line is kept back: whether it is a record or the trailer is known when nothing follows.
    async for line in lines:
        if number == 1:
            header = _header(last)
        elif number > 1:
            record = _record(last, number)
            if record.key in records:
                raise TransferError(f"cannot load: line {number} holds key {record.key!r} a second time; export again")
            records[record.key] = record
        digest.update(last)
        last, number = line, number + 1
    if header is None:
        header = _header(last)
        raise TransferError("cannot load: the export ends after its first line; copy it again")
    try:
        trailer = msgspec.json.decode(last, type=Trailer)
    except msgspec.MsgspecError:
        raise TransferError(
            f"cannot load: the export is cut off, its last line ({number}) is no checksum; copy it again"
        ) from None
    if not trailer.records == header.records == len(records):
        raise TransferError(
            f"cannot load: the export should hold {header.records} records and holds {len(records)}; copy it again"
        )
    if trailer.sha256 != digest.hexdigest():
        raise TransferError("cannot load: the export was changed, its checksum does not match; copy it again")
    return list(records.values())


def _header(line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError:
        raise TransferError("cannot load: this is no export of a Sexton store; name a file that export wrote") from None
    if header.format != FORMAT:
        raise TransferError(
            f"cannot load: the export has format {header.format} and this Sexton knows {FORMAT}; "
            "use the Sexton that wrote it"
        )
    return header


def _record(line: bytes, number: int) -> Line:
    try:
        record = msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise TransferError(f"cannot load: line {number} is damaged ({error}); copy the export again") from None
    if not record.key or (record.value is None) == (record.base64 is None):
        raise TransferError(f"cannot load: line {number} is no record; copy the export again")
    return record


def _batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size = 0
    for write in writes:
        weight = len(write.key.encode()) + (len(write.value) if isinstance(write, Put) else 0)
        if batch and (len(batch) == BATCH_KEYS or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += weight
    if batch:
        yield batch


async def _write(store: Store, condition: Compare, writes: Sequence[Write]) -> None:
    if not (await store.txn([condition], writes)).succeeded:
        raise TransferError("cannot go on loading: somebody else began to load this store; load again with replace")


async def _take_back(store: Store, condition: Compare, records: Sequence[Line]) -> bool:
    """Make the store as empty as it was; whether that worked."""
    try:
        for batch in _batches([Delete(record.key) for record in records]):
            await _write(store, condition, batch)
        await _write(store, condition, [Delete(MARK)])
    except StoreError:
        return False
    return True


def _revision_of(items: Sequence[KeyValue], key: str) -> int:
    return next((item.mod_revision for item in items if item.key == key), 0)


def _occupied(items: Sequence[KeyValue]) -> str:
    if any(item.key == MARK for item in items):
        return "cannot load into this store: a load of it broke off or is going on; load again with replace"
    return (
        f"cannot load into this store: it holds {len(items)} records, the first is {items[0].key!r}; "
        "name an empty one, or ask to replace everything in it"
    )
