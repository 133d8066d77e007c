"""Network namespaces: entering them, making them to stay, and talking netlink inside them.

For the helper process that wires (``host/network_worker``): a namespace belongs to a thread, and that process has one.
For the daemon there are only questions, and ``socket_in``, on a thread that ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from sexton.host.tools import TOOLS_PATH

NAMED = Path("/run/netns")
HOST = "/proc/self/ns/net"
_NEWNET, _NEWNS = 0x40000000, 0x00020000
_TOOL_SECONDS = 20.0

_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> str:
    return str(NAMED / name)


def _set(handle: int, kind: int) -> None:
    if _libc.setns(handle, kind):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a namespace: {os.strerror(number)}")


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """Be in a network namespace. Sockets made in it, and programs started in it, stay there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set(there, _NEWNET)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _set(home, _NEWNET)
    finally:
        os.close(home)


def see_mounts_of_the_host() -> None:
    """Be where the host's mounts are: a service's own mounts end with it, and names of namespaces are mounts."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/1/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return
        handle = os.open("/proc/1/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set(handle, _NEWNS)
        finally:
            os.close(handle)


def tool(*command: str, text: str = "", must: bool = True) -> str:
    """Run one of the system's network tools where this thread is; OSError with its words when it fails."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=_TOOL_SECONDS,
            env={"PATH": TOOLS_PATH, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"cannot run {command[0]}: no answer within {_TOOL_SECONDS:g} s") from None
    if done.returncode and must:
        words = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise OSError(f"cannot run {' '.join(command[:3])}: {words}")
    return done.stdout if not done.returncode else ""


def make(name: str) -> bool:
    """Have a namespace of this name; whether it was made just now. One that is only half made is made anew."""
    if exists(name):
        return False
    with contextlib.suppress(OSError):
        Path(path_of(name)).unlink()  # a name without a mount: whoever made it died in between
    tool("ip", "netns", "add", name)
    return True


def exists(name: str) -> bool:
    """Whether the name leads to a namespace, not just to the file that was to become one."""
    try:
        return os.stat(path_of(name)).st_dev == os.stat(HOST).st_dev
    except OSError:
        return False


def remove(name: str) -> None:
    """Take the name away, and with it the namespace and all that is in it."""
    tool("ip", "netns", "delete", name, must=False)
    with contextlib.suppress(OSError):
        Path(path_of(name)).unlink()


def named(prefix: str) -> list[str]:
    """The names that begin so, whole or half made."""
    try:
        return sorted(one for one in os.listdir(NAMED) if one.startswith(prefix))
    except OSError:
        return []


def write(path: str, value: str) -> None:
    """Set a kernel setting of the namespace this thread is in, unless it has that value; one that this kernel does not
    have is left out."""
    place = Path("/proc/sys/net") / path
    try:
        if place.read_text().strip() != value:
            place.write_text(value)
    except FileNotFoundError:
        return


def read(path: str) -> str:
    try:
        return (Path("/proc/sys/net") / path).read_text().strip()
    except OSError:
        return ""


def may_forward6() -> bool:
    """Whether packets of IPv6 that came by a device of ours are passed on: where the host forwards as a whole, and on
    kernels that can be told so of single devices (6.17 and later)."""
    return read("ipv6/conf/all/forwarding") == "1" or bool(read("ipv6/conf/default/force_forwarding"))


def socket_in(namespace: str, address: str, port: int, options: Sequence[tuple[int, int, bytes]] = ()) -> socket.socket:
    """A TCP socket that listens in another namespace. It is made on a thread of its own, which ends with it."""
    made: list[socket.socket | OSError] = []

    def make_it() -> None:
        try:
            with inside(namespace):
                bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                try:
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    for option in options:
                        bound.setsockopt(*option)
                    bound.bind((address, port))
                    bound.listen(1024)
                except BaseException:
                    bound.close()
                    raise
                made.append(bound)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make_it, name="namespace")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
