"""``sexton control export`` and ``import``: a control plane's records as a file, and back, and from store to store.

A store that many processes share is read as it is. A store's file belongs to the process that has it open: when a
control plane runs on it, the export is asked of that one. Loading needs a store that nobody works on, and says who
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

import typer

from sexton.cli.connection import data_dir, endpoint, fail
from sexton.cli.own import stream
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.store.contract import Distant, InUse, Store, StoreError
from sexton.store.opening import open_store
from sexton.store.transfer import Loaded, TransferError, export, load
from sexton.wire.errors import EcsError

STORE_FILE = "control.db"
REPLICAS = "replicas/"
LONGEST_LINE = 64 << 20

backup_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_STORE = typer.Option(
    "", "--store", metavar="URL", envvar="SEXTON_STORE", help="As etcd://host:2379; without, the data directory's file."
)
_DATA_DIR = typer.Option("", "--data-dir", metavar="DIR", help="The control plane's data directory [ECS_DATADIR].")


@backup_app.command("export")
def export_command(
    file: str = typer.Argument(metavar="FILE", help="Where to; - for standard output. It holds every key's secret."),
    store: str = _STORE,
    directory: str = _DATA_DIR,
) -> None:
    """Save everything a control plane knows, also while it runs."""
    try:
        records = asyncio.run(_export(file, store, _directory(directory)))
    except (StoreError, Unreachable, NoCredentials) as error:
        raise fail(str(error)) from None
    except EcsError as error:
        raise fail(f"{error.code}: {error.message}") from None
    except OSError as error:
        raise fail(f"cannot write {file}: {error.strerror}") from None
    typer.echo(f"{records} records saved" + ("" if file == "-" else f" in {file}"), err=True)


@backup_app.command("import")
def import_command(
    file: str = typer.Argument(metavar="FILE", help="What export wrote; - for standard input."),
    store: str = _STORE,
    directory: str = _DATA_DIR,
    replace: bool = typer.Option(False, "--replace", help="Throw away what the store holds now."),
) -> None:
    """Load what export saved into a store that no control plane works on."""
    try:
        with contextlib.ExitStack() as files:
            source = sys.stdin.buffer if file == "-" else files.enter_context(Path(file).open("rb"))
            loaded = asyncio.run(_import(source, store, _directory(directory), replace=replace))
    except StoreError as error:
        raise fail(str(error)) from None
    except OSError as error:
        raise fail(f"cannot read {file}: {error.strerror}") from None
    typer.echo(
        f"{loaded.records} records loaded" + (f", {loaded.replaced} removed" if loaded.replaced else ""), err=True
    )


def _directory(given: str) -> Path:
    return Path(given) if given else data_dir()


async def _export(file: str, url: str, directory: Path) -> int:
    path = directory / STORE_FILE
    if not url and not path.exists():
        raise StoreError(f"cannot export: there is no {path}; name the data directory with --data-dir, or a --store")
    try:
        store = await open_store(url or f"sqlite://{path}")
    except InUse as error:
        return await _save(file, _from_running(error))
    try:
        return await _save(file, export(store))
    finally:
        await store.close()


async def _from_running(reason: InUse) -> AsyncIterator[bytes]:
    """The lines of a control plane that runs."""
    try:
        async with stream("/sexton/export", {}) as answer:
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line + b"\n"
            if rest:
                yield rest
    except Unreachable as error:
        raise StoreError(
            f"{reason}. The control plane that runs on it is not at {endpoint()} either ({error}); "
            "set AWS_ENDPOINT_URL to it"
        ) from None


async def _save(file: str, lines: AsyncIterator[bytes]) -> int:
    """Write the lines, whole or not at all; how many records they are."""
    count = -2  # the first line and the last are none
    with _target(file) as out:
        async for line in lines:
            out.write(line)
            count += 1
    if count < 0:
        raise StoreError("cannot export: the control plane ended before it was done; try again")
    return count


@contextlib.contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    """Where the lines go: a file that only its owner can read and that takes its name when it is whole."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


async def _import(source: BinaryIO, url: str, directory: Path, *, replace: bool) -> Loaded:
    store = await open_store(url or f"sqlite://{directory / STORE_FILE}")
    try:

        async def nobody_works() -> None:
            await _check_nobody_works(store)

        return await load(store, _lines(source), replace=replace, nobody_works=nobody_works)
    finally:
        await store.close()


async def _check_nobody_works(store: Store) -> None:
    """A file is claimed by whoever opens it; of a shared store its replicas say that they are there."""
    if isinstance(store, Distant):
        running = [item.key.removeprefix(REPLICAS) for item in (await store.range(REPLICAS)).items]
        if running:
            raise TransferError(
                f"cannot load into this store: control planes work on it ({', '.join(running)}); stop them, or wait "
                "for their leases when they were killed"
            )


async def _lines(source: BinaryIO) -> AsyncIterator[bytes]:
    while line := source.readline(LONGEST_LINE):
        yield line
