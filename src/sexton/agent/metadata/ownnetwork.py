"""Which network is a task's own: that of its containers, as long as one of them runs.

Asked of the engine each time, since a process that ended may have lent its number to another. The host's own network
is never taken for a task's.
"""

from __future__ import annotations

import os

from sexton.agent.runner import Runner
from sexton.runtime.contract import Runtime, RuntimeFault

_HOSTS = "/proc/self/ns/net"


async def namespace_of(runtime: Runtime, runner: Runner) -> str | None:
    """The file of a task's network namespace; None while nothing of the task runs in one."""
    for one in runner.known.containers:
        if one.runtime_id:
            try:
                pid = (await runtime.inspect(one.runtime_id)).pid
            except RuntimeFault:
                continue
            path = f"/proc/{pid}/ns/net"
            if pid and _is_another(path):
                return path
    return None


def _is_another(path: str) -> bool:
    try:
        found, own = os.stat(path), os.stat(_HOSTS)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino)
