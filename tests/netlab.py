"""A VPC's router and tasks made of network namespaces only, to see what the kernel does with packets under a ruleset.

As ``docs/adr/0011`` has it: the router has one end of a veth pair per task, a route and a written-down neighbour for
each; ``up0`` leads to the world outside and ``vx0`` to another host's tasks, both played by one more namespace here.
Sockets are opened in the namespaces and used from the test's own process, so that a probe costs no process. Nothing
here leaves the namespaces, and they go with ``close``.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
GATEWAY4, GATEWAY6, ROUTER_MAC = "169.254.1.1", "fe80::1", "02:ff:00:00:00:01"


class Lab:
    """One router. ``places`` are namespaces by the name of what lives there."""

    def __init__(self) -> None:
        self.name = f"sxnet{os.getpid() % 0xFFFF:04x}{random.randrange(0xFFFF):04x}"
        self._spaces: list[str] = []
        self._batch: list[str] = []
        self._raw: dict[tuple[str, int, int, bool], socket.socket] = {}

    def __enter__(self) -> Lab:
        try:
            self.space("router")
            with self.inside("router"):
                for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                    _sysctl(path, "1")
                _sysctl("netfilter/nf_conntrack_tcp_loose", "0")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for one in self._raw.values():
            one.close()
        for space in reversed(self._spaces):
            subprocess.run(["ip", "netns", "delete", self.full(space)], check=False, timeout=30)

    def full(self, space: str) -> str:
        return f"{self.name}-{space}"

    def space(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", self.full(name)], check=True, timeout=30)
        self._spaces.append(name)
        with self.inside(name):
            for kind in ("all", "default"):
                _sysctl(f"ipv6/conf/{kind}/accept_dad", "0")
                _sysctl(f"ipv6/conf/{kind}/disable_ipv6", "0")
        _run(f"ip -n {self.full(name)} link set lo up")

    @contextlib.contextmanager
    def inside(self, space: str) -> Iterator[None]:
        """This thread in a namespace, for as long as it takes to open something there."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.full(space)}") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def wire(self, space: str, device: str, mac: str, addresses: list[str]) -> None:
        """A namespace behind a device of the router, with these addresses and the router as its way to all others."""
        if space not in self._spaces:
            self.space(space)
        inner, router, inside = self.full(space), self.full("router"), f"e{device}"
        pair = f"{device} netns {router} address {ROUTER_MAC} type veth peer name {inside} netns {inner} address {mac}"
        _batch(None, [f"link add {pair}"])
        routes, own = [f"link set {device} up"], [f"link set {inside} up"]
        defaults: dict[str, str] = {}
        for address in addresses:
            gateway, block, flag = (
                (GATEWAY6, f"{address}/128", "nodad") if ":" in address else (GATEWAY4, f"{address}/32", "")
            )
            routes.append(f"neigh replace {address} lladdr {mac} dev {device} nud permanent")
            routes.append(f"route replace {block} dev {device}")
            own.append(f"address add {block} dev {inside} {flag}")
            defaults.setdefault(gateway, f"route add default via {gateway} dev {inside} onlink src {address}")
        own += [f"neigh replace {gateway} lladdr {ROUTER_MAC} dev {inside} nud permanent" for gateway in defaults]
        _batch(router, routes)
        _batch(inner, [*own, *defaults.values()])

    def nft(self, text: str) -> None:
        with self.inside("router"):
            done = subprocess.run(
                ["nft", "-f", "-"], input=text, text=True, capture_output=True, timeout=30, check=False
            )
        assert done.returncode == 0, f"{done.stderr}\n{text}"

    def counters(self, table: str) -> dict[str, int]:
        """Packets that each comment in the table has counted."""
        with self.inside("router"):
            done = subprocess.run(
                ["nft", "-j", "list", "table", "inet", table], text=True, capture_output=True, timeout=30, check=True
            )
        found: dict[str, int] = {}
        _count(json.loads(done.stdout), "", found)
        return found

    def raw(self, space: str, family: int, protocol: int, *, receiving: bool = False) -> socket.socket:
        key = (space, family, protocol, receiving)
        if key not in self._raw:
            with self.inside(space):
                made = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET, socket.SOCK_RAW, protocol)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self._raw[key] = made
        return self._raw[key]

    def send(self, space: str, source: str, destination: str, protocol: int, port: int, mark: int) -> None:
        """The first packet of a flow; ``mark`` tells it again where it arrives."""
        family = 6 if ":" in source else 4
        sender = self.raw(space, family, protocol)
        with contextlib.suppress(OSError):
            sender.bind((source, 0))
        sender.sendto(packet(source, destination, protocol, port, mark), (destination, 0))

    def spoof(self, space: str, address: str) -> None:
        """Let a place send with an address that is not its own."""
        with self.inside(space):
            for protocol in (6, 17):
                self.raw(space, 4, protocol).setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
        subprocess.run(["ip", "-n", self.full(space), "address", "add", f"{address}/32", "dev", "lo"], check=True)

    def received(self, space: str, family: int, protocol: int) -> list[int]:
        """The marks of what has arrived."""
        marks = []
        receiver = self.raw(space, family, protocol, receiving=True)
        while True:
            try:
                data = receiver.recv(2048)
            except BlockingIOError:
                return marks
            body = data if family == 6 else data[(data[0] & 15) * 4 :]
            if body[-12:-4] == b"sexton--":
                marks.append(struct.unpack("!I", body[-4:])[0])


def packet(source: str, destination: str, protocol: int, port: int, mark: int) -> bytes:
    """A packet's body with right checksums: whatever fails them is no flow to connection tracking."""
    tail = b"sexton--" + struct.pack("!I", mark)
    own = 20000 + mark % 40000
    if protocol == 6:
        head = struct.pack("!HHIIBBHHH", own, port, mark, 0, 5 << 4, 2, 1024, 0, 0)
        return _with_sum(head + tail, 16, source, destination, protocol)
    if protocol == 17:
        return _with_sum(struct.pack("!HHHH", own, port, 8 + len(tail), 0) + tail, 6, source, destination, protocol)
    if protocol in (1, 58):
        head = struct.pack("!HHHH", port, 0, own, mark & 0xFFFF)
        return _with_sum(head + tail, 2, source, destination, protocol)
    return struct.pack("!HH", 0, 0x1234) + tail


def _with_sum(body: bytes, place: int, source: str, destination: str, protocol: int) -> bytes:
    ends = b"".join(ipaddress.ip_address(each).packed for each in (source, destination))
    pseudo = b"" if protocol == 1 else ends + struct.pack("!II", len(body), protocol)
    data = pseudo + body + b"\0" * (len(body) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return body[:place] + struct.pack("!H", ~total & 0xFFFF) + body[place + 2 :]


def until(condition, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _count(part: object, comment: str, found: dict[str, int]) -> None:
    """Counters and comments are fields of one element, or a rule's comment stands above its counter."""
    if isinstance(part, list):
        for each in part:
            _count(each, comment, found)
    elif isinstance(part, dict):
        comment = part.get("comment") if isinstance(part.get("comment"), str) else comment
        for key, value in part.items():
            if key == "counter" and isinstance(value, dict) and comment:
                found[comment] = found.get(comment, 0) + value["packets"]
            else:
                _count(value, comment, found)


def _enter(space: int) -> None:
    if _libc.setns(space, _NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _sysctl(path: str, value: str) -> None:
    with open(f"/proc/sys/net/{path}", "w") as file:
        file.write(value)


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, (command, done.stderr)


def _batch(space: str | None, lines: list[str]) -> None:
    command = ["ip", *(["-n", space] if space else []), "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, (lines, done.stderr)
