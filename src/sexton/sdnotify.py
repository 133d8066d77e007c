"""What a service says to systemd: that it is ready, that it is alive, what it is doing, that it ends.

A datagram to the socket that NOTIFY_SOCKET names, and nothing at all where there is none. Being alive is said by the
event loop itself, in half the time that the watchdog gives: a loop that is stuck is killed and started anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

# A start that takes longer than this counts as done: whoever waits for this unit at boot must not wait for an engine.
READY_SECONDS = 10.0


class Notifier:
    """One process's line to its supervisor."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._ready = False
        self.watchdog = _watchdog_seconds(environ)

    def ready(self) -> None:
        if not self._ready:
            self._ready = True
            self.say("READY=1")

    def status(self, text: str) -> None:
        self.say("STATUS=" + text.replace("\n", " "))

    def stopping(self) -> None:
        self.say("STOPPING=1")

    def say(self, text: str) -> None:
        """Nothing comes back, and nobody there is no failure."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as line,
        ):
            line.sendto(text.encode(), address)

    async def keep_alive(self) -> None:
        """Until cancelled: ready after a while at the latest, and alive as often as is asked for."""
        if not self._address:
            return
        if not self.watchdog:
            await asyncio.sleep(READY_SECONDS)
            self.ready()
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            self.say("WATCHDOG=1")
            await asyncio.sleep(self.watchdog / 2)
            if loop.time() - began >= READY_SECONDS:
                self.ready()


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """What systemd allows between two signs of life; 0 when it does not watch this process."""
    given, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not given.isdecimal() or (whose and whose != str(os.getpid())):
        return 0.0
    return int(given) / 1_000_000
