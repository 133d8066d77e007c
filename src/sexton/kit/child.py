"""Short-lived child processes with a deadline, waited for without a thread.

For work that may sit in the kernel longer than this process can afford: the child is killed at its deadline, and
being killed is what ends it. A child that outlives even that is waited for by a later call, so that none stays behind
as a zombie for longer than this process is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

# A killed child in the kernel returns at its next check for signals; longer than this, nobody waits for it here.
REAP_SECONDS = 2.0
# How often a child is asked for on kernels before 5.3, which cannot say that it ended.
POLL_SECONDS = 0.02

_left: set[int] = set()


async def run(argv: Sequence[str], deadline: float) -> int | None:
    """Run a program with no input and no output; its exit code, or None when it had to be killed. OSError when it
    cannot be started."""
    _reap_left()
    pid = _spawn(argv)
    ended = asyncio.Event()
    handle = _watch(pid, ended)
    pace = POLL_SECONDS if handle is None else None
    try:
        try:
            async with asyncio.timeout(deadline):
                return os.waitstatus_to_exitcode(await _wait(pid, ended, pace))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(REAP_SECONDS):
                await _wait(pid, ended, pace)
            return None
    except TimeoutError:
        _left.add(pid)
        return None
    except asyncio.CancelledError:
        os.kill(pid, signal.SIGKILL)
        _left.add(pid)
        raise
    finally:
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)


def _spawn(argv: Sequence[str]) -> int:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        return os.posix_spawnp(argv[0], list(argv), {"PATH": os.defpath}, file_actions=actions)
    finally:
        os.close(null)


def _watch(pid: int, ended: asyncio.Event) -> int | None:
    """Have ``ended`` set when the child ends, where the kernel can say so."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    asyncio.get_running_loop().add_reader(handle, ended.set)
    return handle


async def _wait(pid: int, ended: asyncio.Event, pace: float | None) -> int:
    """The child's wait status, once it has ended; asked for again and again only where a pace is given."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
        if found:
            return status
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), pace)


def _reap_left() -> None:
    for pid in list(_left):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            ended = True
        if ended:
            _left.discard(pid)
