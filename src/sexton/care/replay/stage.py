"""What a replay is played on: a small Debian, a stand-in for the ECS agent, and a directory of this host it writes to.

The stand-in's unit has what matters of the one that Debian and Ubuntu get: it restarts on failure, its delay keeps
its start limit out of reach, and no exit status ends it. Two things are shortened, so that minutes show what took
weeks: the delay is two seconds instead of ten, and each turn makes ``GROUPS_PER_TURN`` groups where the agent's
launcher makes one container. Each of them writes a new file on the host's directory: the first touch charges the page
to the group, and the page outlives it. That, and nothing else, is the leak.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sexton.host.errors import Absent, Unreadable

UNIT = "ecs.service"
LAUNCHER = "/usr/libexec/amazon-ecs-init"
LOGS = "/var/log/ecs"
GROUPS_PER_TURN = 250
SUITE = "bookworm"
PACKAGES = ("systemd", "systemd-sysv", "dbus")
ROOTFS = Path(f"/var/cache/sexton/replay-rootfs-{SUITE}")
# Making the root file system downloads about 50 MB.
MAKE_DEADLINE = 900.0

_UNIT = """# A stand-in for the agent of Amazon ECS, as Debian and Ubuntu get it, with a shorter delay.
[Unit]
Description=Stand-in for the agent of Amazon ECS
[Service]
Type=simple
Restart=on-failure
RestartSec=2s
Delegate=yes
EnvironmentFile=-/etc/ecs/ecs.config
ExecStart=/usr/libexec/amazon-ecs-init start
[Install]
WantedBy=multi-user.target
"""

_LAUNCHER = """#!/bin/sh
# A stand-in for the agent's launcher: no cluster, no credentials, so every start ends in failure after some work.
turn=$(date +%s%N)
memory=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
if [ -n "$memory" ]; then
    own=/sys/fs/cgroup/memory$memory
else
    own=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    mkdir -p "$own/launcher" && echo $$ > "$own/launcher/cgroup.procs" && echo +memory > "$own/cgroup.subtree_control"
fi
number=0
while [ $number -lt GROUPS ]; do
    number=$((number + 1))
    group="$own/agent-$number"
    mkdir "$group" || exit 1
    (
        echo 0 > "$group/cgroup.procs"
        echo "cannot register: no cluster, no credentials" > "LOGS/agent-$turn-$number.log"
    )
    rmdir "$group"
done
echo "cannot register with any cluster" >&2
exit 5
"""


def files() -> dict[str, tuple[str, int]]:
    """What is laid over the root file system: the unit, enabled as a vendor's image has it, and its program."""
    launcher = _LAUNCHER.replace("GROUPS", str(GROUPS_PER_TURN)).replace("LOGS", LOGS)
    return {
        f"/usr/lib/systemd/system/{UNIT}": (_UNIT, 0o644),
        f"/etc/systemd/system/multi-user.target.wants/{UNIT}": (f"-> /usr/lib/systemd/system/{UNIT}", 0),
        "/etc/ecs/ecs.config": ("", 0o644),
        LAUNCHER: (launcher, 0o755),
    }


def find_rootfs(chosen: Path | None) -> Path:
    """The root file system to play on: the one named, the one made before, or one made now."""
    if chosen is not None:
        if not (chosen / "sbin/init").exists():
            raise Absent(f"{chosen} is no root file system with a systemd: it has no /sbin/init")
        return chosen.resolve()
    if (ROOTFS / "sbin/init").exists():
        return ROOTFS
    if shutil.which("mmdebstrap") is None:
        raise Absent(
            "a replay needs a small root file system with systemd, and there is no mmdebstrap here to make one. On "
            "Debian or Ubuntu: apt-get install mmdebstrap. Elsewhere: unpack any image with systemd into a directory "
            "and name that with --rootfs"
        )
    return _make_rootfs()


def _make_rootfs() -> Path:
    try:
        ROOTFS.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOTFS.parent, prefix=".replay-") as folder:
            draft = Path(folder) / "root"
            command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(draft)]
            made = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_DEADLINE, check=False)
            if made.returncode != 0:
                last = made.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                raise Unreadable(f"cannot make {ROOTFS}: mmdebstrap says: {last[0]}", "Name another one with --rootfs.")
            os.rename(draft, ROOTFS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreadable(f"cannot make {ROOTFS}: {error}", "Name another one with --rootfs.") from error
    return ROOTFS
