"""What talks netlink is larger than the rest of an agent: no module of the daemon loads it, only the helper does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sexton

# In a process of its own, since tests load whatever they like into this one.
LOADED = """
import importlib, pkgutil, sys
import sexton.agent, sexton.daemon
for found in pkgutil.walk_packages(sexton.agent.__path__, "sexton.agent."):
    importlib.import_module(found.name)
print(*(name for name in sys.modules if name.partition(".")[0] == "pyroute2" or name.startswith("sexton.host.wired")))
"""
WIRES = {"links", "network_worker", "wired_change", "wired_router", "wired_task"}


def test_no_part_of_an_agent_loads_what_only_the_helper_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_only_what_the_helper_is_made_of_names_it() -> None:
    """Also not inside a function, where loading it later would be loading it all the same."""
    source = Path(sexton.__file__).parent
    naming = {
        path.stem
        for path in source.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith(("import pyroute2", "from pyroute2"))
    }
    assert naming <= WIRES and naming
