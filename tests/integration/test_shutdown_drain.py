"""An agent that ends because its host does: its instance drains, and its tasks end in order and are reported.

On an engine on paper, with a ``systemctl`` that says what a host's would. Whatever else ends an agent leaves its tasks
running.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from images import IMAGE
from node import Node, until
from paper_engine import paper_engine

TASKS = 3


def systemctl(folder: Path, says: str) -> str:
    """A search path on which ``systemctl`` gives this answer."""
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def started(ecs: Any) -> list[str]:
    container = {"name": "app", "image": IMAGE, "memory": 6, "command": ["sleep", "1000"], "stopTimeout": 2}
    ecs.register_task_definition(family="long", networkMode="none", containerDefinitions=[container])
    arns = [one["taskArn"] for one in ecs.run_task(taskDefinition="long", count=TASKS)["tasks"]]
    until(lambda: {one["lastStatus"] for one in shown(ecs, arns)} == {"RUNNING"}, "the tasks run")
    return arns


def shown(ecs: Any, arns: list[str]) -> list[dict[str, Any]]:
    return list(ecs.describe_tasks(tasks=arns)["tasks"])


@pytest.mark.parametrize(
    ("says", "asked", "drains"),
    [("stopping", "true", True), ("stopping", "false", False), ("running", "true", False)],
    ids=["the host shuts down", "nobody asked for it", "only the agent ends"],
)
@pytest.mark.timeout(120)
def test_tasks_of_a_host_that_shuts_down_end_in_order(tmp_path: Path, says: str, asked: str, drains: bool) -> None:
    environment = {"PATH": systemctl(tmp_path / "bin", says), "SEXTON_SHUTDOWN_DRAIN": asked}
    with (
        paper_engine(tmp_path / "paper.sock", 1000.0) as url,
        Node(tmp_path / "node", url, split=True, environment=environment) as node,
    ):
        ecs = node.ecs()
        arns = started(ecs)
        (instance,) = ecs.list_container_instances()["containerInstanceArns"] or [""]
        assert node.agent.terminate() == 0
        tasks = shown(ecs, arns)
        if not drains:
            assert {one["lastStatus"] for one in tasks} == {"RUNNING"}
            return
        assert {one["lastStatus"] for one in tasks} == {"STOPPED"}
        assert {one["stoppedReason"] for one in tasks} == {"Host is shutting down"}
        assert {one["containers"][0]["exitCode"] for one in tasks} == {0}
        (described,) = ecs.describe_container_instances(containerInstances=[instance])["containerInstances"]
        assert described["status"] == "DRAINING"
        assert "level=error" not in node.agent.log
