"""The stock AWS CLI and boto3 run real containers here, and every end has its right code and reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import PrivateEngine
from images import FakeRegistry
from node import Node, free_port, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(90)]

AWS = Path(__file__).parents[2] / ".venv/bin/aws"
# A waiter of the CLI asks every six seconds, ours more often; it gives up after this many tries.
WAIT = {"Delay": 0.1, "MaxAttempts": 300}
SLEEP = ["sleep", "1000"]

Json = dict[str, Any]


@pytest.fixture(scope="module")
def node(engine_session: PrivateEngine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("conformance"), engine_session.url, leave_nothing=True) as node:
        yield node
        assert node.terminate() == [0]
        assert node.containers() == []
        assert "Traceback" not in node.control.log


@pytest.fixture
def ecs(node: Node) -> Iterator[Any]:
    client = node.ecs()
    yield client
    client.close()


class Run:
    """Registers a definition, runs it, and follows the task."""

    def __init__(self, ecs: Any, image: str) -> None:
        self._ecs = ecs
        self._image = image
        self._number = 0

    def start(self, *containers: Json, mode: str = "none") -> str:
        """One task with these containers; its ARN."""
        self._number += 1
        defaults = {"name": "main", "image": self._image, "memory": 32, "cpu": 16}
        family = f"conformance-{self._number}"
        self._ecs.register_task_definition(
            family=family, networkMode=mode, containerDefinitions=[defaults | one for one in containers]
        )
        answer = self._ecs.run_task(taskDefinition=family)
        assert answer["failures"] == []
        return answer["tasks"][0]["taskArn"]

    def running(self, task: str) -> Json:
        self._ecs.get_waiter("tasks_running").wait(tasks=[task], WaiterConfig=WAIT)
        return self.task(task)

    def stopped(self, task: str) -> Json:
        self._ecs.get_waiter("tasks_stopped").wait(tasks=[task], WaiterConfig=WAIT)
        return self.task(task)

    def task(self, task: str) -> Json:
        return self._ecs.describe_tasks(tasks=[task])["tasks"][0]

    def stop(self, task: str, reason: str = "enough") -> Json:
        self._ecs.stop_task(task=task, reason=reason)
        return self.stopped(task)


@pytest.fixture
def run(ecs: Any, busybox_image: str) -> Run:
    return Run(ecs, busybox_image)


def containers(task: Json) -> dict[str, Json]:
    return {one["name"]: one for one in task["containers"]}


@pytest.fixture
def aws(node: Node, tmp_path: Path):
    """The AWS CLI with nothing but an endpoint and a key; gives what it printed."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": node.endpoint,
        "AWS_PAGER": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    } | node.credentials()

    def call(*arguments: str) -> Json:
        done = subprocess.run([AWS, "ecs", *arguments], capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else {}

    return call


def test_a_task_from_the_command_line(aws, busybox_image: str) -> None:
    definition = [{"name": "main", "image": busybox_image, "memory": 32, "command": SLEEP, "stopTimeout": 2}]

    assert aws("create-cluster", "--cluster-name", "default")["cluster"]["status"] == "ACTIVE"
    registered = aws(
        "register-task-definition",
        *("--family", "shell", "--network-mode", "none"),
        *("--container-definitions", json.dumps(definition)),
    )
    assert registered["taskDefinition"]["revision"] == 1
    started = aws("run-task", "--task-definition", "shell", "--started-by", "a person")
    task = started["tasks"][0]["taskArn"]
    aws("wait", "tasks-running", "--tasks", task)
    (shown,) = aws("describe-tasks", "--tasks", task)["tasks"]
    assert (shown["lastStatus"], shown["startedBy"]) == ("RUNNING", "a person")
    assert containers(shown)["main"]["runtimeId"]
    assert aws("list-tasks", "--started-by", "a person")["taskArns"] == [task]

    stopping = aws("stop-task", "--task", task, "--reason", "enough")
    assert stopping["task"]["desiredStatus"] == "STOPPED"
    aws("wait", "tasks-stopped", "--tasks", task)
    (shown,) = aws("describe-tasks", "--tasks", task)["tasks"]

    assert (shown["stopCode"], shown["stoppedReason"]) == ("UserInitiated", "enough")
    assert containers(shown)["main"]["exitCode"] in (137, 143)
    assert shown["createdAt"] <= shown["startedAt"] <= shown["stoppingAt"] <= shown["stoppedAt"]


@pytest.mark.parametrize("code", [0, 3])
def test_a_container_that_exits(run: Run, code: int) -> None:
    task = run.stopped(run.start({"command": ["sh", "-c", f"exit {code}"]}))

    assert (task["stopCode"], task["stoppedReason"]) == (
        "EssentialContainerExited",
        "Essential container in task exited",
    )
    assert containers(task)["main"]["exitCode"] == code
    assert containers(task)["main"]["lastStatus"] == "STOPPED"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.1; done"], 143),
        (SLEEP, 137),  # the first process of a container ignores TERM unless it says otherwise
    ],
)
def test_a_task_that_is_stopped(run: Run, command: list[str], code: int) -> None:
    task = run.start({"command": command, "stopTimeout": 2})
    run.running(task)

    ended = run.stop(task, "not needed any more")

    assert (ended["stopCode"], ended["stoppedReason"]) == ("UserInitiated", "not needed any more")
    assert containers(ended)["main"]["exitCode"] == code


def test_an_essential_container_takes_the_others_with_it(run: Run) -> None:
    task = run.stopped(
        run.start(
            {"name": "essential", "command": ["sh", "-c", "sleep 0.3; exit 4"]},
            {"name": "side", "command": SLEEP, "essential": False, "stopTimeout": 2},
        )
    )

    assert task["stopCode"] == "EssentialContainerExited"
    assert containers(task)["essential"]["exitCode"] == 4
    assert containers(task)["side"]["exitCode"] in (137, 143)


def test_a_container_that_is_not_essential_may_go(run: Run) -> None:
    task = run.start(
        {"name": "essential", "command": SLEEP, "stopTimeout": 2},
        {"name": "side", "command": ["sh", "-c", "exit 5"], "essential": False},
    )
    run.running(task)

    def side() -> Json | None:
        shown = containers(run.task(task))["side"]
        return shown if shown["lastStatus"] == "STOPPED" else None

    assert until(side, "the other container's end is told")["exitCode"] == 5
    assert run.task(task)["lastStatus"] == "RUNNING"
    assert run.stop(task)["stopCode"] == "UserInitiated"


@contextlib.contextmanager
def registry(answer: str) -> Iterator[FakeRegistry]:
    """A registry that answers while the test's thread waits for the API."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = FakeRegistry(answer)
    try:
        asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
        try:
            yield made
        finally:
            asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_image_that_does_not_exist(run: Run) -> None:
    with registry("unknown") as nowhere:
        task = run.stopped(run.start({"image": nowhere.ref(), "command": SLEEP}))

    assert task["stopCode"] == "TaskFailedToStart"
    assert task["stoppedReason"].startswith(("CannotPullContainerError", "CannotPullImageManifestError"))
    assert "exitCode" not in containers(task)["main"]
    assert containers(task)["main"]["reason"].startswith("CannotPull")


def test_a_command_that_does_not_exist(run: Run) -> None:
    task = run.stopped(run.start({"command": ["no-such-program"]}))

    assert task["stopCode"] == "TaskFailedToStart"
    assert task["stoppedReason"].startswith("CannotStartContainerError")
    assert "no-such-program" in containers(task)["main"]["reason"]


def server(port: int) -> list[str]:
    return ["sh", "-c", f"while :; do echo hello | nc -l -p {port}; done"]


def hello(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as one:
        return one.recv(100) == b"hello\n"
    return False


def test_bridge_publishes_a_port_of_its_choice_and_says_which(run: Run) -> None:
    task = run.start(
        {"command": server(80), "portMappings": [{"containerPort": 80, "hostPort": 0}], "stopTimeout": 2}, mode="bridge"
    )

    (binding,) = containers(run.running(task))["main"]["networkBindings"]

    assert (binding["containerPort"], binding["protocol"]) == (80, "tcp")
    assert until(lambda: hello(binding["hostPort"]), "the published port answers")
    run.stop(task)


def test_host_mode_uses_the_hosts_own_ports(run: Run) -> None:
    port = free_port()
    mappings = [{"containerPort": port, "hostPort": port}]
    task = run.start({"command": server(port), "portMappings": mappings, "stopTimeout": 2}, mode="host")

    # Nothing is bound for it, so nothing is reported, as ECS has it.
    assert containers(run.running(task))["main"].get("networkBindings", []) == []
    assert until(lambda: hello(port), "the host's port answers")
    run.stop(task)


def test_none_has_no_network(run: Run) -> None:
    task = run.stopped(run.start({"command": ["sh", "-c", "exit $(ls /sys/class/net | grep -vc '^lo$')"]}))

    assert containers(task)["main"]["exitCode"] == 0
    assert containers(task)["main"].get("networkBindings", []) == []


def test_a_retry_of_a_lost_answer_starts_nothing_twice(ecs: Any, run: Run) -> None:
    """What botocore does by itself when a connection breaks: the same request, the same token."""
    first = run.start({"command": SLEEP, "stopTimeout": 2})
    family = run.task(first)["group"].removeprefix("family:")
    answers = [ecs.run_task(taskDefinition=family, clientToken="once")["tasks"][0]["taskArn"] for _ in range(3)]

    assert len(set(answers)) == 1
    with pytest.raises(ecs.exceptions.ConflictException) as conflict:
        ecs.run_task(taskDefinition=family, clientToken="once", count=2)
    assert conflict.value.response["resourceIds"] == answers[:1]
    for task in (first, answers[0]):
        run.stop(task)
