"""Names every memory cgroup of the host, dead ones included, and what pins the dead: one walk inside the kernel.

The work is done by a small compiled program (``host/bpf``) in a process of its own: it loads the walk, runs it, writes
an account and ends, and with it ends everything it put into the kernel. A crash there costs this process nothing, and
neither libbpf nor its memory ever gets in here. The walk stops by itself at a deadline inside the kernel.

The account comes in frames. ``walk`` gathers all of them; ``each_dead`` hands on one zombie after the other and keeps
none, so that a program that runs for months is no larger for what lies around.

It needs root (or CAP_BPF and CAP_PERFMON), a kernel with type information and program iterators (5.17 and later), and
the compiled program. Whatever is missing is said as Unreadable with what would help, and callers fall back to
arithmetic.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sexton.core.zombie import Group, Holder, Pin, Walk
from sexton.host.errors import Unreadable

PROGRAM = Path(__file__).parent / "bpf/built/memcg-walk"
# Longest stay of the walk in the kernel. 70,000 zombies take less than a quarter of it.
KERNEL_DEADLINE = 0.4
# Loading takes a tenth of a second on a busy host; one that takes this long is too sick to be walked.
DEADLINE = 5.0
_SHAPE = 2
# Bytes of a frame's length, and what no frame is longer than: 256 rows with the longest paths there can be.
_LENGTH = 4
_LARGEST_FRAME = 8 << 20


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What comes first: how the walk went, and how many rows follow."""

    shape: int
    finished: bool
    late: bool
    full: int
    strayed: int
    groups: int
    holders: int
    pins: int


class _HeadFrame(msgspec.Struct, frozen=True, array_like=True, tag=0):
    head: _Head


class _GroupFrame(msgspec.Struct, frozen=True, array_like=True, tag=1):
    rows: list[Group]


class _HolderFrame(msgspec.Struct, frozen=True, array_like=True, tag=2):
    rows: list[Holder]


class _PinFrame(msgspec.Struct, frozen=True, array_like=True, tag=3):
    rows: list[Pin]


_decoder = msgspec.msgpack.Decoder(_HeadFrame | _GroupFrame | _HolderFrame | _PinFrame)


class _Said(msgspec.Struct, frozen=True):
    """What the program's exit code means for the reader."""

    reason: str
    next_step: str


_REFUSALS = {
    3: _Said(
        "the kernel does not permit it",
        "Run it as root on the host, or with CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE; kernel lockdown "
        "'confidentiality' forbids it to everybody.",
    ),
    4: _Said(
        "this kernel cannot run it",
        "It takes a kernel of 5.17 or later with CONFIG_DEBUG_INFO_BTF and memory cgroups.",
    ),
}


def walk(expected: int, *, pins: bool = False, program: Path = PROGRAM) -> Walk:
    """Walk once; raises Unreadable. ``expected`` is about how many cgroups there are: too few cost a second attempt."""
    head: _Head | None = None
    groups: list[Group] = []
    holders: list[Holder] = []
    pinning: list[Pin] = []
    for frame in _frames(expected, pins, program):
        match frame:
            case _HeadFrame():
                head = frame.head
            case _GroupFrame():
                groups += frame.rows
            case _HolderFrame():
                holders += frame.rows
            case _PinFrame():
                pinning += frame.rows
    if head is None or (head.groups, head.holders, head.pins) != (len(groups), len(holders), len(pinning)):
        raise _damaged("it is not whole")
    return Walk(
        finished=head.finished,
        late=head.late,
        full=head.full,
        strayed=head.strayed,
        groups=tuple(groups),
        holders=tuple(holders),
        pins=tuple(pinning),
    )


def each_dead(expected: int, *, program: Path = PROGRAM) -> Iterator[Group]:
    """Walk once and hand on the zombies; raises Unreadable, at the latest behind the last one."""
    missing = 1
    for frame in _frames(expected, False, program):
        if isinstance(frame, _HeadFrame):
            missing = frame.head.groups
        elif isinstance(frame, _GroupFrame):
            missing -= len(frame.rows)
            yield from (group for group in frame.rows if group.dead)
    if missing:
        raise _damaged("it is not whole")


def _frames(expected: int, pins: bool, program: Path) -> Iterator[_HeadFrame | _GroupFrame | _HolderFrame | _PinFrame]:
    """One walk's account; nothing of it is kept here."""
    command = [
        os.fspath(program),
        "pins" if pins else "groups",
        str(max(0, expected)),
        str(int(KERNEL_DEADLINE * 1000)),
    ]
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise Unreadable(
            "cannot name zombies: the walk over memory cgroups is not compiled",
            "Run scripts/build_bpf.sh (Debian: apt-get install clang libbpf-dev).",
        ) from None
    except OSError as error:
        raise Unreadable(
            f"cannot name zombies: cannot start {program}: {error.strerror}", "Compile it anew: scripts/build_bpf.sh."
        ) from error
    watch = _Watch(child)
    with child:
        try:
            for frame in _read(child):
                watch.told += 1
                yield frame
        except Unreadable:
            if not watch.overdue:
                raise
        finally:
            watch.done.set()
            child.kill()  # does nothing to one that has ended
    if watch.overdue:
        raise Unreadable(
            f"cannot name zombies: the walk did not end within {DEADLINE:g} s", "Look again when the host is calmer."
        )


class _Watch:
    """Ends a child that has told nothing for so long. How long its reader takes is no fault of the child's."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.told = 0
        self.overdue = False
        self.done = threading.Event()
        self._child = child
        threading.Thread(target=self._run, name="memcg walk's end", daemon=True).start()

    def _run(self) -> None:
        before = 0
        while not self.done.wait(DEADLINE):
            if self._child.poll() is not None:
                return
            if self.told == before:
                self.overdue = True
                self._child.kill()
                return
            before = self.told


def _read(child: subprocess.Popen[bytes]) -> Iterator[_HeadFrame | _GroupFrame | _HolderFrame | _PinFrame]:
    assert child.stdout is not None
    assert child.stderr is not None
    first = True
    while length := child.stdout.read(_LENGTH):
        size = int.from_bytes(length, "big")
        body = child.stdout.read(size) if size <= _LARGEST_FRAME else b""
        if len(body) != size:
            raise _damaged("a frame is torn")
        try:
            frame = _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise _damaged(str(error)) from error
        if first and (not isinstance(frame, _HeadFrame) or frame.head.shape != _SHAPE):
            raise Unreadable(
                "cannot name zombies: the compiled walk is of another version", "Compile it anew: scripts/build_bpf.sh."
            )
        first = False
        yield frame
    said = child.stderr.read().decode(errors="replace").strip().partition("\n")[0]
    if child.wait() != 0:
        refusal = _REFUSALS.get(child.returncode)
        reason = f"exit code {child.returncode}" if refusal is None else refusal.reason
        raise Unreadable(
            f"cannot name zombies: {reason}" + (f" ({said})" if said else ""),
            "Compile it anew: scripts/build_bpf.sh." if refusal is None else refusal.next_step,
        )


def _damaged(reason: str) -> Unreadable:
    return Unreadable(
        f"cannot name zombies: the account is damaged: {reason}", "Compile it anew: scripts/build_bpf.sh."
    )
