"""What the confined child does: one order, on one core, in a process that may be killed at any instant.

A script of its own (``python -I -S confined_work.py CORE PARENT``) that imports nothing but the standard library: it is
started often, must start fast, and runs as root. The order comes as JSON on standard input, the account goes as JSON to
standard output. Orders:

    drop      drop exact pages of files that are opened by inode and generation, never by name
    reclaim   have the kernel reclaim below one memory cgroup
    caches    have the kernel drop the whole host's clean page cache
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
# One call drops no more than this, so that even a huge file is left within milliseconds of the budget's end.
PAGES_AT_ONCE = 16384
PR_SET_PDEATHSIG = 1
# Shape of a file's handle: inode and generation in 32 bits each (ext4, xfs), or 64 and 32 (xfs with large inodes).
INO32_GEN, INO64_GEN = 1, 0x81


class FileHandle(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_uint),
        ("type", ctypes.c_int),
        ("inode_low", ctypes.c_uint32),
        ("second", ctypes.c_uint32),
        ("third", ctypes.c_uint32),
    ]


def open_by_handle(libc: ctypes.CDLL, mount: int, inode: int, generation: int) -> int:
    """Open a file by what it is, whatever its name; OSError when it is gone."""
    if inode < 2**32:
        handle = FileHandle(8, INO32_GEN, inode, generation, 0)
    else:
        handle = FileHandle(12, INO64_GEN, inode & 0xFFFFFFFF, inode >> 32, generation)
    opened = int(libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME))
    if opened < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return opened


def drop(order: dict[str, Any]) -> dict[str, Any]:
    """Drop pages file by file until the budget of time inside the kernel is spent; ``next`` is where to go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounts: dict[str, int] = {}
    errors: dict[str, int] = {}
    count = 0
    for count, (where, inode, generation, dirty, ranges) in enumerate(order["files"]):
        if resource.getrusage(resource.RUSAGE_SELF).ru_stime >= order["budget"]:
            return {"next": count, **errors}
        try:
            if where not in mounts:
                mounts[where] = os.open(bytes.fromhex(where), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            file = open_by_handle(libc, mounts[where], inode, generation)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "?")
            errors[name] = errors.get(name, 0) + 1
            continue
        try:
            if dirty:
                os.fdatasync(file)
            for first, pages in ranges:
                for at in range(first, first + pages, PAGES_AT_ONCE):
                    many = min(PAGES_AT_ONCE, first + pages - at)
                    os.posix_fadvise(file, at * PAGE, many * PAGE, os.POSIX_FADV_DONTNEED)
        except OSError as error:  # a disk that fails to write keeps its pages: they are not ours to lose
            name = errno.errorcode.get(error.errno or 0, "?")
            errors[name] = errors.get(name, 0) + 1
        finally:
            os.close(file)
    return {"next": len(order["files"]), **errors}


def write(path: str, text: str, seconds: float) -> dict[str, Any]:
    """Write to a kernel file; the kernel ends this process after so many seconds.

    By the clock on the wall: timers of processor time are looked at only on the way back from the kernel, which is
    where this process is for all that time.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    except OSError as error:
        # v2 says EAGAIN, v1 EBUSY or EINTR, when not all that was asked for could be reclaimed, whatever was.
        if error.errno not in (errno.EAGAIN, errno.EBUSY, errno.EINTR):
            raise
    finally:
        os.close(handle)
    return {}


def work(order: dict[str, Any]) -> dict[str, Any]:
    if order["do"] == "drop":
        return drop(order)
    if order["do"] == "reclaim":
        if order["version"] == 1:
            return write(f"{order['group']}/memory.force_empty", "0", order["seconds"])
        return write(f"{order['group']}/memory.reclaim", str(order["pages"] * PAGE), order["seconds"])
    os.sync()  # only clean pages are dropped
    return write("/proc/sys/vm/drop_caches", "1", order["seconds"])


def main() -> int:
    core, parent = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before it could be asked to take us along
        return 1
    os.sched_setaffinity(0, {core})
    try:
        said = work(json.load(sys.stdin))
    except OSError as error:
        said = {"error": f"{error.filename or ''} {error.strerror}".strip()}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
