"""Which processes are connected to a container engine's socket at this moment, and to which cgroup each belongs.

A container is a child of the engine, not of who asked for it; the asker is the process at the other end of the engine's
socket. The kernel tells both ends of a local connection (sock_diag), and ``/proc`` whose the other end is. Works as
root, for clients in the host's network namespace; one in a container with a network of its own is not seen. Costs one
dump of local sockets and a pass over open files: some ten milliseconds, so it is asked when a container is made.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

# Local sockets of a busy host are some thousand; the dump ends by itself or at this many bytes.
LARGEST_DUMP = 8 * 2**20
# The kernel answers at once; a reader that hears nothing for so long asked in vain.
PATIENCE = 0.5

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_DONE, _ERROR = 3, 2
_SHOW_NAME, _SHOW_PEER = 1, 4
_NAME, _PEER = 0, 2
_ESTABLISHED = 1
_CLONE_NEWNET = 0x40000000


class Client(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    command: str
    cgroup: str


def clients_of(engine: str, proc: Path = Path("/proc")) -> tuple[Client, ...]:
    """Who is connected to the socket of this path, ourselves left out. Empty where nobody can say. Blocks."""
    inodes: set[int] = set()
    for space in _network_namespaces(proc):
        # A thread of its own for each: entering a namespace changes the thread for good.
        asking = threading.Thread(target=_ask, args=(engine.encode(), space, inodes), daemon=True)
        asking.start()
        asking.join(2 * PATIENCE)
    if not inodes:
        return ()
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid() and _has(proc / name / "fd", wanted):
            with contextlib.suppress(OSError):
                command = (proc / name / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append(Client(pid=int(name), command=command, cgroup=_memory_group(proc / name / "cgroup")))
    return tuple(found)


def _network_namespaces(proc: Path) -> tuple[Path | None, ...]:
    """Ours, and the host's where that is another: a connection is listed where its client lives."""
    try:
        first = (proc / "1/ns/net").stat()
        ours = Path("/proc/self/ns/net").stat()
    except OSError:
        return (None,)
    return (None,) if (first.st_dev, first.st_ino) == (ours.st_dev, ours.st_ino) else (None, proc / "1/ns/net")


def _ask(engine: bytes, space: Path | None, found: set[int]) -> None:
    try:
        if space is not None:
            import ctypes  # only where we are not in the host's own network

            handle = os.open(space, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None).setns(handle, _CLONE_NEWNET) != 0:
                    return
            finally:
                os.close(handle)
        found.update(_peers(engine))
    except OSError:
        return


def _has(folder: Path, wanted: set[str]) -> bool:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path) in wanted:
                        return True
    except OSError:
        pass
    return False


def _memory_group(path: Path) -> str:
    """The process's group, by systemd's own hierarchy where there is one: that one follows units."""
    groups = {}
    for line in path.read_text(errors="replace").splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        groups.update(dict.fromkeys(names.split(","), group))
    return groups.get("name=systemd") or groups.get("") or groups.get("memory") or "/"


def _peers(engine: bytes) -> Iterator[int]:
    """Inodes at the other ends of the connections that this socket's owner has accepted."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diag:
        diag.settimeout(PATIENCE)
        question = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 1 << _ESTABLISHED, 0, _SHOW_NAME | _SHOW_PEER, 0, 0)
        diag.send(struct.pack("=IHHII", 16 + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + question)
        taken = 0
        while taken < LARGEST_DUMP:
            piece = diag.recv(65_536)
            taken += len(piece)
            at = 0
            while at + 16 <= len(piece):
                length, kind = struct.unpack_from("=IH", piece, at)
                if kind in (_DONE, _ERROR) or length < 16:
                    return
                if kind == _SOCK_DIAG_BY_FAMILY:
                    name, peer = _attributes(piece[at + 32 : at + length])
                    if peer and _plain(name) == _plain(engine):
                        yield peer
                at += (length + 3) & ~3


def _plain(path: bytes) -> bytes:
    """/var/run is a link to /run nearly everywhere, and a socket keeps the name it was bound by."""
    return path.removeprefix(b"/var") if path.startswith(b"/var/run/") else path


def _attributes(told: bytes) -> tuple[bytes, int]:
    name, peer, at = b"", 0, 0
    while at + 4 <= len(told):
        length, kind = struct.unpack_from("=HH", told, at)
        if length < 4:
            break
        value = told[at + 4 : at + length]
        if kind == _NAME:
            name = value.rstrip(b"\0")
        elif kind == _PEER and len(value) == 4:
            peer = struct.unpack("=I", value)[0]
        at += (length + 3) & ~3
    return name, peer
