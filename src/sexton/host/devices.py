"""The hardware addresses of this host's network devices, asked of the kernel without loading anything for it."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import threading

from sexton.host.namespaces import inside

_SIOCGIFHWADDR = 0x8927
_ETHERNET = 1


def by_hardware_address(namespace: str = "") -> dict[str, str]:
    """Names of the Ethernet devices of a network namespace, by hardware address in lower case; of this process's own,
    or of another one, where that is still there."""
    if not namespace:
        return _here()
    found: list[dict[str, str]] = []

    def look() -> None:
        with contextlib.suppress(OSError), inside(namespace):
            found.append(_here())

    thread = threading.Thread(target=look, name="namespace")
    thread.start()
    thread.join()
    return found[0] if found else {}


def names_in(namespace: str) -> frozenset[str]:
    """The names of the devices of another network namespace."""
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(OSError), inside(namespace):
            found.extend(name for _, name in socket.if_nameindex())

    thread = threading.Thread(target=look, name="namespace")
    thread.start()
    thread.join()
    return frozenset(found)


def _here() -> dict[str, str]:
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("16sH14s", name.encode()[:15], 0, b"")
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFHWADDR, request + bytes(8))
            except OSError:
                continue  # gone in between
            kind = struct.unpack_from("H", answer, 16)[0]
            if kind == _ETHERNET:
                found[":".join(f"{byte:02x}" for byte in answer[18:24])] = name
    return found
