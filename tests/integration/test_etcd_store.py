"""One store over one real etcd: what it makes of restarts, compaction, neighbours, limits, logins and lies."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from etcd import PrivateEtcd, free_ports
from sexton.store.contract import Change, Compacted, Compare, Delete, Distant, OutcomeUnknown, Put, Store, StoreError
from sexton.store.opening import open_store

PATIENCE = 15.0


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path / "etcd") as etcd:
        yield etcd


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not happened():
            await asyncio.sleep(0.01)


async def refusal(store: Store) -> str:
    """Why the store does not write now; what is told to be unknown was sent before it noticed."""
    while True:
        try:
            await store.txn([], [Put("refused", b"")])
        except OutcomeUnknown:
            continue
        except StoreError as error:
            return str(error)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def keys(store: Store) -> list[str]:
    return [item.key for item in (await store.range("")).items]


async def seen(store: Store, key: str) -> None:
    """Wait until another store's write has arrived in this one."""
    async with store.watch(key, store.revision) as watch:
        if await store.get(key) is None:
            await asyncio.wait_for(anext(aiter(watch)), PATIENCE)


async def test_two_stores_over_one_prefix_see_each_other(etcd: PrivateEtcd) -> None:
    async with opened(etcd.url) as one, opened(f"{etcd.url}/sexton/") as other:
        async with other.watch("", other.revision) as watch:
            result = await one.txn([], [Put("a", b"1"), Put("b", b"2")])
            batch = await asyncio.wait_for(anext(aiter(watch)), PATIENCE)
        lost = await other.txn([Compare("a", 0)], [Put("a", b"3")])

    assert batch == (Change("a", b"1", result.revision), Change("b", b"2", result.revision))
    assert not lost.succeeded


async def test_prefixes_are_worlds_of_their_own(etcd: PrivateEtcd) -> None:
    async with opened(f"{etcd.url}/a") as one, opened(f"{etcd.url}/ab") as other, opened(f"{etcd.url}/a/b") as inner:
        await one.txn([], [Put("key", b"one")])
        await other.txn([], [Put("key", b"other")])
        await inner.txn([], [Put("key", b"inner")])
        await seen(one, "b/key")

        assert [await keys(store) for store in (one, other, inner)] == [["b/key", "key"], ["key"], ["key"]]


async def test_a_conflict_is_told_when_its_cause_can_be_read_although_others_write_elsewhere(
    etcd: PrivateEtcd,
) -> None:
    """The revision of the answer must be one a watcher of this prefix gets to, or who waits for it waits for ever."""
    member = etcd.members[0]
    async with opened(f"{etcd.url}/ours") as one, opened(f"{etcd.url}/ours") as other:
        for turn in range(30):
            made = await one.txn([], [Put("a", b"%d" % turn)])
            await asyncio.to_thread(member.call, "/v3/kv/put", {"key": b64("/theirs"), "value": b64(str(turn))})
            lost = await other.txn([Compare("a", made.revision + 1)], [Put("a", b"no")])
            read = await other.get("a")
            nothing = await other.txn([], [Delete("absent")])
            assert read is not None
            assert read.value == b"%d" % turn
            assert (lost.succeeded, nothing.succeeded) == (False, True)
            assert made.revision == lost.revision == nothing.revision


async def test_a_removal_by_another_is_seen_when_it_was_in_the_way(etcd: PrivateEtcd) -> None:
    async with opened(etcd.url) as one, opened(etcd.url) as other:
        for _ in range(30):
            made = await one.txn([], [Put("a", b"")])
            await seen(other, "a")
            removal = asyncio.ensure_future(other.txn([], [Delete("a")]))
            result = await one.txn([Compare("a", made.revision), Compare("b", 0)], [Delete("a")])
            await removal
            if not result.succeeded:
                assert await one.get("a") is None
            await one.txn([], [Delete("a")])


async def test_a_store_outlives_a_restart_of_etcd(etcd: PrivateEtcd) -> None:
    member = etcd.members[0]
    async with opened(etcd.url) as store:
        await store.txn([], [Put("a", b"1")])
        async with store.watch("", store.revision) as watch:
            member.stop()
            assert "Connection refused; check that a majority" in await refusal(store)
            assert (await store.get("a")) is not None
            etcd.start()
            result = await store.txn([], [Put("b", b"2")])
            batch = await asyncio.wait_for(anext(aiter(watch)), PATIENCE)

        assert batch == (Change("b", b"2", result.revision),)
        assert await keys(store) == ["a", "b"]


async def test_a_write_waits_out_a_short_restart(etcd: PrivateEtcd) -> None:
    async with opened(etcd.url) as store:
        etcd.members[0].kill()
        await refusal(store)
        writing = asyncio.ensure_future(store.txn([], [Put("a", b"")]))
        await asyncio.sleep(0)
        etcd.start()

        assert (await writing).succeeded


@pytest.mark.timeout(40)
async def test_compaction_under_a_broken_watch_is_answered_by_reading_everything_again(etcd: PrivateEtcd) -> None:
    """The store is cut off, others write, and etcd forgets: who watches is told, and the image is right again."""
    member = etcd.members[0]
    async with opened(etcd.url) as writer:
        await writer.txn([], [Put("kept", b"1"), Put("removed", b"")])
        async with cut_off(etcd) as (url, wire), opened(url) as store, store.watch("", store.revision) as watch:
            await wire.cut()
            await writer.txn([], [Delete("removed"), Put("kept", b"2")])
            last = await writer.txn([], [Put("added", b"")])
            await asyncio.to_thread(member.call, "/v3/kv/compaction", {"revision": str(last.revision)})
            await wire.join()
            with pytest.raises(Compacted, match="read the range again"):
                await asyncio.wait_for(anext(aiter(watch)), PATIENCE)

            assert await store.range("") == await writer.range("")
            async with store.watch("", store.revision) as again:
                result = await store.txn([], [Put("after", b"")])
                batch = await asyncio.wait_for(anext(aiter(again)), PATIENCE)
            assert batch == (Change("after", b"", result.revision),)


@pytest.mark.timeout(40)
async def test_a_write_that_was_sent_into_silence_is_unknown_and_never_repeated(etcd: PrivateEtcd) -> None:
    async with cut_off(etcd) as (url, wire), opened(url) as store:
        made = await store.txn([], [Put("a", b"0")])
        wire.muted = True
        with pytest.raises(OutcomeUnknown, match="read the keys again before repeating it"):
            await store.txn([], [Put("a", b"1")])
        wire.muted = False
        await wire.cut()
        await wire.join()
        # Only the answer was lost. Had it been sent twice, it would be there twice.
        await until(lambda: store.revision > made.revision)
        after = await store.txn([], [Put("b", b"")])
        read = await store.get("a")

    assert read is not None
    assert (read.value, read.mod_revision, after.revision) == (b"1", made.revision + 1, made.revision + 2)


@pytest.mark.timeout(40)
async def test_etcd_with_other_data_at_the_same_address_is_not_taken_for_the_old(
    etcd: PrivateEtcd, tmp_path: Path
) -> None:
    member = etcd.members[0]
    async with opened(etcd.url) as store:
        for turn in range(5):
            await store.txn([], [Put("a", b"%d" % turn)])
        async with store.watch("", store.revision) as watch:
            member.kill()
            await refusal(store)
            shutil.rmtree(member.data)
            etcd.start()
            with pytest.raises(StoreError, match="its data was replaced"):
                await asyncio.wait_for(anext(aiter(watch)), PATIENCE)
        assert isinstance(store, Distant)
        assert not store.healthy
        for call in (store.get("a"), store.txn([], [Put("a", b"")])):
            with pytest.raises(StoreError, match="restart this process"):
                await call


async def test_a_large_store_is_read_page_by_page(etcd: PrivateEtcd) -> None:
    async with opened(etcd.url) as store:
        await asyncio.gather(*(store.txn([], [Put(f"large/{n}", bytes(300_000))]) for n in range(10)))
        for part in range(3):
            await store.txn([], [Put(f"small/{part}/{n:04}", b"%d" % n) for n in range(3000)])
        async with opened(etcd.url) as again:
            assert (await again.range("")).items == (await store.range("")).items


async def test_what_is_not_ours_under_the_prefix_is_left_alone(etcd: PrivateEtcd) -> None:
    foreign = base64.b64encode(b"/sexton/\xff\xfe").decode()
    itself = b64("/sexton/")
    member = etcd.members[0]
    async with opened(etcd.url) as store:
        for key in (foreign, itself):
            await asyncio.to_thread(member.call, "/v3/kv/put", {"key": key, "value": b64("x")})
        await store.txn([], [Put("ours", b"")])
        async with opened(etcd.url) as again:
            assert await keys(store) == await keys(again) == ["ours"]
    held = await asyncio.to_thread(member.call, "/v3/kv/range", {"key": foreign})
    assert held["count"] == "1"


async def test_too_much_for_one_transaction_is_refused_with_the_limit(etcd: PrivateEtcd) -> None:
    async with opened(etcd.url) as store:
        with pytest.raises(StoreError, match=r"in one transaction: etcd takes 4096 under 64; split it"):
            await store.txn([], [Put(f"k/{number}", b"") for number in range(4097)])
        with pytest.raises(StoreError, match="write less at once, or raise its --max-request-bytes"):
            await store.txn([], [Put("a", bytes(2_000_000))])

        assert await keys(store) == []


@pytest.mark.parametrize("members", [1, 2])
async def test_nobody_at_the_address_is_told_with_the_next_step(members: int) -> None:
    hosts = ",".join(f"127.0.0.1:{port}" for port in free_ports(members))
    with pytest.raises(StoreError, match=r"cannot reach etcd at 127.*Connection refused; check that a majority"):
        await open_store(f"etcd://{hosts}")


async def test_somebody_else_at_the_address_is_not_taken_for_etcd() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreError, match=r"HTTP status 404; check that the address is an etcd 3\.4 or newer"):
            await open_store(f"etcd://127.0.0.1:{port}")


async def test_a_user_logs_in_and_a_wrong_password_is_told_without_repeating_it(etcd: PrivateEtcd) -> None:
    member = etcd.members[0]
    for path, request in (
        ("/v3/auth/user/add", {"name": "root", "password": "right:p@ss"}),
        ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
        ("/v3/auth/enable", {}),
    ):
        await asyncio.to_thread(member.call, path, request)
    async with opened(f"etcd://root:right%3Ap%40ss@{etcd.hosts}") as store:
        await store.txn([], [Put("a", b"")])
        # Tokens do not outlive etcd's process: both the watch and the writes need a new one.
        member.kill()
        await refusal(store)
        etcd.start()
        await store.txn([], [Put("b", b"")])

        assert await keys(store) == ["a", "b"]
    with pytest.raises(StoreError, match="correct the user and password") as refused:
        await open_store(f"etcd://root:wrongsecret@{etcd.hosts}")
    assert "wrongsecret" not in str(refused.value)
    with pytest.raises(StoreError, match="name a user in the store's URL"):
        await open_store(etcd.url)


async def test_tls_with_proof_of_both_sides(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    options = [
        *(f"--cert-file={tmp_path}/server.pem", f"--key-file={tmp_path}/server.key"),
        *(f"--trusted-ca-file={tmp_path}/ca.pem", "--client-cert-auth"),
    ]
    with PrivateEtcd(tmp_path / "etcd", options=options, scheme="etcds") as etcd:
        proof = f"&cert={tmp_path}/client.pem&key={tmp_path}/client.key"
        async with opened(f"{etcd.url}/tls?ca={tmp_path}/ca.pem{proof}") as store:
            await store.txn([], [Put("a", b"")])
            assert await keys(store) == ["a"]
        with pytest.raises(StoreError, match="certificate verify failed"):
            await open_store(f"{etcd.url}?cert={tmp_path}/client.pem&key={tmp_path}/client.key")
        with pytest.raises(StoreError, match="cannot use the TLS files of the etcd URL"):
            await open_store(f"{etcd.url}?ca={tmp_path}/absent.pem")


def make_certificates(place: Path) -> None:
    """An authority, and what it signed for a server at 127.0.0.1 and for a client."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ca = ["-addext", "keyUsage=critical,keyCertSign"]
    openssl(*new, "-x509", "-subj", "/CN=test authority", *ca, "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("server", "client"):
        # The gateway speaks to its own member with the server's certificate, so that one proves both.
        (place / "extensions").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
        openssl(*signed, "-extfile", "extensions", "-out", f"{name}.pem")


class Wire:
    """A relay to one etcd. Cut, open connections break and new ones are refused; muted, etcd's answers vanish."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.muted = False
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._copying: set[asyncio.Task[None]] = set()

    async def join(self) -> int:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self._port)
        self._port = int(self._server.sockets[0].getsockname()[1])
        return self._port

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()
        if self._copying:
            await asyncio.wait(self._copying)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, back}
        self._open |= both
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.ensure_future(self._copy(source, sink, answers=source is there))
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)
            task.add_done_callback(lambda _: self._open.difference_update(both))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await source.read(65536):
                if not (answers and self.muted):
                    sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


@asynccontextmanager
async def cut_off(etcd: PrivateEtcd) -> AsyncIterator[tuple[str, Wire]]:
    wire = Wire(etcd.members[0].port)
    try:
        yield f"etcd://127.0.0.1:{await wire.join()}", wire
    finally:
        await wire.cut()
