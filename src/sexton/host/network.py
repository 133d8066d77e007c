"""The daemon's side of the helper that wires: started when there is an order, asked one thing after the other.

A helper that is killed, hangs or cannot be started is an answer like any other; the next order starts a new one. Orders
may be given again at will, so one whose answer was lost is simply repeated, once, before its trouble is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec

from sexton.core.wiring import Answer, Order

log = logging.getLogger(__name__)

# An order takes milliseconds; the whole of a host with hundreds of tasks takes longer.
ORDER_SECONDS = 30.0
START_SECONDS = 20.0
MOST_ANSWER = 1 << 20
TRIES = 3


class NetworkError(Exception):
    """Something could not be wired; the message is a sentence of why."""


class NetworkWorker:
    """One helper at a time, or none."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the helper, while there is one."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def ask(self, order: Order) -> Answer:
        """Have an order carried out. NetworkError when it could not be."""
        async with self._turn:
            for attempt in range(1, TRIES + 1):
                try:
                    answer = await self._ask(order)
                except (OSError, EOFError, TimeoutError) as error:
                    await self._end()
                    if attempt == TRIES:
                        raise NetworkError(
                            f"the helper that wires does not answer: {error or type(error).__name__}"
                        ) from None
                    log.info("helper that wires is started again", extra={"reason": str(error) or type(error).__name__})
                else:
                    break
        if answer.error:
            raise NetworkError(answer.error)
        return answer

    async def warm(self) -> None:
        """Have a helper ready, since an order will come."""
        async with self._turn:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await self._running()

    async def close(self) -> None:
        async with self._turn:
            await self._end()

    async def _ask(self, order: Order) -> Answer:
        process = await self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            async with asyncio.timeout(ORDER_SECONDS):
                await process.stdin.drain()
                line = await process.stdout.readline()
        except BaseException:
            # Called off in the middle: its answer must not be taken for the next one's.
            self._kill()
            raise
        if not line.endswith(b"\n"):
            raise EOFError("it ended in the middle of an order")
        return msgspec.json.decode(line, type=Answer)

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None and not self._process.stdout.at_eof():  # type: ignore[union-attr]
            return self._process
        await self._end()
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "sexton.host.network_worker", str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            limit=MOST_ANSWER,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            if not await self._process.stdout.readline():
                raise EOFError("it ended at its start")
        return self._process

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    async def _end(self) -> None:
        if self._process is None:
            return
        self._kill()
        await self._process.wait()
        self._process = None
