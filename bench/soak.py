"""Thousands of short tasks through one agent: its memory, its files, and what is left of them.

First on an engine on paper (``tests/paper_engine.py``), which is fast enough for five thousand within minutes: what
grows there is the agent's. Then some hundreds on a real one, where cgroups and files are left or not.
Not part of ``make bench``, because it takes so long.
Run: ``python -m bench.soak [TASKS ON PAPER] [TASKS ON A REAL ONE]``
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.subject import Client, Subject, free_port, running
from engine import PrivateEngine
from images import IMAGE, build_busybox
from paper_engine import paper_engine
from sexton.host.cgroup import census

ON_PAPER, REAL = 5000, 500
AT_ONCE = 20
ROWS = 10
# Of one round, whatever else the machine does.
PATIENCE_SECONDS = 120.0
# The agent removes what is over a second later, and writes that down.
SETTLE_SECONDS = 3.0


def _round(client: Client) -> None:
    arns: list[str] = []
    for _ in range(AT_ONCE // 10):
        answer = client.call("RunTask", taskDefinition="short", count=10)
        assert not answer["failures"], answer["failures"]
        arns += [task["taskArn"] for task in answer["tasks"]]
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        tasks = client.call("DescribeTasks", tasks=arns)["tasks"]
        if all(task["lastStatus"] == "STOPPED" for task in tasks):
            break
        if time.monotonic() > ends:
            raise RuntimeError(f"not all tasks have ended: {[task['lastStatus'] for task in tasks]}")
        time.sleep(0.05)
    codes = [task["containers"][0].get("exitCode") for task in tasks]
    assert codes == [0] * AT_ONCE, tasks


def _row(what: str, done: int, began: float, agent: Subject, zombies: int) -> dict[str, Any]:
    return {
        "engine": what,
        "tasks": done,
        "seconds": round(time.monotonic() - began),
        "agent's RSS (MB)": round(agent.memory_mb(), 1),
        "its open files": len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())),
        "its CPU (s)": round(agent.cpu_seconds(), 1),
        "state on disk (KB)": round(sum(one.stat().st_size for one in agent.data.rglob("*.db*")) / 1000),
        "zombies more than before": census(Path("/")).zombies - zombies,
    }


@contextlib.contextmanager
def agent_on(engine_url: str, root: Path) -> Iterator[tuple[Subject, Client]]:
    """An agent and its control plane, processes of their own, with the definition of a short task."""
    port = free_port()
    with running("control", root / "control", "--listen", f"127.0.0.1:{port}") as control:
        control.wait_port(port)
        key = control.key()
        environment = {
            "AWS_ACCESS_KEY_ID": key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
            "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
            "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
        }
        backend = ("--backend", f"http://127.0.0.1:{port}", "--docker-host", engine_url, "--leave-nothing")
        with running("agent", root / "agent", *backend, environment=environment) as agent:
            agent.wait_agent()
            client = Client(port, key)
            container = {"name": "main", "image": IMAGE, "memory": 16, "command": ["true"]}
            client.call("RegisterTaskDefinition", family="short", networkMode="none", containerDefinitions=[container])
            yield agent, client


def through(what: str, engine_url: str, root: Path, tasks: int) -> Iterator[dict[str, Any]]:
    """So many tasks through one agent; a row for each tenth of the way."""
    zombies, began = census(Path("/")).zombies, time.monotonic()
    with agent_on(engine_url, root) as (agent, client):
        step = max(AT_ONCE, tasks // ROWS // AT_ONCE * AT_ONCE)
        for done in range(AT_ONCE, tasks + 1, AT_ONCE):
            _round(client)
            if done % step == 0:
                time.sleep(SETTLE_SECONDS)
                yield _row(what, done, began, agent, zombies)


def run(on_paper: int = ON_PAPER, real: int = REAL) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        root = Path(scratch)
        if on_paper:
            with paper_engine(root / "paper.sock") as url:
                for row in through("on paper", url, root / "paper", on_paper):
                    rows.append(_said(row))
        if real:
            with PrivateEngine(root / "e") as engine:
                build_busybox(engine.url)
                for row in through("real", engine.url, root / "real", real):
                    rows.append(_said(row))
    return rows


def _said(row: dict[str, Any]) -> dict[str, Any]:
    """At once as well: whoever ends this half-way has something."""
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    for row in run(*(int(word) for word in sys.argv[1:])):
        print(json.dumps(row))
