"""A host with systemd, in namespaces: its processes are this side's programs, and what they see of the machine is the
guest's. An engine and units of it make their cgroups by that systemd.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from engine import PrivateEngine
from systemd import Systemd

# The programs are this side's; what they see of the machine is the guest's.
_AS_ON_A_HOST = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /run; mkdir -p /run/systemd
mount --bind "$1/run/systemd" /run/systemd
"""


class Host:
    """The guest's namespaces with this side's programs in them."""

    def __init__(self, systemd: Systemd, scratch: Path) -> None:
        self.inside = ["nsenter", "-t", str(systemd.pid), "-m", "-p", "--"]
        self.systemd = systemd
        self.group = Path(f"/proc/{systemd.pid}/cgroup").read_text().rpartition("::/")[2].strip().split("/")[0]
        subprocess.run([*self.inside, "sh", "-c", _AS_ON_A_HOST, "sh", str(scratch)], check=True, timeout=10)


class Engine(PrivateEngine):
    """An engine that has systemd make its cgroups."""

    def __init__(self, root: Path, host: Host) -> None:
        super().__init__(root)
        self._host = host

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        changed = {"native.cgroupdriver=cgroupfs": "native.cgroupdriver=systemd", self.cgroup_parent: "system.slice"}
        words = [changed.get(word, word) for word in command]
        with (self.root / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._host.inside, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
            )
