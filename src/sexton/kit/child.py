"""Short-lived child processes with a deadline, waited for without a thread.

For work that may sit in the kernel longer than this process can afford: the child is killed at its deadline, and
being killed is what ends it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence

# A killed child in the kernel returns at its next check for signals; longer than this, it is left to init.
REAP_SECONDS = 2.0


async def run(argv: Sequence[str], deadline: float) -> int | None:
    """Run a program with no input and no output; its exit code, or None when it had to be killed."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        environment = {"PATH": os.defpath}
        pid = os.posix_spawnp(argv[0], argv, environment, file_actions=actions)  # noqa: ASYNC221 - a millisecond
    finally:
        os.close(null)
    handle = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    killed = False
    try:
        try:
            async with asyncio.timeout(deadline):
                await ended.wait()
        except TimeoutError:
            killed = True
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(REAP_SECONDS):
                await ended.wait()
    except TimeoutError:
        return None
    except asyncio.CancelledError:
        if not ended.is_set():
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        loop.remove_reader(handle)
        os.close(handle)
        status = os.waitpid(pid, os.WNOHANG)[1]  # noqa: ASYNC222 - does not wait
    return None if killed else os.waitstatus_to_exitcode(status)
