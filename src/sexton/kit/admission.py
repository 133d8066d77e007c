"""Who is connected to a listener, and whether there is room for one more: in all, and from one address."""

from __future__ import annotations

import asyncio


class Admission:
    """Counts connections, whichever way they are served. ``per_peer`` 0 means no bound for one address."""

    def __init__(self, most: int, per_peer: int = 0) -> None:
        self._most = most
        self._per_peer = per_peer
        self._open: dict[object, str] = {}  # and whose connection it is
        self._peers: dict[str, int] = {}

    @property
    def connections(self) -> list[object]:
        return list(self._open)

    def enter(self, connection: object, transport: asyncio.BaseTransport) -> bool:
        """Count it; whether there is room for it. It leaves in either case."""
        peer = transport.get_extra_info("peername") if self._per_peer else None
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._open[connection] = address
        self._peers[address] = self._peers.get(address, 0) + 1
        return len(self._open) <= self._most and not (address and self._peers[address] > self._per_peer)

    def leave(self, connection: object) -> None:
        address = self._open.pop(connection, None)
        if address is None:
            return
        self._peers[address] -= 1
        if not self._peers[address]:
            del self._peers[address]
