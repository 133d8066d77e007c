"""The agent's own log in a log group, beside wherever else it goes.

What is logged waits in memory, bounded, and is sent every few seconds in batches; what a group that is away would make
too much is dropped, counted, and said in the next line that gets through. Nothing waits for it and nothing fails by
it: the log on this host is the one to rely on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

import msgspec

from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.logs import LogsClient
from sexton.core.awslogs import Destination
from sexton.core.logbatch import EVENT_BYTES
from sexton.kit.retry import Backoff
from sexton.log import LogfmtFormatter
from sexton.wire import logs
from sexton.wire.errors import EcsError, ResourceNotFoundException

log = logging.getLogger(__name__)

MOST_LINES = 2000
SEND_SECONDS = 2.0
BACKOFF = Backoff(first=2.0, cap=60.0)
# Of one batch, well below what the service takes.
BATCH_LINES = 1000
BATCH_BYTES = 512 << 10
LONGEST = 16 << 10


class OwnLog(logging.Handler):
    """Collects; ``run`` sends."""

    def __init__(self, client: LogsClient, to: Destination, keys: CredentialSource) -> None:
        super().__init__(logging.INFO)
        self._client = client
        self._to = to
        self._keys = keys
        self._lines: deque[logs.InputLogEvent] = deque()
        self._gone = 0  # how many have left the front, whichever way
        self._dropped = 0
        self._away = False
        self.setFormatter(LogfmtFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Never fails whoever logs."""
        if len(self._lines) >= MOST_LINES:
            self._lines.popleft()
            self._gone += 1
            self._dropped += 1
        text = self.format(record)[:LONGEST]
        self._lines.append(logs.InputLogEvent(timestamp=int(record.created * 1000), message=text))

    async def run(self) -> None:
        """For ever."""
        heard = logging.getLogger("sexton")
        heard.addHandler(self)
        delays = BACKOFF.delays()
        try:
            while True:
                await asyncio.sleep(SEND_SECONDS)
                try:
                    while self._lines:
                        await self._send()
                except (EcsError, Unreachable, NoCredentials) as error:
                    if not self._away:
                        log.warning("own log cannot be sent", extra={"group": self._to.group, "reason": str(error)})
                    self._away = True
                    await asyncio.sleep(next(delays))
                else:
                    self._away, delays = False, BACKOFF.delays()
        finally:
            heard.removeHandler(self)

    async def _send(self) -> None:
        """The oldest lines; they leave when the group has them."""
        batch: list[logs.InputLogEvent] = []
        size = 0
        for one in list(self._lines)[:BATCH_LINES]:
            size += len((one.message or "").encode()) + EVENT_BYTES
            if batch and size > BATCH_BYTES:
                break
            batch.append(one)
        dropped, end = self._dropped, self._gone + len(batch)
        sent = sorted(batch, key=lambda one: one.timestamp or 0)
        if dropped:
            said = logs.InputLogEvent(
                timestamp=sent[0].timestamp, message=f'level=warn msg="own log lines were dropped" lines={dropped}'
            )
            sent.insert(0, said)
        request = logs.PutLogEventsRequest(
            log_group_name=self._to.group, log_stream_name=self._to.stream, log_events=tuple(sent)
        )
        body = msgspec.json.encode(request)
        try:
            await self._call("PutLogEvents", body)
        except ResourceNotFoundException:
            await self._make()
            await self._call("PutLogEvents", body)
        self._dropped -= dropped
        while self._lines and self._gone < end:  # some may have been dropped meanwhile
            self._lines.popleft()
            self._gone += 1

    async def _make(self) -> None:
        """The group and the stream, whichever is missing."""
        group, stream = self._to.group, self._to.stream
        for operation, request in (
            ("CreateLogGroup", logs.CreateLogGroupRequest(log_group_name=group)),
            ("CreateLogStream", logs.CreateLogStreamRequest(log_group_name=group, log_stream_name=stream)),
        ):
            try:
                await self._call(operation, msgspec.json.encode(request))
            except EcsError as error:
                if error.code != "ResourceAlreadyExistsException":
                    raise

    async def _call(self, operation: str, body: bytes) -> None:
        await self._client.send(self._to.endpoint, self._to.region, self._keys, operation, body)
