"""Five thousand short tasks through one agent on a real engine: its memory, its files, what is left of them.

Not part of ``make bench``: it takes a quarter of an hour on a calm machine. Run: ``python -m bench.soak [TASKS]``
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.subject import Client, Subject, free_port, running
from engine import PrivateEngine
from images import build_busybox
from sexton.host.cgroup import census

TASKS = 5000
AT_ONCE = 10
ROWS = 10


def _round(client: Client) -> None:
    answer = client.call("RunTask", taskDefinition="short", count=AT_ONCE)
    assert not answer["failures"], answer["failures"]
    arns = [task["taskArn"] for task in answer["tasks"]]
    while True:
        tasks = client.call("DescribeTasks", tasks=arns)["tasks"]
        if all(task["lastStatus"] == "STOPPED" for task in tasks):
            break
        time.sleep(0.02)
    codes = [task["containers"][0].get("exitCode") for task in tasks]
    assert codes == [0] * AT_ONCE, tasks


def _row(done: int, began: float, agent: Subject, zombies: int) -> dict[str, Any]:
    return {
        "tasks": done,
        "seconds": round(time.monotonic() - began),
        "agent's RSS (MB)": round(agent.memory_mb(), 1),
        "its open files": len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())),
        "its CPU (s)": round(agent.cpu_seconds(), 1),
        "state on disk (KB)": round(sum(one.stat().st_size for one in agent.data.rglob("*.db*")) / 1000),
        "zombies more than before": census(Path("/")).zombies - zombies,
    }


def run(tasks: int = TASKS) -> list[dict[str, Any]]:
    """The rows of this benchmark: one each tenth of the way."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, PrivateEngine(Path(scratch) / "e") as engine:
        image, root, port = build_busybox(engine.url), Path(scratch), free_port()
        zombies = census(Path("/")).zombies
        with running("control", root / "control", "--listen", f"127.0.0.1:{port}") as control:
            control.wait_port(port)
            key = control.key()
            environment = {
                "AWS_ACCESS_KEY_ID": key.access_key_id,
                "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
                "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
            }
            backend = ("--backend", f"http://127.0.0.1:{port}", "--docker-host", engine.url)
            with running("agent", root / "agent", *backend, environment=environment) as agent:
                agent.wait_agent()
                client = Client(port, key)
                container = {"name": "main", "image": image, "memory": 16, "command": ["true"]}
                client.call(
                    "RegisterTaskDefinition", family="short", networkMode="none", containerDefinitions=[container]
                )
                began = time.monotonic()
                rows.append(_row(0, began, agent, zombies))
                for done in range(AT_ONCE, tasks + 1, AT_ONCE):
                    _round(client)
                    if done % max(AT_ONCE, tasks // ROWS) == 0:
                        rows.append(_row(done, began, agent, zombies))
                        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    for row in run(int(sys.argv[1]) if len(sys.argv) > 1 else TASKS):
        print(json.dumps(row))
