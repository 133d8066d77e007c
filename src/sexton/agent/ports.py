"""Host ports for containers that name none.

A cursor goes round the range and each candidate is tried by listening on it, so that a port in use is passed over and
one that was just given away is not given again soon. Losing the race for a port is the engine's to say.
"""

from __future__ import annotations

import socket
from pathlib import Path

KERNEL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
FALLBACK = (49153, 65535)


class NoPort(Exception):  # noqa: N818 - becomes the reason of a task
    """Every port of the range is in use."""


class PortAllocator:
    """Gives out ports of one range, other than the reserved ones."""

    def __init__(
        self, span: tuple[int, int] | None, reserved: frozenset[int], kernel_range: str = KERNEL_RANGE
    ) -> None:
        self._first, self._last = span or _kernel_range(kernel_range)
        self._reserved = reserved
        self._next = self._first

    def take(self, protocol: str, count: int = 1) -> int:
        """The first of ``count`` ports in a row that nobody listens on now."""
        size = self._last - self._first + 1
        run = tried = 0
        while tried < size + count:
            if self._next > self._last:
                self._next, run = self._first, 0  # a row does not go round the end
            port = self._next
            self._next += 1
            tried += 1
            run = run + 1 if port not in self._reserved and _free(port, protocol) else 0
            if run == count:
                return port - count + 1
        if count == 1:
            raise NoPort("a host port is unavailable")
        raise NoPort(f"{count} contiguous host ports are unavailable")


def _kernel_range(path: str) -> tuple[int, int]:
    try:
        first, last = Path(path).read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return FALLBACK


def _free(port: int, protocol: str) -> bool:
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as probe:
        if kind == socket.SOCK_STREAM:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - where the engine will publish; closed at once
        except OSError:
            return False
    return True
