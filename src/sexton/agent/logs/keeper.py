"""Keeps a relay alive, on one port for as long as this host's containers know it.

The socket is made here and handed to the relay, and kept open here as well: while a relay that died is replaced,
calls wait in the socket instead of being refused. A relay that an earlier agent started is taken over as it is; one of
another release is replaced. Nothing is started before the first container needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sexton import __version__
from sexton.agent.logs import spool
from sexton.kit.retry import Backoff

log = logging.getLogger(__name__)

BACKOFF = Backoff(first=0.05, cap=30.0)
# A relay that lived this long was no failed start.
STEADY_SECONDS = 10.0
# How long a new relay takes to say where it is, on a machine that is busy.
START_SECONDS = 20.0
LOOK_SECONDS = 0.5
_BACKLOG = 128
# What the relay knows its socket by.
_HANDLE = 3
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG")


class Said(NamedTuple):
    """What a relay says of itself."""

    pid: int
    port: int
    version: str


class NoRelay(Exception):  # noqa: N818 - becomes the reason of a task
    """There is none and none can be started; the message says why."""


class Keeper:
    """One relay over one spool. ``bound`` is what the spool may hold, in bytes."""

    def __init__(self, root: Path, bound: int) -> None:
        self._root = root
        self._bound = bound
        self._wanted = asyncio.Event()
        self._up: asyncio.Future[int] | None = None
        self._listener: socket.socket | None = None
        self._child = 0
        self.restarts = 0

    async def port(self) -> int:
        """Where the relay listens, once it does; NoRelay when it cannot be started."""
        self._wanted.set()
        if self._up is None:
            self._up = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(START_SECONDS):
                return await asyncio.shield(self._up)
        except TimeoutError:
            raise NoRelay("cannot start the log relay: it does not come up; the agent's log says more") from None

    async def run(self) -> None:
        """For ever: see that there is a relay, once one is wanted."""
        delays = BACKOFF.delays()
        await self._wanted.wait()
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                said = await self._find_or_start()
            except OSError as error:
                log.error("log relay cannot be started", extra={"reason": str(error)})
                await asyncio.sleep(next(delays))
                continue
            if self._up is None or self._up.done():
                self._up = asyncio.get_running_loop().create_future()
            self._up.set_result(said.port)
            await self._until_it_ends(said.pid)
            self.restarts += 1
            log.warning("log relay ended, another is started", extra={"pid": said.pid})
            if asyncio.get_running_loop().time() - begun > STEADY_SECONDS:
                delays = BACKOFF.delays()
            await asyncio.sleep(next(delays))

    def begin_at_once(self) -> None:
        """There are containers of an earlier process that write to it."""
        self._wanted.set()

    async def _find_or_start(self) -> Said:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        said = said_in(self._root)
        if alive(self._root) and said is not None:
            if said.version == __version__:
                log.info("log relay found", extra={"pid": said.pid, "port": said.port})
                return said
            with contextlib.suppress(ProcessLookupError):
                os.kill(said.pid, signal.SIGTERM)
            await self._until(lambda: not alive(self._root))
        if self._listener is None:
            self._listener = self._listen(said.port if said is not None else 0)
        self._child = self._spawn(self._listener)
        pid = self._child
        await self._until(lambda: (now := said_in(self._root)) is not None and now.pid == pid and alive(self._root))
        port = int(self._listener.getsockname()[1])
        log.info("log relay started", extra={"pid": pid, "port": port})
        return Said(pid, port, __version__)

    def _listen(self, port: int) -> socket.socket:
        """At the port that this host's containers know, if it is to be had."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            log.error(
                "log relay lost its port, containers that know it lose what they write",
                extra={"port": port, "reason": error.strerror or str(error)},
            )
            listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        return listener

    def _spawn(self, listener: socket.socket) -> int:
        """Start a relay in a session of its own, so that what ends this process's group leaves it."""
        argv = [
            *(sys.executable, "-m", "sexton.agent.logs.relay"),
            *("--root", str(self._root), "--handle", str(_HANDLE), "--bound", str(self._bound)),
        ]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        passed = os.dup(listener.fileno())
        try:
            if passed == _HANDLE:
                os.set_inheritable(passed, True)
            actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
            actions += [(os.POSIX_SPAWN_DUP2, passed, _HANDLE)] if passed != _HANDLE else []
            environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            return os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True)
        finally:
            os.close(passed)
            os.close(null)

    async def _until_it_ends(self, pid: int) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            lives = True  # as far as is known: this kernel is older than 5.3, or it is gone already
            while lives:
                lives = self._lives(pid)
                await asyncio.sleep(LOOK_SECONDS)
            return
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        if self._child == pid:
            self._ended()

    def _lives(self, pid: int) -> bool:
        if self._child == pid:
            return not self._ended()
        return alive(self._root)

    def _ended(self) -> bool:
        """Whether the relay that was started here is over; it is no zombie then."""
        if self._child and os.waitpid(self._child, os.WNOHANG)[0]:
            self._child = 0
        return not self._child

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not true():
                if self._child and self._ended():
                    raise OSError("it ended at once")
                await asyncio.sleep(0.02)

    def end(self) -> None:
        """Nobody needs it any more."""
        said = said_in(self._root)
        if said is not None and alive(self._root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(said.pid, signal.SIGTERM)

    def close(self) -> None:
        """The relay goes on."""
        if self._listener is not None:
            self._listener.close()


def said_in(root: Path) -> Said | None:
    try:
        found = json.loads((root / spool.RELAY_FILE).read_bytes())
        return Said(int(found["pid"]), int(found["port"]), str(found["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def alive(root: Path) -> bool:
    """Whether a relay holds its lock."""
    try:
        handle = os.open(root / spool.RELAY_LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
