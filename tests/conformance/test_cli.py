"""``sexton ps``, ``why``, ``logs``, ``settings`` and the rest, typed as people type them, against a running node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from node import Node, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def node(engine_session: PrivateEngine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("cli"), engine_session.url) as running:
        yield running


def sexton(node: Node | None, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    if node is not None:
        environment |= {"AWS_ENDPOINT_URL": node.endpoint, "ECS_DATADIR": f"{node.root}/control"}
    return subprocess.run(
        [sys.executable, "-m", "sexton", *words],
        env=environment | more,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_task(node: Node, family: str, image: str, script: str) -> str:
    ecs = node.ecs()
    ecs.register_task_definition(
        family=family,
        networkMode="none",
        containerDefinitions=[{"name": "main", "image": image, "memory": 16, "command": ["sh", "-c", script]}],
    )
    return str(ecs.run_task(taskDefinition=family, startedBy="somebody")["tasks"][0]["taskArn"])


def status(node: Node, arn: str) -> str:
    return str(node.ecs().describe_tasks(tasks=[arn])["tasks"][0]["lastStatus"])


def test_a_running_task_is_listed_explained_and_read(node: Node, busybox_image: str) -> None:
    arn = run_task(
        node, "talker", busybox_image, "echo one; echo two >&2; trap 'exit 0' TERM; while :; do sleep 0.1; done"
    )
    short = arn.rpartition("/")[2][:8]
    until(lambda: status(node, arn) == "RUNNING", "the task runs")

    listed = sexton(node, "ps")
    assert listed.returncode == 0
    line = next(line for line in listed.stdout.splitlines() if short in line)
    assert "talker:1" in line and "RUNNING" in line

    why = sexton(node, "why", short)
    assert why.stdout.startswith("RUNNING since")
    assert "by somebody" in why.stdout and "The essential container main runs." in why.stdout

    read = until(lambda: (shown := sexton(node, "logs", short)).stdout.count("\n") and shown, "its lines are there")
    assert "main | one" in read.stdout
    assert "main | two" in read.stderr

    last = sexton(node, "logs", short, "main", "--tail", "1")
    assert (last.stdout + last.stderr).strip() in ("one", "two")
    node.ecs().stop_task(task=arn)


def test_an_ended_task_says_why_and_what_to_try(node: Node, busybox_image: str) -> None:
    arn = run_task(node, "failing", busybox_image, "echo broken; exit 3")
    until(lambda: status(node, arn) == "STOPPED", "the task ends")
    task_id = arn.rpartition("/")[2]

    assert task_id[:12] not in sexton(node, "ps").stdout
    assert "main=3" in next(line for line in sexton(node, "ps", "--all").stdout.splitlines() if task_id[:12] in line)

    why = sexton(node, "why", arn)
    assert why.stdout.splitlines()[0].startswith("STOPPED")
    assert "The essential container main ended with exit code 3." in why.stdout
    assert f"next: Read what it wrote: sexton logs {task_id[:12]}" in why.stdout
    story = json.loads(sexton(node, "why", task_id, "--json").stdout)
    assert story["headline"] in why.stdout or story["headline"].startswith("STOPPED")
    assert sexton(node, "logs", task_id[:12]).stdout == "main | broken\n"


def test_records_come_as_json(node: Node, busybox_image: str) -> None:
    arn = run_task(node, "json", busybox_image, "exit 0")
    until(lambda: status(node, arn) == "STOPPED", "the task ends")
    rows = [json.loads(line) for line in sexton(node, "ps", "--all", "--json").stdout.splitlines()]
    assert arn in {row["taskArn"] for row in rows}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("why", "ffffffffffff"), "has no task 'ffffffffffff'"),
        (("logs", "ffffffffffff"), "has no task 'ffffffffffff'"),
        (("ps", "--cluster", "nowhere"), "Cluster not found."),
        (("ps", "--cluster", "b@d"), "InvalidParameterException"),
    ],
)
def test_a_mistake_is_one_sentence(node: Node, words: tuple[str, ...], says: str) -> None:
    ended = sexton(node, *words)
    assert ended.returncode == 1
    assert ended.stderr.startswith("sexton: ") and says in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_keys_are_found_in_the_environment_before_the_data_directory(node: Node) -> None:
    wrong = {"AWS_ACCESS_KEY_ID": "AKSXAAAAAAAAAAAAAAAA", "AWS_SECRET_ACCESS_KEY": "x" * 40}
    assert "UnrecognizedClientException" in sexton(node, "ps", **wrong).stderr


def test_nothing_to_talk_to_is_said_with_the_next_step(tmp_path: Path) -> None:
    nobody = {"ECS_DATADIR": str(tmp_path), "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert "start one with 'sexton up'" in sexton(None, "ps", **nobody, **keys).stderr
    assert "Set AWS_ACCESS_KEY_ID" in sexton(None, "ps", **nobody).stderr
    assert f"no agent at {tmp_path}/agent.sock knows task x" in sexton(None, "logs", "x", **nobody).stderr


def test_help_version_settings_and_completion_need_no_daemon() -> None:
    shown = sexton(None, "--help").stdout
    for command in ("up", "control", "agent", "ps", "why", "logs", "doctor", "zombies", "config"):
        assert f"\n  {command} " in shown
    assert sexton(None, "--version").stdout.startswith("sexton 0.")
    assert "--leave-nothing" in sexton(None, "up", "--help").stdout
    listed = sexton(None, "config", "explain", ECS_RESERVED_MEMORY="64").stdout
    assert "ECS_RESERVED_MEMORY = 64 MiB   (environment; default 0)" in listed
    assert "warning: ECS_RESERVED_MEMORY" in sexton(None, "config", "explain", ECS_RESERVED_MEMORY="lots").stderr
    completed = sexton(None, _SEXTON_COMPLETE="complete_bash", COMP_WORDS="sexton p", COMP_CWORD="1")
    assert completed.stdout.split() == ["ps"]


def test_an_unknown_command_is_a_usage_error() -> None:
    ended = sexton(None, "frobnicate")
    assert ended.returncode == 2 and "No such command 'frobnicate'" in ended.stderr
    assert "Traceback" not in ended.stderr
