"""Asks the credentials endpoint at a steady rate from many places, and costs the machine little itself.

    python credentials_load.py < plan      {"address", "rate", "seconds", "places": [{"path", "source" or "namespace"}]}

A request a place in turn, each at its time whatever became of those before, each on a connection of its own, as SDKs
make them: what a late answer holds up counts from when it was due. One process with one loop and bare sockets takes
less than half of what the endpoint takes, so that both fit on two cores. Prints one JSON object with what came of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import sys
import time
from collections import Counter
from typing import Any

_CLONE_NEWNET = 0x40000000
# An answer that is not there by then counts as none.
GIVE_UP_SECONDS = 20.0
HEAD = (
    "GET {path} HTTP/1.1\r\nHost: 169.254.170.2\r\nAccept-Encoding: identity\r\nAccept: application/json\r\n"
    "User-Agent: Boto3/1.34.0 md/Botocore#1.34.0 ua/2.0 os/linux#6.1 lang/python#3.11\r\n\r\n"
)


class Place:
    """Where calls come from, and what they ask."""

    def __init__(self, plan: dict[str, str]) -> None:
        self.head = HEAD.format(path=plan["path"]).encode()
        self._source = plan.get("source")
        self._namespace = os.open(plan["namespace"], os.O_RDONLY) if "namespace" in plan else None
        self._setns = ctypes.CDLL(None, use_errno=True).setns

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """A connection that is on its way, from here."""
        if self._namespace is not None and self._setns(self._namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter a task's network")
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if self._source:
            made.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: ports are many, of each address
            made.bind((self._source, 0))
        with contextlib.suppress(BlockingIOError):
            made.connect(address)
        return made


class Asked:
    """One request that is under way."""

    def __init__(self, line: socket.socket, due: float, head: bytes) -> None:
        self.line = line
        self.due = due
        self.unsent = head
        self.answer = b""

    def step(self) -> str:
        """Say and hear what can be said and heard now; the status when all of the answer is there."""
        try:
            if self.unsent:
                self.line.send(self.unsent)
                self.unsent = b""
            part = self.line.recv(8192)
        except BlockingIOError:
            return ""
        except OSError as error:
            return type(error).__name__
        self.answer += part
        head, blank, body = self.answer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        if blank and len(body) == int(length):
            return self.answer[9:12].decode()
        return "" if part else "cut short"


def load(plan: dict[str, Any]) -> dict[str, Any]:
    """Carry out a plan."""
    address = plan["address"][0], int(plan["address"][1])
    places = [Place(one) for one in plan["places"]]
    many, rate = int(plan["rate"] * plan["seconds"]), plan["rate"]
    poll = select.epoll()
    under_way: dict[int, Asked] = {}
    answers: Counter[str] = Counter()
    took: list[float] = []

    def done(one: Asked, status: str) -> None:
        answers[status] += 1
        took.append(time.monotonic() - one.due)
        del under_way[one.line.fileno()]
        one.line.close()

    begin, sent = time.monotonic() + 0.1, 0
    while sent < many or under_way:
        now = time.monotonic()
        while sent < many and (due := begin + sent / rate) <= now:
            place = places[sent % len(places)]
            one = Asked(place.connect(address), due, place.head)
            under_way[one.line.fileno()] = one
            poll.register(one.line, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
            sent += 1
        for descriptor, _ in poll.poll(max(0.0, begin + sent / rate - now) if sent < many else 0.1):
            if status := under_way[descriptor].step():
                done(under_way[descriptor], status)
        if sent == many and now > begin + plan["seconds"] + GIVE_UP_SECONDS:
            for one in list(under_way.values()):
                done(one, "none")
    took.sort()
    return {
        "answers": answers,
        "p50": took[len(took) // 2],
        "p99": took[int(len(took) * 0.99)],
        "longest": took[-1],
        "cpu": time.process_time(),
    }


if __name__ == "__main__":
    json.dump(load(json.load(sys.stdin)), sys.stdout)
