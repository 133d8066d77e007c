"""What this host can do for tasks' own networks, tried out in a network namespace that goes with the trial.

One short shell, so that an agent that never has such a task has not loaded anything for it.
"""

from __future__ import annotations

import asyncio
import os

from sexton.host.tools import TOOLS_PATH

SECONDS = 20.0
INTERFACES, GROUPS, TUNNELS = "interfaces", "groups", "tunnels"

# Each line: for what, and what was said when it did not work.
_TRIAL = r"""
try() { what=$1; shift; said=$("$@" 2>&1) || printf '%s\t%s\n' "$what" "$(printf '%s' "$said" | head -n 1)"; }
try interfaces ip link add name probe0 type veth peer name probe1
try tunnels ip link add name probe2 type vxlan id 1 dstport 4789 nolearning
rules() { nft -f - <<'END'
table inet t {
  chain a {
    type filter hook forward priority 0;
    ct original ip saddr 192.0.2.1 accept
  }
  chain b {
    type nat hook postrouting priority 100;
    masquerade
  }
}
END
}
try groups rules
"""


async def obstacles() -> dict[str, str]:
    """What cannot be had and why, by ``INTERFACES``, ``GROUPS`` and ``TUNNELS``; empty when all is well."""
    if os.geteuid() != 0:
        return {INTERFACES: "this is not root"}
    try:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "/bin/sh", "-c", _TRIAL),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": TOOLS_PATH, "LC_ALL": "C"},
        )
    except OSError as error:
        return {INTERFACES: f"cannot run unshare: {error.strerror or error}"}
    try:
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        return {INTERFACES: f"no namespace within {SECONDS:g} s"}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = dict(line.split("\t", 1) for line in out.decode(errors="replace").splitlines() if "\t" in line)
    if process.returncode:
        found.setdefault(
            INTERFACES, (err.decode(errors="replace").strip().splitlines() or ["cannot make a namespace"])[0]
        )
    return found
