"""The cgroup above a task's containers: its limits, and its clean end.

An engine removes a container's cgroup the moment the container ends, while page cache that was first touched in it
still pins it: a zombie. Its parent, the task's own directory, is still there then, and reclaim on a live parent
reaches dead children. So the task's directory is drained first and removed after. Draining is bounded in time and
done by a child process that can be killed, since reclaim of what cannot be reclaimed would hold a core for seconds.

Works on v1 and hybrid (one directory per mounted hierarchy) and on v2 (one directory), where the engine makes its
cgroups itself. With the engine's systemd driver they are systemd's to make and remove: see ``taskslice``.

Nothing is remembered: what a dead process left is found by the task's name. Only the task's own directory is ever
written to, so other cgroups keep their cache; and only clean or written-back pages are dropped, so files stay whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sexton.kit import child

log = logging.getLogger(__name__)

# Parent of every task's directory, as Amazon's agent names it.
TASKS = "ecs"
CPU_PERIOD = 0.1
# The kernel's ranges of the same thing: shares on v1, a weight on v2.
_SHARES, _WEIGHTS = (2, 262_144), (1, 10_000)
# One drain's time; what it cannot free by then is pinned by something that reclaim does not reach.
DRAIN_SECONDS = 3.0

# What runc calls its process in a container until the container's own program replaces it.
_WAITING = "runc:["

# Drains at once: each may keep a core busy for its whole time, and tasks that end need none of them soon.
MOST_DRAINS = 2

# Reclaims until the charge is no more than what the kernel holds for itself, which pins nothing. Dirty pages need a
# moment to be written back: the first attempt wakes the writer, a later one frees them. $1 is the directory.
_DRAIN = """
cd "$1" || exit 0
n=0
while [ $n -lt 100 ]; do
  n=$((n + 1))
  if [ -e memory.force_empty ]; then
    echo 0 > memory.force_empty
    read -r used < memory.usage_in_bytes
    read -r own < memory.kmem.usage_in_bytes || own=0
    [ "$used" -le "$own" ] && exit 0
  else
    read -r used < memory.current
    [ "$used" -eq 0 ] && exit 0
    echo "$used" > memory.reclaim || true
    file=0
    while read -r name value; do case "$name" in file|anon|shmem) file=$((file + value));; esac; done < memory.stat
    [ "$file" -eq 0 ] && exit 0
  fi
  sleep 0.02
done
exit 1
"""


class Limits(NamedTuple):
    """What a task is held to; None leaves it open."""

    cpu_shares: int | None = None
    cpu_quota: float | None = None  # cores
    memory: int | None = None  # bytes
    pids: int | None = None  # processes and threads
    cpu_period: float = CPU_PERIOD  # seconds, over which the quota is counted

    @property
    def quota_us(self) -> int:
        """The quota of one period."""
        return round((self.cpu_quota or 0.0) * self.period_us)

    @property
    def period_us(self) -> int:
        return round(self.cpu_period * 1_000_000)

    @property
    def cpu_weight(self) -> int | None:
        """The shares as v2 has them."""
        if self.cpu_shares is None:
            return None
        (least, most), (lowest, highest) = _SHARES, _WEIGHTS
        shares = min(max(self.cpu_shares, least), most)
        return lowest + (shares - least) * (highest - lowest) // (most - least)


class Remains(StrEnum):
    """What a start that nobody saw the end of has left of a container."""

    NONE = "none"  # its runtime never came that far, or has tidied up
    WAITING = "waiting"  # the runtime's process, which never became the container's program
    RUNNING = "running"
    ENDED = "ended"


class TaskCgroups:
    """Task directories below one mount point of cgroup hierarchies."""

    def __init__(self, mount: Path, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._drains = asyncio.Semaphore(MOST_DRAINS)
        self._v2 = (mount / "cgroup.controllers").exists()
        if self._v2:
            self._tops = [mount]
        else:
            # Directories of hierarchies; links are second names of joined controllers (cpu -> cpu,cpuacct).
            self._tops = sorted(
                path for path in _listed(mount) if path.is_dir() and not path.is_symlink() and _is_hierarchy(path)
            )

    @property
    def unified(self) -> bool:
        """Whether there is one hierarchy for everything."""
        return self._v2

    async def writable(self) -> bool:
        """Whether limits can be set here."""
        memory = self._memory()
        return memory is not None and _can_write(memory)

    def parent(self, task_id: str) -> str:
        """What the engine is told as the container's parent."""
        return f"/{TASKS}/{task_id}"

    def group(self, task_id: str) -> str:
        """The task's own cgroup, below a hierarchy's mount point."""
        return f"/{TASKS}/{task_id}"

    def container_group(self, task_id: str, container_id: str) -> str:
        """One container's cgroup, below a hierarchy's mount point."""
        return f"{self.group(task_id)}/{container_id}"

    async def prepare(self, task_id: str, limits: Limits) -> None:
        """Make the task's directories and set its limits; OSError names what the kernel refused."""
        if self._v2:
            self._prepare_v2(task_id, limits)
            return
        memory = limits.memory and str(limits.memory)
        self._set_v1("memory", task_id, {"memory.limit_in_bytes": memory})
        if limits.cpu_quota:
            quota = {"cpu.cfs_period_us": str(limits.period_us), "cpu.cfs_quota_us": str(limits.quota_us)}
            self._set_v1("cpu", task_id, quota)
        elif limits.cpu_shares:
            self._set_v1("cpu", task_id, {"cpu.shares": str(limits.cpu_shares)})
        if limits.pids:
            self._set_v1("pids", task_id, {"pids.max": str(limits.pids)})

    def _set_v1(self, controller: str, task_id: str, values: Mapping[str, str | int | None]) -> None:
        top = self._find(controller)
        if top is None:
            return
        place = self._place(top, task_id)
        place.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            if value:
                (place / name).write_text(str(value))

    def _prepare_v2(self, task_id: str, limits: Limits) -> None:
        top = self._tops[0]
        (top / TASKS).mkdir(exist_ok=True)
        for place in (top, top / TASKS):
            (place / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        place = self._place(top, task_id)
        place.mkdir(exist_ok=True)
        if limits.cpu_quota:
            (place / "cpu.max").write_text(f"{limits.quota_us} {limits.period_us}")
        elif limits.cpu_weight:
            (place / "cpu.weight").write_text(str(limits.cpu_weight))
        if limits.memory:
            (place / "memory.max").write_text(str(limits.memory))
        if limits.pids:
            (place / "pids.max").write_text(str(limits.pids))

    async def reclaim(self, task_id: str) -> bool:
        """Drain the task's memory and remove its directories; False when something is still in the way."""
        memory = self._memory()
        if memory is not None:
            place = self._place(memory, task_id)
            if place.is_dir() and not await self._drain(place):
                log.warning("task memory is still pinned", extra={"task": task_id, "cgroup": str(place)})
        return await self._remove(task_id)

    async def _remove(self, task_id: str) -> bool:
        gone = [_removed(self._place(top, task_id)) for top in self._tops]  # each one, whatever the others say
        return all(gone)

    def _place(self, top: Path, task_id: str) -> Path:
        return top / self.group(task_id).lstrip("/")

    def _memory(self) -> Path | None:
        return self._tops[0] if self._v2 else self._find("memory")

    async def _drain(self, place: Path) -> bool:
        async with self._drains:
            try:
                return await child.run(["/bin/sh", "-c", _DRAIN, "sh", str(place)], DRAIN_SECONDS) == 0
            except OSError as error:  # no process to be had: the directories can be removed all the same
                log.warning("task memory cannot be drained", extra={"cgroup": str(place), "reason": str(error)})
                return False

    def named(self, prefix: str) -> set[str]:
        """The directories beside those of tasks whose names begin so, in any hierarchy."""
        head, tail = Path(self.group("*")).name.split("*")
        found = {path.name for top in self._tops for path in _listed(self._place(top, "*").parent)}
        names = {one.removeprefix(head).removesuffix(tail) for one in found if one.startswith(head + prefix)}
        return {one for one in names if self._place(Path(), one).name in found}

    def remains(self, task_id: str, container_id: str) -> Remains:
        """What is left of the start of a container that no engine knows the end of."""
        top = self._memory()
        if top is None or not self._container_place(top, task_id, container_id).is_dir():
            return Remains.NONE
        names = [self._name(pid) for pid in self._processes(task_id, container_id)]
        if not names:
            return Remains.ENDED
        return Remains.WAITING if all(name.startswith(_WAITING) for name in names) else Remains.RUNNING

    def empty(self, task_id: str, container_id: str) -> bool:
        """Whether no process is left in a container's cgroup; one that is not there any more holds none."""
        top = self._memory()
        if top is None:
            return False
        place = self._container_place(top, task_id, container_id)
        return not _holds_process(place) and not any(_holds_process(path) for path in _below(place))

    def kill(self, task_id: str, container_id: str = "") -> int:
        """SIGKILL whatever is left in a task's cgroup, or in that of one of its containers; how many there were."""
        found = self._processes(task_id, container_id)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def _processes(self, task_id: str, container_id: str) -> set[int]:
        found: set[int] = set()
        for top in self._tops:
            place = self._container_place(top, task_id, container_id)
            for path in [place, *_below(place)]:
                with contextlib.suppress(OSError):
                    found.update(int(pid) for pid in (path / "cgroup.procs").read_text().split())
        return found - {0}

    def _container_place(self, top: Path, task_id: str, container_id: str) -> Path:
        """Where a container is, or the whole task without one."""
        if not container_id:
            return self._place(top, task_id)
        return top / self.container_group(task_id, container_id).lstrip("/")

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text()
        except OSError:
            return ""  # ended just now; whether it had become the container's program, nobody knows

    async def close(self) -> None:
        """Let go of whatever was opened for this."""

    async def remove_parent(self) -> None:
        """Remove the common parent where nothing is left below it, not even another agent's empty directory."""
        for top in self._tops:
            with contextlib.suppress(OSError):
                (top / TASKS).rmdir()

    def _find(self, controller: str) -> Path | None:
        for top in self._tops:
            if controller in top.name.split(","):
                return top
        return None


def _holds_process(place: Path) -> bool:
    try:
        return bool((place / "cgroup.procs").read_text().strip())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # a v2 cgroup of threads: somebody is there


def _listed(place: Path) -> Iterable[Path]:
    try:
        return list(place.iterdir())
    except OSError:
        return ()


def _below(place: Path) -> Iterable[Path]:
    """The cgroups below one, at any depth. Its own files are many: which of its entries are directories is known from
    the listing, without asking for each."""
    try:
        with os.scandir(place) as entries:
            inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in inner:
        yield path
        yield from _below(path)


def _is_hierarchy(path: Path) -> bool:
    return (path / "cgroup.procs").exists()


def _can_write(hierarchy: Path) -> bool:
    """Making a directory is the only honest question: a read-only mount and a delegated one look alike otherwise. It
    is gone again before anybody asks what an agent without tasks is doing with a cgroup."""
    try:
        (hierarchy / TASKS).mkdir()
        (hierarchy / TASKS).rmdir()
    except FileExistsError:
        return os.access(hierarchy / TASKS, os.W_OK)
    except OSError:
        return False
    return True


def _removed(place: Path) -> bool:
    """Remove a directory and the empty ones below it."""
    try:
        place.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        below = [_removed(inner) for inner in _listed(place) if inner.is_dir()]
        # With nothing below it, it is processes that are in the way.
        return bool(below) and all(below) and _removed(place)
    return True
