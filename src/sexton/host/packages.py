"""Which package a file belongs to, and when packages were last changed: read from the package manager's own records.

Debian's and Red Hat's are known. A file nobody shipped (written by hand, by a generator, by an image's build) belongs
to none, and that is an answer. Asking costs a child process of some ten milliseconds, so it is asked for culprits only.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# A search through the lists of a few thousand packages takes 50 ms from a warm cache, a second from a cold disk.
DEADLINE = 3.0

_RECORDS = (
    "var/lib/dpkg/status",
    "var/lib/dpkg/lock",
    "var/log/dpkg.log",
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "var/lib/rpm/Packages",
)


def last_change(root: Path) -> float:
    """When packages were last installed, removed or configured (seconds since the epoch); 0 when nobody knows."""
    newest = 0.0
    for record in _RECORDS:
        try:
            newest = max(newest, (root / record).stat().st_mtime)
        except OSError:
            continue
    return newest


def owner_of(root: Path, path: str) -> str | None:
    """The package that ships this file of the host, or None: nobody did, or there is no package manager to ask."""
    for other in _same_file(path):
        if (root / "var/lib/dpkg/info").is_dir():
            said = _run(["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "--search", other])
            name = said.partition("\n")[0].partition(": ")[0]
            if name and not name.startswith("diversion "):
                return name.partition(",")[0].partition(":")[0]
        elif any((root / folder).is_dir() for folder in ("var/lib/rpm", "usr/lib/sysimage/rpm")):
            said = _run(["rpm", f"--root={root}", "-qf", "--queryformat", "%{NAME}", other])
            if said:
                return said.strip()
    return None


def _same_file(path: str) -> tuple[str, ...]:
    """A package may list a file under /lib that is read under /usr/lib, and the other way round."""
    if path.startswith("/usr/lib/"):
        return path, path.removeprefix("/usr")
    return (path, f"/usr{path}") if path.startswith("/lib/") else (path,)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
