"""Agent and helper killed at any instant while tasks with networks of their own come and go: nothing is left, and
nothing is there twice.

The seed of a campaign is printed; SEXTON_SEED repeats it, SEXTON_SOAK=1 makes it five hundred tasks long.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from engine import EngineFailed
from nethosts import inside
from node import until
from vpcagent import VpcAgent

SOAK = os.environ.get("SEXTON_SOAK") == "1"
TASKS = 500 if SOAK else 30
AT_ONCE = 10
# Between two kills: short enough to hit agents that are still starting, long enough that tasks get somewhere.
PAUSE = (0.05, 3.0)
STRANGER = "stranger0"

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(7200 if SOAK else 300)]


class Killer:
    """Kills the helper, or the agent, which it starts again; at random instants, on a thread of its own."""

    def __init__(self, host: VpcAgent, chance: random.Random) -> None:
        self._host, self._chance = host, chance
        self._end = threading.Event()
        self.kills = {"agent": 0, "helper": 0}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(self._chance.uniform(*PAUSE)):
            if self._chance.random() < 0.7:
                for pid in children(self._host.agent.pid):
                    os.kill(pid, signal.SIGKILL)
                    self.kills["helper"] += 1
            else:
                self._host.agent.kill()
                self._host.agent.start()
                self.kills["agent"] += 1

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


def children(parent: int) -> list[int]:
    """Helpers of an agent that wire."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if mine and b"network_worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def say(host: VpcAgent, act) -> None:
    """Say something to an agent that may die while it hears it: again on every new connection until it is taken."""
    while True:
        connections = len(host.plane.connections)
        try:
            message = act()
            until(
                lambda message=message, connections=connections: (
                    host.plane.acknowledged(message) or len(host.plane.connections) > connections
                ),
                "it is taken, or the agent has died",
                60.0,
            )
            if host.plane.acknowledged(message):
                return
        except (ConnectionError, RuntimeError, AssertionError):
            time.sleep(0.05)  # nobody is connected


def twice(host: VpcAgent) -> list[str]:
    """Addresses and hardware addresses that two tasks' namespaces have at once."""
    seen: list[str] = []
    for row in host.containers("dev.sexton.sandbox"):
        with contextlib.suppress(EngineFailed, OSError):  # gone meanwhile
            pid = json.loads(host.engine.call("GET", f"/containers/{row['Id']}/json"))["State"]["Pid"]
            with inside(f"/proc/{pid}/ns/net"):
                listed = subprocess.run(["ip", "-json", "addr", "show", "eth0"], capture_output=True).stdout
            for link in json.loads(listed or b"[]"):
                seen += [link["address"], *(one["local"] for one in link["addr_info"] if one["scope"] == "global")]
    return sorted({one for one in seen if seen.count(one) > 1})


def test_nothing_is_left_and_nothing_is_there_twice(tmp_path):
    seed = int(os.environ.get("SEXTON_SEED", random.randrange(1 << 32)))
    print(f"SEXTON_SEED={seed}")
    chance = random.Random(seed)
    with VpcAgent(
        tmp_path, environment={"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "SEXTON_SANDBOX_IDLE": "1s"}
    ) as host:
        # What is not ours must outlive it all.
        host.namespace.run("ip", "link", "add", STRANGER, "type", "veth", "peer", "stranger1")
        host.namespace.run("ip", "route", "add", "10.77.0.15/32", "dev", "eth0")  # where one of the tasks will be
        killer = Killer(host, chance)
        try:
            for first in range(10, 10 + TASKS, AT_ONCE):
                numbers = range(first, first + AT_ONCE)
                say(host, lambda numbers=numbers: host.networks(*(host.interface(one) for one in numbers), wait=False))
                say(host, lambda numbers=numbers: host.plane.payload(*(host.task(one) for one in numbers)))
                over = chance.choice(("RUNNING", "STOPPED"))
                if over == "RUNNING":
                    until(
                        lambda numbers=numbers: all(host.plane.told(host.arn(one)) for one in numbers),
                        "all are told of",
                        120.0,
                    )
                    assert twice(host) == []
                stops = [host.task(one) | {"desiredStatus": "STOPPED"} for one in numbers]
                say(host, lambda stops=stops: host.plane.payload(*stops))
                until(
                    lambda numbers=numbers: all("STOPPED" in host.plane.told(host.arn(one)) for one in numbers),
                    f"all have stopped:\n{host.agent.log[-3000:]}",
                    120.0,
                )
        finally:
            killer.stop()
        print(killer.kills)
        until(lambda: host.agent.running, "the agent runs")
        say(host, lambda: host.networks(wait=False))
        until(lambda: not host.leftovers() and not host.sandboxes(), f"nothing is left: {host.leftovers()}", 90.0)

        until(lambda: not host.cgroups(), f"no cgroup is left: {host.cgroups()}")
        assert STRANGER in host.namespace.run("ip", "link")
        assert "10.77.0.15 dev eth0" in host.namespace.run("ip", "route")
