"""Calls made from inside somebody else's network: a container's, or that of a namespace by its path.

A socket belongs to the namespace of the thread that made it. So a short-lived thread enters the namespace, connects,
and hands the socket out; whatever is then said over it arrives as if a process in there had said it.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

_CLONE_NEWNET = 0x40000000
ENDPOINT = ("169.254.170.2", 80)

T = TypeVar("T")


def in_network(namespace: str | Path, work: Callable[[], T]) -> T:
    """What ``work`` gives in a thread that has entered a network namespace; its error when it fails."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            handle = os.open(namespace, os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            finally:
                os.close(handle)
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Inside:
    """A place from which calls are made, by a process id in there or by the namespace's file."""

    def __init__(self, place: int | str | Path, source: tuple[str, int] | None = None) -> None:
        self.namespace = f"/proc/{place}/ns/net" if isinstance(place, int) else str(place)
        self._source = source

    def connect(self, address: tuple[str, int] = ENDPOINT, seconds: float = 5.0) -> socket.socket:
        return in_network(
            self.namespace, lambda: socket.create_connection(address, seconds, source_address=self._source)
        )

    def reaches(self, address: tuple[str, int], seconds: float = 0.5) -> bool:
        """Whether anybody takes a connection there."""
        with contextlib.suppress(OSError):
            self.connect(address, seconds).close()
            return True
        return False

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        address: tuple[str, int] = ENDPOINT,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request, as it is: no path is tidied and no redirection followed."""
        connection = http.client.HTTPConnection(*address)
        connection.sock = self.connect(address)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return Answer(reply.status, reply.read(), dict(reply.getheaders()))


@contextlib.contextmanager
def staying_in(namespace: str | Path) -> Iterator[None]:
    """Be in a network namespace with this thread, and so with every process that it starts meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        try:
            yield
        finally:
            libc.setns(before, _CLONE_NEWNET)
    finally:
        os.close(before)
        os.close(there)


class OwnNetwork:
    """A host's network of its own, and a neighbour on the other end of its only wire; both go with ``close()``.

    The host is 192.0.2.2 and its gateway, 192.0.2.1, is the neighbour.
    """

    host_address = "192.0.2.2"

    def __init__(self) -> None:
        tag = f"sx{os.getpid() % 0xFFFF:04x}{random.randrange(0xFFFF):04x}"
        self.host, self.neighbour = f"{tag}h", f"{tag}n"
        made = f"type veth peer name up1 netns {self.neighbour}"
        for command in (
            f"netns add {self.host}",
            f"netns add {self.neighbour}",
            f"-n {self.host} link set lo up",
            f"-n {self.neighbour} link set lo up",
            f"-n {self.host} link add up0 {made}",
            f"-n {self.host} addr add {self.host_address}/24 dev up0",
            f"-n {self.neighbour} addr add 192.0.2.1/24 dev up1",
            f"-n {self.host} link set up0 up",
            f"-n {self.neighbour} link set up1 up",
            f"-n {self.host} route add default via 192.0.2.1",
            # Whatever the host has, the neighbour looks for it there.
            f"-n {self.neighbour} route add 169.254.170.2 via {self.host_address}",
            f"-n {self.neighbour} route add 10.0.0.0/8 via {self.host_address}",
        ):
            self.ip(command)

    def ip(self, command: str) -> str:
        return subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True).stdout

    def path(self, name: str = "") -> str:
        return f"/run/netns/{name or self.host}"

    def close(self) -> None:
        for name in (self.host, self.neighbour):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
