"""Work that may keep a core busy inside the kernel, done by a child on one core, ended at a deadline.

What a call frees inside the kernel takes as long as it takes; only the end of the process that made it ends the call.
So each such call is made by a child of its own, bound to one core, which is killed at its deadline, and by the kernel
if this process goes first. What it had done by then stays done, and there is nothing to clear up: every order is one
that may be stopped anywhere and given again. The child is ``host/confined_work.py``, a script that imports
nothing of ours.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import msgspec

WORK = Path(__file__).with_name("confined_work.py")
# A killed child leaves the kernel at its next check for signals; one in a write to a sick disk may take longer.
REAP_SECONDS = 2.0


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an order ended. ``said`` is the child's account, empty when it was killed before it gave one; ``kernel`` is
    the time it spent inside the kernel, as the kernel accounts it; ``stuck`` when it outlived even being killed."""

    said: dict[str, int | str]
    seconds: float
    kernel: float
    killed: bool
    stuck: bool = False


def chosen_core() -> int:
    """The last core this process may use: interrupts are mostly served by the first ones."""
    return max(os.sched_getaffinity(0))


def run_confined(order: object, deadline: float) -> Ended:
    """Carry out one order. Blocks until it is done, or ``deadline`` seconds have passed."""
    given, said = _anonymous_file("order"), _anonymous_file("account")
    try:
        os.write(given, msgspec.json.encode(order))
        os.lseek(given, 0, os.SEEK_SET)
        begun = time.monotonic()
        pid = os.posix_spawn(
            sys.executable,
            # Nothing of the environment or of anybody's site directory has a say in what runs as root here.
            [sys.executable, "-I", "-S", os.fspath(WORK), str(chosen_core()), str(os.getpid())],
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, said, 1)],
        )
        killed = not _wait(pid, deadline)
        if killed:
            os.kill(pid, signal.SIGKILL)
            if not _wait(pid, REAP_SECONDS):
                return Ended(said={}, seconds=time.monotonic() - begun, kernel=0.0, killed=True, stuck=True)
        _, status, usage = os.wait4(pid, 0)
        killed = killed or os.WIFSIGNALED(status)  # by its own timer
        seconds = time.monotonic() - begun
        return Ended(said=_account(said), seconds=seconds, kernel=usage.ru_stime, killed=killed)
    finally:
        os.close(given)
        os.close(said)


def _anonymous_file(name: str) -> int:
    return os.memfd_create(f"sexton-{name}", os.MFD_CLOEXEC)


def _wait(pid: int, seconds: float) -> bool:
    """Has the child ended within so many seconds? It is not reaped."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        os.close(handle)


def _account(said: int) -> dict[str, int | str]:
    data = os.pread(said, 65536, 0)
    try:
        return msgspec.json.decode(data, type=dict[str, int | str]) if data else {}
    except msgspec.MsgspecError:  # killed in the middle of a word
        return {}
