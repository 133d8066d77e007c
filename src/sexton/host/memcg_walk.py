"""Names every memory cgroup of the host, dead ones included, and what pins the dead: one walk inside the kernel.

The work is done by a small compiled program (``host/bpf``) in a process of its own: it loads the walk, runs it, writes
an account and ends, and with it ends everything it put into the kernel. A crash there costs this process nothing, and
neither libbpf nor its memory ever gets in here. The walk stops by itself at a deadline inside the kernel.

It needs root (or CAP_BPF and CAP_PERFMON), a kernel with type information and program iterators (5.17 and later), and
the compiled program. Whatever is missing is said as Unreadable with what would help, and callers fall back to
arithmetic.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from pathlib import Path

import msgspec

from sexton.core.zombie import Walk
from sexton.host.errors import Unreadable

PROGRAM = Path(__file__).parent / "bpf/built/memcg-walk"
# Longest stay of the walk in the kernel. 70,000 zombies take less than a quarter of it.
KERNEL_DEADLINE = 0.4
# Loading takes a tenth of a second on a busy host; one that takes this long is too sick to be walked.
DEADLINE = 5.0
_SHAPE = 1

_decoder = msgspec.msgpack.Decoder(Walk)


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


def release_memory() -> None:
    """Give back what a large account took up: a program that runs for months would keep it."""
    with contextlib.suppress(OSError, AttributeError):  # only this C library has it
        ctypes.CDLL(None).malloc_trim(0)


def walk(expected: int, *, pins: bool = False, program: Path = PROGRAM) -> Walk:
    """Walk once; raises Unreadable. ``expected`` is about how many cgroups there are: too few cost a second attempt."""
    command = [
        os.fspath(program),
        "pins" if pins else "groups",
        str(max(0, expected)),
        str(int(KERNEL_DEADLINE * 1000)),
    ]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False)
    except FileNotFoundError:
        raise Unreadable(
            "cannot name zombies: the walk over memory cgroups is not compiled",
            "Run scripts/build_bpf.sh (Debian: apt-get install clang libbpf-dev).",
        ) from None
    except subprocess.TimeoutExpired:
        raise Unreadable(
            f"cannot name zombies: the walk did not end within {DEADLINE:g} s", "Look again when the host is calmer."
        ) from None
    except OSError as error:
        raise Unreadable(
            f"cannot name zombies: cannot start {program}: {error.strerror}", "Compile it anew: scripts/build_bpf.sh."
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        refusal = _REFUSALS.get(done.returncode)
        reason = f"exit code {done.returncode}" if refusal is None else refusal.reason
        raise Unreadable(
            f"cannot name zombies: {reason}" + (f" ({said})" if said else ""),
            "Compile it anew: scripts/build_bpf.sh." if refusal is None else refusal.next_step,
        )
    try:
        account = _decoder.decode(done.stdout)
    except msgspec.MsgspecError as error:
        raise Unreadable(
            f"cannot name zombies: the account is damaged: {error}", "Compile it anew: scripts/build_bpf.sh."
        ) from error
    if account.shape != _SHAPE:
        raise Unreadable(
            "cannot name zombies: the compiled walk is of another version", "Compile it anew: scripts/build_bpf.sh."
        )
    return account
