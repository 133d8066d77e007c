"""A Debian root file system full of services, made once by mmdebstrap and cached in ``.cache/`` (about a minute).

Tests never write into it: ``over()`` lays a scratch directory over it and mounts what a package manager needs.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "cron", "openssh-server", "docker.io", "chrony", "nginx-light", "postgresql"),
    *("rsyslog", "avahi-daemon", "redis-server", "haproxy", "nfs-common", "smartmontools"),
)
# Making it downloads some 130 MB; a test that may be the first needs this much time.
FIRST_TIMEOUT = 900
# What nobody audits, left out while unpacking.
WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def rich_root() -> Path:
    """The cached root file system, made now if this is the first time."""
    CACHE.mkdir(exist_ok=True)
    ready = CACHE / f"rich-rootfs-{SUITE}"
    with (CACHE / "rich-rootfs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_dir():
            draft = CACHE / f".draft-{secrets.token_hex(4)}"
            leave_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in WITHOUT]
            command = [
                "mmdebstrap",
                "--variant=minbase",
                "--dpkgopt=force-unsafe-io",
                f"--include={','.join(PACKAGES)}",
                *leave_out,
                SUITE,
                str(draft),
            ]
            try:
                made = subprocess.run(command, capture_output=True, text=True, check=False)
                assert made.returncode == 0, f"cannot make the test's root file system: {made.stderr[-2000:]}"
                draft.rename(ready)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return ready


@contextmanager
def over(lower: Path, scratch: Path) -> Iterator[Path]:
    """A copy of it that may be written, without copying; gone afterwards."""
    scratch.mkdir(parents=True, exist_ok=True)
    mounts: list[Path] = []

    def mount(where: Path, *words: str) -> None:
        subprocess.run(["mount", *words, str(where)], check=True, capture_output=True)
        mounts.append(where)

    try:
        mount(scratch, "-t", "tmpfs", "scratch")
        upper, work, top = (scratch / name for name in ("upper", "work", "top"))
        for folder in (upper, work, top):
            folder.mkdir()
        mount(top, "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay")
        mount(top / "proc", "-t", "proc", "proc")
        mount(top / "dev/null", "--bind", "/dev/null")
        yield top
    finally:
        for where in reversed(mounts):
            subprocess.run(["umount", str(where)], check=True, capture_output=True)


def inside(top: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in that root."""
    return subprocess.run(
        ["chroot", str(top), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
    )
