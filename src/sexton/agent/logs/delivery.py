"""Delivers what the relay took: one way for each container, in order, until the destination has it.

A batch is sent under a name of its own, which a control plane of ours knows when it comes again; the service itself
takes it once more if its first answer was lost. What cannot be delivered now stays in the spool and is tried again,
ever more slowly; what can never be is left out, and counted. A way goes when its container is over and all of it is
delivered, or when nobody has wanted it for days.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from sexton.agent.logs import spool
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.logs import LogsClient
from sexton.cloud.transient import is_transient
from sexton.core.awslogs import Destination
from sexton.kit.frames import Frame, read_frames
from sexton.kit.retry import Backoff
from sexton.wire import logs
from sexton.wire.errors import DataAlreadyAcceptedException, EcsError, ResourceNotFoundException

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.2, cap=15.0)
# When nobody knocked: how often it is looked whether something came.
LOOK_SECONDS = 5.0
# What was delivered is removed when it is this much, and at the end.
SPARE_BYTES = 256 << 10
# The engine hands over the last lines of a container after it is over.
LINGER_SECONDS = 20.0
# What nobody takes for so long after its container is over is given up.
GIVE_UP_SECONDS = 3 * 24 * 3600.0
# Answers that say that this batch will never be taken, whoever sends it again.
_NEVER = frozenset({"InvalidParameterException", "RequestEntityTooLargeException", "SerializationException"})


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """Whose lines, and where they go."""

    task: str
    container: str
    endpoint: str
    region: str
    group: str
    stream: str = ""
    create_group: bool = False
    execution_role: bool = False

    @property
    def destination(self) -> Destination:
        return Destination(self.endpoint, self.region, self.group, self.stream, self.create_group, self.execution_role)


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a way is delivered, and the mark of the last batch."""

    file: int = 0
    offset: int = 0
    newest: str = ""


class _Batch(msgspec.Struct, rename="camel", omit_defaults=True):
    """A batch as the engine made it; the events are passed on as they are."""

    log_group_name: str
    log_stream_name: str
    log_events: msgspec.Raw
    sequence_token: str = ""


class Trouble(NamedTuple):
    """A destination that does not take what is for it."""

    since: float
    reason: str


class Lane:
    """One way's delivery."""

    def __init__(
        self,
        folder: Path,
        way: Way,
        client: LogsClient,
        keys: Callable[[Way], CredentialSource],
        over: Callable[[Way], bool],
        turn: asyncio.Semaphore,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.way = way
        self.trouble: Trouble | None = None
        self.refused = 0  # lines that the destination will never take
        self.sent = 0
        self._folder = folder
        self._client = client
        self._keys = keys
        self._over = over
        self._turn = turn
        self._clock = clock
        self._wake = asyncio.Event()
        self._cursor = self._saved()
        self._ended: float | None = None

    def _saved(self) -> Cursor:
        try:
            return msgspec.json.decode((self._folder / spool.CURSOR).read_bytes(), type=Cursor)
        except (OSError, msgspec.MsgspecError):
            return Cursor()

    def pending(self) -> bool:
        """Whether something is not delivered yet."""
        try:
            return self._next() is not None
        except OSError:
            return False

    def knock(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until nothing will come any more, and all is delivered."""
        delays = BACKOFF.delays()
        while True:
            self._wake.clear()
            frame = await asyncio.to_thread(self._next)
            if frame is None:
                if await self._finished():
                    return
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            try:
                async with self._turn:
                    await self._deliver(frame.payload)
            except (EcsError, Unreachable, NoCredentials) as error:
                self._say(error)
                if await self._given_up():
                    return
                await asyncio.sleep(next(delays))
                continue
            delays = BACKOFF.delays()
            if self.trouble is not None:
                waited = round(self._clock() - self.trouble.since, 1)
                log.info("log lines are delivered again", extra={"group": self.way.group, "waited": waited})
                self.trouble = None
            await asyncio.to_thread(self._advance, frame)

    def _say(self, error: Exception) -> None:
        if self.trouble is None:
            log.warning(
                "log lines cannot be delivered, they wait in the spool",
                extra={"task": self.way.task, "group": self.way.group, "reason": str(error)},
            )
            self.trouble = Trouble(self._clock(), str(error))
        elif not is_transient(error):
            self.trouble = self.trouble._replace(reason=str(error))

    # The spool.

    def _next(self) -> Frame | None:
        """The first frame that is not delivered."""
        while True:
            later = [one for one in spool.files_of(self._folder) if one > self._cursor.file]
            path = spool.file_path(self._folder, self._cursor.file)
            if self._cursor.file and path.exists():
                frame = next(iter(read_frames(path, self._cursor.offset)), None)
                if frame is not None:
                    return frame
            if not later:
                return None
            # Nothing is added any more to a file that has another behind it.
            path.unlink(missing_ok=True)
            self._cursor = Cursor(file=later[0], newest=self._cursor.newest)

    def _advance(self, frame: Frame) -> None:
        newest = spool.mark(frame.payload[1:]).hex() if frame.payload[:1] == spool.BATCH else self._cursor.newest
        self._cursor = Cursor(file=self._cursor.file, offset=frame.end, newest=newest)
        draft = self._folder / f".{spool.CURSOR}"
        try:
            draft.write_bytes(msgspec.json.encode(self._cursor))
            draft.replace(self._folder / spool.CURSOR)
            if frame.end > SPARE_BYTES:
                self._tidy()
        except FileNotFoundError:
            return  # somebody removed the way

    def _tidy(self) -> None:
        """Remove a file that is delivered to its end; the relay makes another when it needs one."""
        path = spool.file_path(self._folder, self._cursor.file)
        with spool.held(self._folder):
            if path.exists() and path.stat().st_size == self._cursor.offset:
                path.unlink()

    async def _finished(self) -> bool:
        """Remove the way when its container has been over for a while."""
        if not self._is_over():
            return False
        assert self._ended is not None
        lingers = self._clock() - self._ended < LINGER_SECONDS
        return not lingers and await asyncio.to_thread(self._remove)

    def _is_over(self) -> bool:
        if not self._over(self.way):
            self._ended = None
            return False
        if self._ended is None:
            self._ended = self._clock()
        return True

    def _remove(self) -> bool:
        try:
            with spool.held(self._folder):
                if self._next() is not None:
                    return False
                shutil.rmtree(self._folder, ignore_errors=True)
        except FileNotFoundError:
            pass
        return True

    async def _given_up(self) -> bool:
        if not self._is_over() or self._ended is None or self._clock() - self._ended < GIVE_UP_SECONDS:
            return False
        log.error("log lines are given up", extra={"task": self.way.task, "group": self.way.group})
        await asyncio.to_thread(shutil.rmtree, self._folder, True)
        return True

    # The destination.

    async def _deliver(self, payload: bytes) -> None:
        if payload[:1] == spool.GAP:
            await self._tell_gap(payload[1:].decode())
            return
        try:
            batch = msgspec.json.decode(payload[1:], type=_Batch)
        except msgspec.MsgspecError as error:
            self._leave_out(payload, str(error))
            return
        batch.sequence_token = f"sexton:{self._folder.name[:16]}:{self._cursor.file:x}:{self._cursor.offset:x}"
        try:
            await self._put(batch)
        except DataAlreadyAcceptedException:
            pass
        except EcsError as error:
            if error.code not in _NEVER:
                raise
            self._leave_out(payload, str(error))
        self.sent += 1

    def _leave_out(self, payload: bytes, reason: str) -> None:
        lines = payload.count(b'"message":')
        self.refused += lines
        log.error(
            "log lines are refused and left out",
            extra={"task": self.way.task, "group": self.way.group, "lines": lines, "reason": reason},
        )

    async def _tell_gap(self, gap: str) -> None:
        """Say in the stream itself that something is missing there."""
        lines, since = gap.split()
        if not self.way.stream:
            return  # only the engine knows its name
        event = {"timestamp": int(since), "message": f"sexton: {lines} lines found no room and are lost"}
        events = msgspec.Raw(msgspec.json.encode([event]))
        name = f"sexton:{self._folder.name[:16]}:{self._cursor.file:x}:{self._cursor.offset:x}"
        await self._put(_Batch(self.way.group, self.way.stream, events, name))

    async def _put(self, batch: _Batch) -> None:
        body = msgspec.json.encode(batch)
        try:
            await self._call("PutLogEvents", body)
        except ResourceNotFoundException:
            await make_stream(
                self._client, self.way.destination, self._keys(self.way), batch.log_group_name, batch.log_stream_name
            )
            await self._call("PutLogEvents", body)

    async def _call(self, operation: str, body: bytes) -> None:
        await self._client.send(self.way.endpoint, self.way.region, self._keys(self.way), operation, body)


async def make_stream(
    client: LogsClient, to: Destination, keys: CredentialSource, group: str, stream: str, seconds: float = 20.0
) -> None:
    """See that the stream is there, and its group where the definition allows that it is made."""

    async def make(operation: str, request: msgspec.Struct) -> None:
        try:
            await client.send(to.endpoint, to.region, keys, operation, msgspec.json.encode(request), seconds)
        except EcsError as error:
            if error.code != "ResourceAlreadyExistsException":
                raise

    wanted = logs.CreateLogStreamRequest(log_group_name=group, log_stream_name=stream)
    try:
        await make("CreateLogStream", wanted)
    except ResourceNotFoundException:
        if not to.create_group:
            raise
        await make("CreateLogGroup", logs.CreateLogGroupRequest(log_group_name=group))
        await make("CreateLogStream", wanted)
