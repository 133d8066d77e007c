"""A few facts of ``/proc`` about the whole host: kernel memory, time since boot, which boot this is; which process.

Every fact is None when this kernel does not tell it; no reader here raises. All files cost the same at any load.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class KernelMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of kernel memory that zombie cgroups inflate."""

    percpu: int | None = None
    slab_unreclaimable: int | None = None


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """Which boot of the host this is, and the seconds since (sleep included, clock changes not)."""

    id: str | None = None
    uptime: float | None = None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def kernel_memory(root: Path) -> KernelMemory:
    """``Percpu`` and ``SUnreclaim`` of ``/proc/meminfo``."""
    found: dict[str, int] = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in ("Percpu", "SUnreclaim"):
            words = rest.split()
            if words and words[0].isdigit():
                found[name] = int(words[0]) * 1024
    return KernelMemory(percpu=found.get("Percpu"), slab_unreclaimable=found.get("SUnreclaim"))


def boot(root: Path) -> Boot:
    """The boot's id and age."""
    boot_id = _text(root / "proc/sys/kernel/random/boot_id").strip() or None
    words = _text(root / "proc/uptime").split()
    try:
        uptime = float(words[0]) if words else None
    except ValueError:
        uptime = None
    return Boot(id=boot_id, uptime=uptime)


def process_started(pid: int, root: Path = Path("/")) -> int | None:
    """When a process was started, in the kernel's ticks since boot: with its number, it is no other."""
    words = _text(root / f"proc/{pid}/stat").rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 and words[19].isdigit() else None
