"""A throw-away systemd in namespaces of its own: what the caretaker looks at, without a container engine.

A small Debian root file system is made once by mmdebstrap and cached in ``.cache/`` of the checkout (15-20 s). Each
boot lays a tmpfs over it, so nothing of a test stays in it, and gets PID, mount, UTS, IPC and network namespaces and
a cgroup of its own in every hierarchy systemd uses. Killing its first process ends everything inside; the cgroups are
removed afterwards. ``/proc/sys`` and ``/sys`` are read-only inside: the machine's settings are not the guest's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
SUITE = "bookworm"
# Making the root file system downloads about 50 MB; tests that may be the first need this much time.
FIRST_BOOT_TIMEOUT = 300
BOOT_DEADLINE = 20.0
END_DEADLINE = 10.0

_INSIDE = r"""
set -e
mount --make-rprivate /
for tree in $GROUPS_OF_TEST; do echo 0 > "$tree/cgroup.procs"; done
mount -t tmpfs scratch "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/top"
mount -t overlay -o "lowerdir=$ROOTFS,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" overlay "$SCRATCH/top"
cd "$SCRATCH/top"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mkdir -p run/systemd/system
cp -a "$UNITS/." run/systemd/system/
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /sbin/init
"""


def rootfs(*packages: str) -> Path:
    """The cached root file system, with these packages besides; made now if this is the first time."""
    CACHE.mkdir(exist_ok=True)
    ready = CACHE / "-".join(("systemd-rootfs", SUITE, *packages))
    with (CACHE / "systemd-rootfs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_dir():
            include = ",".join(("systemd", "systemd-sysv", "dbus", *packages))
            draft = CACHE / f".draft-{secrets.token_hex(4)}"
            try:
                made = subprocess.run(
                    ["mmdebstrap", "--variant=minbase", f"--include={include}", SUITE, str(draft)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert made.returncode == 0, f"cannot make the test's root file system: {made.stderr[-2000:]}"
                draft.rename(ready)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return ready


class Systemd:
    """One running systemd; use as a context manager. ``root`` is its root directory as seen from here."""

    def __init__(
        self, units: Mapping[str, str], scratch: Path, packages: Sequence[str] = (), *, everywhere: bool = False
    ) -> None:
        """``units``: file name to text, put where systemd finds them before it starts; those with an [Install]
        section are not enabled by that: start them, or name them in another's Wants. ``everywhere``: a cgroup of its
        own in every hierarchy there is, as engines need that make theirs beside systemd's."""
        self._everywhere = everywhere
        self._units = scratch / "units"
        self._units.mkdir()
        for name, text in units.items():
            (self._units / name).write_text(text)
        self._packages = tuple(packages)
        self._scratch = scratch / "scratch"
        self._scratch.mkdir()
        self._groups: list[Path] = []
        self._outer: subprocess.Popen[bytes] | None = None
        self.pid = 0

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def __enter__(self) -> Systemd:
        lower = rootfs(*self._packages)
        # The same name everywhere: systemd mirrors its group of the unified hierarchy into its own.
        name = f"sexton-test-{secrets.token_hex(4)}"
        self._groups = [tree / name for tree in _hierarchies(everywhere=self._everywhere)]
        for group in self._groups:
            group.mkdir()
            for inherited in ("cpuset.cpus", "cpuset.mems"):  # a new one holds nobody before it has some
                if (group / inherited).exists() and group.parent.name == "cpuset":
                    (group / inherited).write_text((group.parent / inherited).read_text())
        self._outer = subprocess.Popen(
            ["unshare", "-pfmuin", "--kill-child", "sh", "-c", _INSIDE],
            env={
                **os.environ,
                "ROOTFS": str(lower),
                "UNITS": str(self._units),
                "SCRATCH": str(self._scratch),
                "GROUPS_OF_TEST": " ".join(map(str, self._groups)),
            },
            stdin=subprocess.DEVNULL,
        )
        try:
            self._wait_until_booted(self._outer)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_booted(self, outer: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + BOOT_DEADLINE
        state = "not started"
        while time.monotonic() < deadline:
            assert outer.poll() is None, f"the test's systemd ended with status {outer.returncode}"
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            if children:
                self.pid = int(children[0])
                if (self.root / "run/systemd/private").exists():
                    state = self.systemctl("is-system-running").stdout.strip()
                    if state in ("running", "degraded"):
                        return
            time.sleep(0.05)
        raise AssertionError(f"the test's systemd did not come up in {BOOT_DEADLINE:g} s: {state}")

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("systemctl", *words)

    def run(self, *words: str, seconds: float = END_DEADLINE) -> subprocess.CompletedProcess[str]:
        """A command inside; -r because without it nsenter keeps this side's root directory."""
        inside = ["nsenter", "-t", str(self.pid), "-p", "-m", "-u", "-i", "-n", "-r", "-w"]
        return subprocess.run([*inside, *words], capture_output=True, text=True, timeout=seconds, check=False)

    def __exit__(self, *_: object) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait(END_DEADLINE)
        deadline = time.monotonic() + END_DEADLINE
        while left := [group for group in self._groups if not _removed(group)]:
            assert time.monotonic() < deadline, f"cannot remove the test's cgroups: {left}"
            time.sleep(0.02)


def _hierarchies(*, everywhere: bool) -> list[Path]:
    """Where systemd keeps its groups and those that count: named systemd, memory, pids, and the unified one."""
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        wanted = {"name=systemd", "memory", "pids"} & set(options.split(","))
        if kind == "cgroup2" or (kind == "cgroup" and (wanted or everywhere)):
            found.append(Path(place))
    return list(dict.fromkeys(found))


def _removed(group: Path) -> bool:
    for top, below, _ in os.walk(group, topdown=False):
        for name in below:
            try:
                os.rmdir(os.path.join(top, name))
            except OSError:
                return False
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
