"""A store as lines and back, between every two kinds of store; what is not whole never becomes a store."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from contract.store_backends import BACKENDS
from sexton.store.contract import Compare, OutcomeUnknown, Put, Store, StoreError, TxnResult, Write
from sexton.store.transfer import MARK, TransferError, check_whole, export, load

Open = Callable[[str, str], Awaitable[Store]]

CONTENT = {
    "a": b"",
    "clusters/default": b'{"name": "caf\xc3\xa9"}',
    "bytes/\0\U0010ffff": bytes(range(256)),
    "line": b"one\ntwo\r\n",
    "large": b"x" * 700_000,
    **{f"many/{number:05}": b"%d" % number for number in range(2500)},
}


@pytest.fixture
async def opening(tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[Store] = []

    async def open_one(backend: str, name: str) -> Store:
        opened.append(await BACKENDS[backend].open(tmp_path / name))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


async def fill(store: Store) -> None:
    for key, value in CONTENT.items():
        if "/" not in key:
            await store.txn([], [Put(key, value)])
    await store.txn([], [Put(key, value) for key, value in CONTENT.items() if "/" in key])


async def content(store: Store) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.range("")).items}


async def exported(store: Store) -> list[bytes]:
    return [line async for line in export(store)]


async def given(lines: Sequence[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


async def small(opening: Open) -> list[bytes]:
    store = await opening("sqlite", "small")
    await store.txn([], [Put("a", b"1"), Put("b", b"\xff"), Put("c", b"3")])
    return await exported(store)


def sealed(*lines: str) -> list[bytes]:
    """Lines with a true checksum, as somebody would make who edits an export and its end."""
    body = [line.encode() + b"\n" for line in lines]
    digest = hashlib.sha256(b"".join(body)).hexdigest()
    return [*body, json.dumps({"records": len(body) - 1, "sha256": digest}).encode() + b"\n"]


async def test_from_one_machine_to_a_cluster_and_back_nothing_changes(opening: Open) -> None:
    here, there, back = [await opening(kind, name) for kind, name in (("sqlite", "1"), ("etcd", "2"), ("sqlite", "3"))]
    await fill(here)
    first = await exported(here)
    loaded = await load(there, given(first))
    second = await exported(there)
    await load(back, given(second))

    assert (loaded.records, loaded.replaced) == (len(CONTENT), 0)
    assert await content(there) == await content(back) == CONTENT
    assert first[1:-1] == second[1:-1]
    await check_whole(back)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_an_export_is_of_one_moment_however_long_it_takes(opening: Open, backend: str) -> None:
    store = await opening(backend, "store")
    await store.txn([], [Put(f"k/{number}", b"before") for number in range(100)])
    lines = []
    async for line in export(store):
        lines.append(line)
        if len(lines) == 50:
            await store.txn([], [Put(f"k/{number}", b"after") for number in range(200)])
    again = await opening(backend, "again")
    await load(again, given(lines))

    assert set((await content(again)).values()) == {b"before"}


async def test_an_export_can_be_read_by_a_person(opening: Open) -> None:
    header, *records, trailer = [json.loads(line) for line in await small(opening)]

    assert (header["sexton-store"], header["records"], header["revision"]) == (1, 3, 1)
    assert records == [{"key": "a", "value": "1"}, {"key": "b", "base64": "/w=="}, {"key": "c", "value": "3"}]
    assert trailer["records"] == 3


async def test_what_lives_by_a_lease_is_not_moved(opening: Open) -> None:
    store = await opening("sqlite", "store")
    lease = await store.grant(10.0, now=0.0)
    await store.txn([], [Put("leader", b"me", lease), Put("kept", b"")])
    again = await opening("sqlite", "again")
    await load(again, given(await exported(store)))

    assert await content(again) == {"kept": b""}


async def test_an_empty_store_is_an_export_too(opening: Open) -> None:
    again = await opening("sqlite", "again")
    loaded = await load(again, given(await exported(await opening("sqlite", "empty"))))

    assert (loaded.records, await content(again)) == (0, {})


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_a_store_that_is_not_empty_is_refused_or_replaced_whole(opening: Open, backend: str) -> None:
    lines = await small(opening)
    target = await opening(backend, "target")
    await target.txn([], [Put("old", b""), Put("a", b"old")])

    with pytest.raises(TransferError, match=r"it holds 2 records, the first is 'a'; name an empty one, or ask"):
        await load(target, given(lines))
    assert await content(target) == {"old": b"", "a": b"old"}
    loaded = await load(target, given(lines), replace=True)
    assert (loaded.records, loaded.replaced) == (3, 2)
    assert await content(target) == {"a": b"1", "b": b"\xff", "c": b"3"}


@pytest.mark.parametrize("cut", range(5))
async def test_an_export_cut_off_after_any_line_is_refused(opening: Open, cut: int) -> None:
    lines = await small(opening)
    target = await opening("sqlite", "target")

    with pytest.raises(TransferError, match=r"cannot load: .*(copy it again|a file that export wrote)"):
        await load(target, given(lines[:cut]))
    assert await content(target) == {}


async def test_no_cut_within_a_line_and_no_flipped_bit_is_taken_for_an_export(opening: Open) -> None:
    whole = b"".join(await small(opening))
    target = await opening("sqlite", "target")
    broken = [whole[:end] for end in range(0, len(whole) - 1, 7)]
    broken += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole) - 1, 3)]
    for text in broken:
        with pytest.raises(TransferError, match="cannot load"):
            await load(target, given(text.splitlines(keepends=True)))

    assert await content(target) == {}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (sealed('{"sexton-store":2,"revision":1,"records":0}'), "has format 2 and this Sexton knows 1"),
        (sealed('{"hello":"world"}'), "name a file that export wrote"),
        (sealed('{"sexton-store":1,"revision":1,"records":2}', '{"key":"a","value":""}'), "should hold 2 records"),
        (
            sealed('{"sexton-store":1,"revision":1,"records":2}', *['{"key":"a","value":""}'] * 2),
            "line 3 holds key 'a' a second time",
        ),
        (sealed('{"sexton-store":1,"revision":1,"records":1}', '{"key":"a"}'), "line 2 is no record"),
        (sealed('{"sexton-store":1,"revision":1,"records":1}', '{"key":"","value":""}'), "line 2 is no record"),
        (sealed('{"sexton-store":1,"revision":1,"records":1}', '{"key":"a","more":""}'), "line 2 is damaged"),
        ([b"\x00\xff" * 40, b"elf"], "name a file that export wrote"),
    ],
)
async def test_what_only_looks_like_an_export_is_refused_with_the_place(
    opening: Open, lines: list[bytes], words: str
) -> None:
    target = await opening("sqlite", "target")

    with pytest.raises(TransferError, match=words):
        await load(target, given(lines))
    assert await content(target) == {}


class Failing:
    """A store whose transactions fail from one on, until it is repaired."""

    def __init__(self, store: Store, good: int, bad: int) -> None:
        self._store = store
        self._good, self._bad = good, bad

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        self._good -= 1
        if self._good < 0 <= self._good + self._bad:
            raise OutcomeUnknown("cannot tell what happened; read again")
        return await self._store.txn(compares, writes)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_a_load_that_fails_half_way_takes_everything_back(opening: Open, backend: str) -> None:
    source = await opening("sqlite", "source")
    await fill(source)
    target = await opening(backend, "target")

    with pytest.raises(OutcomeUnknown):
        await load(Failing(target, good=3, bad=1), given(await exported(source)))  # type: ignore[arg-type]
    assert await content(target) == {}
    await load(target, given(await exported(source)))
    assert await content(target) == CONTENT


@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_a_load_that_cannot_be_taken_back_leaves_a_store_that_says_so(opening: Open, backend: str) -> None:
    source = await opening("sqlite", "source")
    await fill(source)
    target = await opening(backend, "target")

    with pytest.raises(StoreError, match="half loaded and stays marked so: load again with replace"):
        await load(Failing(target, good=3, bad=1000), given(await exported(source)))  # type: ignore[arg-type]
    with pytest.raises(TransferError, match="a load broke off"):
        await check_whole(target)
    with pytest.raises(TransferError, match="load again with replace"):
        await load(target, given(await exported(source)))
    await load(target, given(await exported(source)), replace=True)
    await check_whole(target)
    assert await content(target) == CONTENT


async def test_a_load_that_is_given_up_takes_everything_back(opening: Open) -> None:
    source = await opening("sqlite", "source")
    await fill(source)
    target = await opening("sqlite", "target")
    lines = await exported(source)
    loading = asyncio.ensure_future(load(target, given(lines)))
    async with target.watch("many/", target.revision) as watch:
        await anext(aiter(watch))
        loading.cancel()
        await asyncio.wait([loading])

    assert loading.cancelled()
    assert await content(target) == {}


async def test_of_two_loads_at_once_one_is_refused(opening: Open) -> None:
    lines = await small(opening)
    target = await opening("sqlite", "target")
    results = await asyncio.gather(*(load(target, given(lines)) for _ in range(2)), return_exceptions=True)

    assert sorted(type(result).__name__ for result in results) == ["Loaded", "TransferError"]
    assert await content(target) == {"a": b"1", "b": b"\xff", "c": b"3"}


async def test_the_mark_itself_is_never_exported(opening: Open) -> None:
    store = await opening("sqlite", "store")
    await store.txn([], [Put(MARK, b""), Put("a", b"")])
    again = await opening("sqlite", "again")
    await load(again, given(await exported(store)))

    assert [item.key for item in (await again.range("")).items] == ["a"]
