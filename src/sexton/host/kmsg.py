"""Processes the kernel killed because memory ran out, from its own counter and its own log.

The counter says how many there were since boot and costs nothing; the log says who, in one line of fields per kill,
whose form has been the same since kernel 5.0. The log is a ring: what is older than its few hundred kilobytes is
gone, and who may not read it learns the number only. It is read through once, and only when the counter says that
there is something in it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from sexton.host.errors import Absent, Unreadable

# Records of a large ring; reading one takes a few microseconds.
RECORDS = 100_000
DEADLINE = 1.0
LARGEST_RECORD = 16_384
_MARK = "oom-kill:constraint="


class OomKill(msgspec.Struct, frozen=True, kw_only=True):
    """``at`` is in seconds since boot. ``limit`` is the group whose limit was hit, empty when the host itself had no
    memory left; ``group`` is where the victim was."""

    at: float
    pid: int
    name: str
    group: str
    limit: str


def oom_kills_since_boot(root: Path) -> int:
    """The kernel's counter. Absent on kernels before 4.13, Unreadable where it may not be read."""
    path = root / "proc/vmstat"
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise Absent("this host has no /proc/vmstat") from None
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}", "Run it on the host itself.") from error
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    raise Absent("this kernel does not count out-of-memory kills")


def oom_kills(root: Path) -> tuple[OomKill, ...]:
    """Kills the log still has, in order. Raises Unreadable."""
    path = root / "dev/kmsg"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"cannot read the kernel's log {path}: {error.strerror}", "Run it as root.") from error
    found: list[OomKill] = []
    until = time.monotonic() + DEADLINE
    try:
        for _ in range(RECORDS):
            try:
                record = os.read(handle, LARGEST_RECORD)
            except BlockingIOError:
                break  # the end of what there is now
            except BrokenPipeError:
                continue  # overwritten while we read: the next one is told
            except OSError as error:
                raise Unreadable(f"cannot read the kernel's log: {error.strerror}", "Run it as root.") from error
            if not record or time.monotonic() > until:
                break
            found += [kill for line in record.decode(errors="replace").splitlines() if (kill := parse(line))]
    finally:
        os.close(handle)
    return tuple(found)


def parse(line: str) -> OomKill | None:
    """One line of the log: ``6,1234,5678901,-;oom-kill:constraint=...,task=NAME,pid=N,uid=N``; None for any other."""
    head, _, message = line.partition(";")
    if not message.startswith(_MARK):
        return None
    words = head.split(",")
    try:
        at = int(words[2]) / 1e6
        # Names may hold commas: they are what stands between the field before and the one after.
        rest, _, task = message.rpartition(",task=")
        name, _, tail = task.rpartition(",pid=")
        pid = int(tail.partition(",")[0])
    except (IndexError, ValueError):
        return None
    group = rest.partition(",task_memcg=")[2]
    limit = rest.partition(",oom_memcg=")[2].partition(",task_memcg=")[0]
    return OomKill(at=at, pid=pid, name=name, group=group, limit=limit)
