"""From the address of an engine to the driver that speaks with it.

Drivers are named here and imported only when their scheme is asked for, so that a process pays for the one it uses
and the roles above never see a concrete driver. A driver module offers ``connect(url, deadlines)``, which does no
I/O: an engine that is not there yet is found out, and waited for, by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from sexton.runtime.contract import Runtime
from sexton.runtime.deadlines import DEFAULTS, Deadlines

DRIVERS = {
    "unix": "sexton.runtime.docker",
    "tcp": "sexton.runtime.docker",
    "fake": "sexton.runtime.fake",
}


def open_runtime(url: str, deadlines: Deadlines = DEFAULTS) -> Runtime:
    """The runtime at ``url`` ("unix:///var/run/docker.sock", "tcp://host:port", "fake://")."""
    scheme = url.partition("://")[0]
    if scheme not in DRIVERS:
        known = ", ".join(f"{name}://" for name in DRIVERS)
        raise ValueError(f"cannot open the container engine {url!r}: use an address that begins with one of {known}")
    connect = cast("Callable[[str, Deadlines], Runtime]", import_module(DRIVERS[scheme]).connect)
    return connect(url, deadlines)
