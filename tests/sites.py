"""Servers and clients in the network namespaces of tasks, all in the test's own process: what passes between them.

A ``Site`` listens in a task's namespace and answers HTTP over TCP and whatever comes over UDP; its kernel answers
pings. ``exchange`` tries many probes at once. A ``Call`` is a connection or a UDP flow that may be kept, to see what
becomes of it.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nethosts import inside
from netlab import packet

PORTS = (80, 81)
UDP_PORT = 53
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: task\r\n\r\n"
# A packet between namespaces takes far less than a millisecond; whatever has not come by then was dropped.
REFUSED_SECONDS = 0.3
PATIENCE_SECONDS = 4.0


class Probe(NamedTuple):
    """One exchange: ``t80``, ``t81``, ``u53``, ``s80`` (TCP 80 over IPv6) or ``ping``."""

    source: str
    target: str
    kind: str

    def __str__(self) -> str:
        return f"{self.source}>{self.target} {self.kind}"


KINDS = ("t80", "t81", "u53", "s80", "ping")


class Site:
    """A task as something that can be reached and that reaches others."""

    def __init__(self, name: str, space: str, ipv4: str, ipv6: str) -> None:
        self.name, self.space, self.ipv4, self.ipv6 = name, space, ipv4, ipv6
        self._stop = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stop[0], selectors.EVENT_READ)
        for family, address in ((socket.AF_INET, ipv4), (socket.AF_INET6, ipv6)):
            for port in PORTS:
                listener = self.socket(family, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address, port))
                listener.listen(64)
                self._selector.register(listener, selectors.EVENT_READ, "listener")
            datagrams = self.socket(family, socket.SOCK_DGRAM)
            datagrams.bind((address, UDP_PORT))
            self._selector.register(datagrams, selectors.EVENT_READ, "datagrams")
        self._thread = threading.Thread(target=self._serve, name=f"site-{name}", daemon=True)
        self._thread.start()

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        with inside(self.space):
            made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    def address(self, kind: str) -> str:
        return self.ipv6 if kind.startswith("s") else self.ipv4

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                one = key.fileobj
                if one is self._stop[0]:
                    return
                assert isinstance(one, socket.socket)
                with contextlib.suppress(OSError):
                    if key.data == "listener":
                        made, _ = one.accept()
                        made.setblocking(False)
                        self._selector.register(made, selectors.EVENT_READ, "connection")
                    elif key.data == "datagrams":
                        data, peer = one.recvfrom(2048)
                        one.sendto(data, peer)
                    elif one.recv(2048):
                        one.send(ANSWER)
                    else:
                        self._selector.unregister(one)
                        one.close()

    def close(self) -> None:
        self._stop[1].send(b"x")
        self._thread.join(5)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._stop[1].close()
        self._selector.close()


class Call:
    """One probe that has begun: its socket, and what has come back."""

    def __init__(self, source: Site, target: Site, kind: str, mark: int = 0) -> None:
        port = {"u53": UDP_PORT, "ping": 0}[kind] if kind in ("u53", "ping") else int(kind[1:])
        self.kind, self._to = kind, (target.address(kind), port)
        family = socket.AF_INET6 if kind.startswith("s") else socket.AF_INET
        self._sent = False
        self._echo = packet(source.ipv4, target.ipv4, 1, 0x0800, mark) if kind == "ping" else b""
        if kind == "ping":
            self.socket = source.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        elif kind == "u53":
            self.socket = source.socket(family, socket.SOCK_DGRAM)
        else:
            self.socket = source.socket(family, socket.SOCK_STREAM)
            self.socket.connect_ex(self._to)
        self._mark = struct.pack("!I", mark)

    @property
    def wants_to_write(self) -> bool:
        return not self._sent

    def write(self) -> None:
        """Send what is asked. Over TCP this is possible once there is a connection."""
        if self.kind == "ping":
            self.socket.sendto(self._echo, (self._to[0], 0))
        elif self.kind == "u53":
            self.socket.sendto(self._mark, self._to)
        else:
            self.socket.send(REQUEST)
        self._sent = True

    def answered(self) -> bool:
        """Whether an answer of its own has come."""
        with contextlib.suppress(BlockingIOError):
            data = self.socket.recv(2048)
            if self.kind == "ping":
                return data[20:21] == b"\0" and data[-4:] == self._mark
            return data == self._mark if self.kind == "u53" else data.startswith(ANSWER)
        return False

    def again(self, seconds: float = REFUSED_SECONDS) -> bool:
        """Another exchange over the same connection or flow: whether it was answered."""
        self.write()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.socket], [], [], max(0.0, end - time.monotonic()))[0] and self.answered():
                return True
        return False

    def close(self) -> None:
        self.socket.close()


_marks = iter(range(1, 1 << 31))


def begun(source: Site, target: Site, kind: str) -> Call:
    """A connection or flow that passes now and is kept."""
    call = Call(source, target, kind, next(_marks))
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and not select.select([], [call.socket], [], 0.05)[1]:
        pass
    assert call.again(PATIENCE_SECONDS), f"{source.name}>{target.name} {kind} does not pass"
    return call


def exchange(sites: dict[str, Site], probes: Iterable[Probe], expected: Collection[Probe]) -> set[Probe]:
    """Which of the probes are answered. What is expected is waited for, all else is given as long as it could need."""
    calls = {Call(sites[one.source], sites[one.target], one.kind, next(_marks)): one for one in probes}
    passed: set[Probe] = set()
    began = time.monotonic()
    try:
        while True:
            elapsed = time.monotonic() - began
            if elapsed > PATIENCE_SECONDS or (elapsed > REFUSED_SECONDS and set(expected) <= passed):
                return passed
            open_ones = {call.socket: call for call, probe in calls.items() if probe not in passed}
            writing = [one for one, call in open_ones.items() if call.wants_to_write]
            readable, writable, _ = select.select(list(open_ones), writing, [], 0.05)
            for one in writable:
                with contextlib.suppress(OSError):
                    open_ones[one].write()
            for one in readable:
                with contextlib.suppress(OSError):
                    if not open_ones[one].wants_to_write and open_ones[one].answered():
                        passed.add(calls[open_ones[one]])
    finally:
        for call in calls:
            call.close()


def transfer(client: str, server: str, address: str, port: int) -> str:
    """What a client in one namespace says to a server in another and hears back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(server):
        listening = socket.create_server(("", port), family=family)
    with listening:
        listening.settimeout(5)
        with inside(client):
            calling = socket.create_connection((address, port), timeout=5)
        with calling:
            served, _ = listening.accept()
            with served:
                calling.sendall(b"x" * 40_000)  # larger than any packet: sizes on the way fit
                calling.shutdown(socket.SHUT_WR)
                length = 0
                while data := served.recv(65536):
                    length += len(data)
                served.sendall(f"{length}".encode())
            return calling.recv(100).decode()
