"""A line to a server that misbehaves in the way a test asks for: slow, cut off, or answering something else.

A thread per connection copies bytes from and to the real server on loopback. What is set counts from the next
connection or the next piece on; ``mend()`` makes the line a good one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

PIECE = 16 << 10


class FaultyLine:
    """Listens on a port of its own; use as a context manager."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._closing = False
        self.answer = b""  # said to every request instead of asking the server
        self.cut_after = 0  # bytes of an answer, after which the line is dead
        self.cuts = 0  # how often it was
        self.pause = 0.0  # after each piece of an answer
        self.connections = 0

    def status(self, status: str, body: bytes = b"{}") -> None:
        """Answer everything with one status, such as "500 Internal Server Error"."""
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.answer = head.encode() + b"Connection: close\r\n\r\n" + body

    def mend(self) -> None:
        self.answer, self.cut_after, self.pause = b"", 0, 0.0

    def __enter__(self) -> FaultyLine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._server.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._open.add(near)
        with near, contextlib.suppress(OSError):
            if self.answer:
                near.recv(PIECE)
                near.sendall(self.answer)
                return
            with socket.create_connection(("127.0.0.1", self._target)) as far:
                self._open.add(far)
                threading.Thread(target=_copy, args=(near, far), daemon=True).start()
                try:
                    self._back(far, near)
                finally:
                    # The other thread still reads from here; a mere close would leave the line open under it.
                    for one in (near, far):
                        with contextlib.suppress(OSError):
                            one.shutdown(socket.SHUT_RDWR)
                    self._open.discard(far)
        self._open.discard(near)

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        sent = 0
        while piece := far.recv(PIECE):
            if self.cut_after and sent + len(piece) > self.cut_after:
                near.sendall(piece[: self.cut_after - sent])
                self.cuts += 1
                return
            near.sendall(piece)
            sent += len(piece)
            if self.pause:
                time.sleep(self.pause)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
