"""Hundreds of tasks through one agent: it is no larger afterwards, and holds nothing of them.

On an engine on paper, so that they are many; ``python -m bench.soak`` takes thousands, on a real engine as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import engine_call
from images import IMAGE
from node import Node, until
from paper_engine import paper_engine

pytestmark = pytest.mark.slow

SOAK = os.environ.get("SEXTON_SOAK") == "1"
# Until whatever is made once has been made, and what is remembered of the last tasks is full; then so many that a few
# kilobytes for each would show.
FIRST, MORE = (600, 4400) if SOAK else (320, 320)
AT_ONCE = 40
# Python's own allocator does not come back to the byte; what stays of a task is a tenth of this.
GROWTH_MIB = 1.5


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    environment = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "ECS_RESERVED_MEMORY": "0"}
    with (
        paper_engine(tmp_path / "paper.sock") as url,
        Node(tmp_path / "node", url, split=True, environment=environment) as node,
    ):
        yield node


@pytest.mark.timeout(1200 if SOAK else 180)
def test_an_agent_is_no_larger_after_hundreds_of_tasks(node: Node) -> None:
    ecs = node.ecs()
    container = {"name": "app", "image": IMAGE, "memory": 6, "command": ["true"]}
    ecs.register_task_definition(family="short", networkMode="none", containerDefinitions=[container])

    def some(count: int) -> None:
        for _ in range(count // AT_ONCE):
            started = [ecs.run_task(taskDefinition="short", count=10) for _ in range(AT_ONCE // 10)]
            arns = [task["taskArn"] for answer in started for task in answer["tasks"]]
            assert len(arns) == AT_ONCE
            until(lambda arns=arns: _ended(ecs, arns), "the tasks end")

    def size_after(count: int) -> float:
        some(count)
        until(lambda: _tasks(node) == 0, "the agent holds no task any more")
        return _mib(node)

    before = size_after(FIRST)
    after = size_after(MORE)
    print(f"{before:.1f} MiB after {FIRST} tasks, {after:.1f} MiB after {FIRST + MORE}")
    assert after - before < GROWTH_MIB
    assert not list((node.root / "agent").rglob("tasks/*.json"))


def _ended(ecs: Any, arns: list[str]) -> bool:
    tasks = ecs.describe_tasks(tasks=arns)["tasks"]
    if any(task["lastStatus"] != "STOPPED" for task in tasks):
        return False
    assert [task["containers"][0].get("exitCode") for task in tasks] == [0] * len(arns)
    return True


def _mib(node: Node) -> float:
    return int(Path(f"/proc/{node.agent.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _tasks(node: Node) -> int:
    shown = json.loads(engine_call(f"unix://{node.root}/agent/agent.sock", "GET", "/health"))
    return int(shown["tasks"])
