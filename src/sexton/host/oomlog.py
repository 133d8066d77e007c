"""Whom the kernel killed for want of memory in a cgroup, from its own log.

Read on demand and from its beginning: what the kernel still has is a few hundred kilobytes at most, and nothing has to
be kept open meanwhile. A container without access to the log, or a kernel that has forgotten, knows nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

KMSG = Path("/dev/kmsg")
# One record is at most this long; the ring holds fewer of them than this.
_RECORD_BYTES = 8192
_MOST_RECORDS = 20_000

_KILL = re.compile(
    r"oom-kill:constraint=(?P<why>\w+).*?,task_memcg=(?P<group>[^,]*),task=(?P<name>.*?),pid=(?P<pid>\d+),uid="
)
_SIZE = re.compile(r"Killed process (?P<pid>\d+) .*?anon-rss:(?P<kib>\d+)kB")


class Victim(NamedTuple):
    """A killed process. ``by_limit``: its cgroup's own limit was reached, not the host's memory."""

    name: str
    pid: int
    group: str
    by_limit: bool
    resident: int = 0  # bytes of its own, where the kernel said


def victims(group: str, kmsg: Path = KMSG) -> list[Victim]:
    """Everybody killed in cgroups whose path contains this, oldest first."""
    found: list[Victim] = []
    for line in _lines(kmsg):
        kill = _KILL.search(line)
        if kill and group in kill["group"]:
            found.append(Victim(kill["name"], int(kill["pid"]), kill["group"], kill["why"] == "CONSTRAINT_MEMCG"))
            continue
        size = _SIZE.search(line)
        if size and found and found[-1].pid == int(size["pid"]):
            found[-1] = found[-1]._replace(resident=int(size["kib"]) * 1024)
    return found


def _lines(kmsg: Path) -> list[str]:
    try:
        descriptor = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    lines: list[str] = []
    try:
        while len(lines) < _MOST_RECORDS:
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # overwritten while it was read: the next one is the oldest there is
            except OSError:
                break
            if not record:
                break
            lines += record.decode("utf-8", "replace").splitlines()
    finally:
        os.close(descriptor)
    return lines
