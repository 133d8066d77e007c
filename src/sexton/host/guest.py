"""A throw-away systemd in namespaces of its own: half a second to boot, and nothing of it is left.

    root file system (read only, under a tmpfs) + unit files + binds -> unshare -> its own /sbin/init

It has PID, mount, UTS, IPC and network namespaces and one cgroup of its own in every hierarchy a systemd uses, so
that its groups can be told from all others. ``/proc/sys`` and ``/sys`` are read-only inside: the machine's settings
are not the guest's. All its mounts are in a namespace that ends with its last process; that process ends with ours,
whatever kills us; its groups are removed afterwards, and ``sweep()`` removes those of guests whose keeper was killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from sexton.host.errors import Absent, Unreadable

NAME = "sexton-guest-"
BOOT_DEADLINE = 30.0
END_DEADLINE = 15.0
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "chroot")

_INSIDE = r"""
set -e
mount --make-rprivate /
for tree in $GUEST_GROUPS; do echo 0 > "$tree/cgroup.procs"; done
mount -t tmpfs scratch "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/top"
mount -t overlay -o "lowerdir=$ROOTFS,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" overlay "$SCRATCH/top"
cp -a "$FILES/." "$SCRATCH/top/"
cd "$SCRATCH/top"
if [ -n "$BIND_FROM" ]; then mkdir -p "./$BIND_TO"; mount --bind "$BIND_FROM" "./$BIND_TO"; fi
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
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /sbin/init
"""


class Guest:
    """One running systemd; use as a context manager. ``root`` is its root directory as seen from here, ``group`` its
    own cgroup below each hierarchy."""

    def __init__(
        self,
        rootfs: Path,
        scratch: Path,
        files: Mapping[str, tuple[str, int]],
        bind: tuple[Path, str] | None = None,
    ) -> None:
        """``files``: path inside -> text and mode, laid over the root file system; a text that begins with ``->`` is a
        link. ``bind``: a directory of this machine, and where the guest sees it."""
        self._rootfs = rootfs
        self._files = scratch / "files"
        self._scratch = scratch / "top"
        self._bind = bind
        for folder in (self._files, self._scratch):
            folder.mkdir()
        for name, (text, mode) in files.items():
            path = self._files / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                path.symlink_to(text.removeprefix("->").strip())
            else:
                path.write_text(text)
                path.chmod(mode)
        self.group = f"{NAME}{os.getpid()}-{secrets.token_hex(4)}"
        self._groups: list[Path] = []
        self._outer: subprocess.Popen[bytes] | None = None
        self.pid = 0

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def __enter__(self) -> Guest:
        for tool in TOOLS:
            if shutil.which(tool) is None:
                raise Absent(f"there is no '{tool}' here, which a guest needs: install util-linux and coreutils")
        if os.geteuid() != 0:
            raise Unreadable("a guest needs namespaces, mounts and cgroups of its own", "Run it as root.")
        self._groups = [tree / self.group for tree in hierarchies()]
        try:
            for group in self._groups:
                group.mkdir()
            self._outer = subprocess.Popen(
                # Whatever ends us ends unshare, which ends the guest's first process, which ends all others.
                ["setpriv", "--pdeathsig", "KILL", "unshare", "-pfmuin", "--kill-child", "sh", "-c", _INSIDE],
                env={
                    "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
                    "ROOTFS": str(self._rootfs),
                    "FILES": str(self._files),
                    "SCRATCH": str(self._scratch),
                    "BIND_FROM": "" if self._bind is None else str(self._bind[0]),
                    "BIND_TO": "" if self._bind is None else self._bind[1].lstrip("/"),
                    "GUEST_GROUPS": " ".join(map(str, self._groups)),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is ours to answer, in order
            )
            self._wait_until_booted(self._outer)
        except OSError as error:
            self.__exit__()
            raise Unreadable(f"cannot start a guest: {error}", "Run it as root, outside a container.") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_booted(self, outer: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + BOOT_DEADLINE
        while time.monotonic() < deadline:
            if outer.poll() is not None:
                said = (outer.stderr.read() if outer.stderr else b"").decode(errors="replace").strip()
                raise Unreadable(f"the guest ended at once: {said}", "It needs root, namespaces and an overlay.")
            with contextlib.suppress(OSError, ValueError):
                children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
                if children:
                    self.pid = int(children[0])
                    if (self.root / "run/systemd/private").exists():
                        state = self.run("systemctl", "is-system-running").stdout.strip()
                        if state in ("running", "degraded", "starting"):
                            return
            time.sleep(0.05)
        raise Unreadable(f"the guest did not boot within {BOOT_DEADLINE:g} s", "Try again on a quieter host.")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command inside; -r because without it nsenter keeps this side's root directory."""
        inside = ["nsenter", "-t", str(self.pid), "-p", "-m", "-u", "-i", "-n", "-r", "-w"]
        return subprocess.run([*inside, *words], capture_output=True, text=True, timeout=END_DEADLINE, check=False)

    def __exit__(self, *_: object) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait(END_DEADLINE)
            if self._outer.stderr is not None:
                self._outer.stderr.close()
        deadline = time.monotonic() + END_DEADLINE
        while left := [group for group in self._groups if not removed(group)]:
            if time.monotonic() > deadline:
                raise Unreadable(f"cannot remove the guest's cgroups {left[0]}", "Look which processes are in them.")
            time.sleep(0.02)


def hierarchies() -> list[Path]:
    """Where systemd keeps its groups and those that count: named systemd, memory, pids, and the unified one."""
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        wanted = {"name=systemd", "memory", "pids"} & set(options.split(","))
        if kind == "cgroup2" or (kind == "cgroup" and wanted):
            found.append(Path(place))
    return list(dict.fromkeys(found))


def removed(group: Path) -> bool:
    """Remove a group and those below it; False while somebody is still in one."""
    try:
        for top, below, _ in os.walk(group, topdown=False):
            for name in below:
                os.rmdir(os.path.join(top, name))
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep() -> int:
    """Remove what guests left whose keeper was killed: empty groups, named after a process that is no more."""
    swept = 0
    for tree in hierarchies():
        with contextlib.suppress(OSError):
            for name in os.listdir(tree):
                keeper = re.match(rf"{re.escape(NAME)}(\d+)-", name)
                if keeper is not None and not Path(f"/proc/{keeper[1]}").exists():
                    swept += removed(tree / name)
    return swept
