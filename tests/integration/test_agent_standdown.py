"""An agent that cannot be of use says so once and ends; one that may soon be waits, and always obeys.

In all of these it makes no container and no cgroup, and takes no second to do what it is told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from images import build_busybox
from node import CGROUPS, Node, Role, free_port, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

NOTHING_TO_DO = 5
# It starts, looks and ends; most of it is Python's own start.
FAST = 5.0
OBEYS = 1.0
# While it loads its code it does not listen; on a loaded machine that takes its time.
OBEYS_STARTING = 4.0


@pytest.fixture
def node(engine_session: PrivateEngine, busybox_image: str, tmp_path: Path) -> Iterator[Node]:
    """A control plane that runs, and an agent that does not yet."""
    made = Node(tmp_path / "node", engine_session.url, split=True)
    try:
        made.start_control()
        yield made
    finally:
        made.close()


class Traces:
    """What would show that an agent did something: containers of an engine, directories where cgroups are made."""

    def __init__(self, engine: PrivateEngine, folder: Path) -> None:
        self._engine = engine
        self.cgroups = folder
        for hierarchy in ("cpu", "memory", "pids"):
            (folder / hierarchy).mkdir(parents=True)
            (folder / hierarchy / "cgroup.procs").touch()
        self._before = self._look()

    def _look(self) -> tuple[set[str], set[Path]]:
        containers = {one["Id"] for one in json.loads(self._engine.call("GET", "/containers/json?all=1"))}
        return containers, set(self.cgroups.rglob("*"))

    def assert_none(self) -> None:
        assert self._look() == self._before


@pytest.fixture
def traces(engine_session: PrivateEngine, tmp_path: Path) -> Traces:
    return Traces(engine_session, tmp_path / "cgroup")


def _agent(node: Node, label: str, *options: str, keys: bool = True, **environment: str) -> Role:
    """Another agent than the node's own; it finds its cgroups where ``Traces`` looks for what it did."""
    environment = {"ECS_CGROUP_PATH": f"{node.root.parent}/cgroup"} | environment
    given = {"--data-dir": f"{node.root}/{label}", "--backend": node.endpoint, "--docker-host": node.engine_url}
    given |= dict(zip(options[::2], options[1::2], strict=True))
    role = node.role("agent", *(word for pair in given.items() for word in pair), label=label)
    role.environment |= (node.credentials() if keys else {}) | environment
    return role


def _stands_down(role: Role, *words: str) -> None:
    began = time.monotonic()
    role.start()
    assert role.wait(30.0) == NOTHING_TO_DO
    assert time.monotonic() - began < FAST
    (line,) = [one for one in role.log.splitlines() if "level=error" in one]
    assert 'msg="standing down"' in line and " cause=" in line and " cure=" in line
    for word in words:
        assert word in line
    assert "trace=" not in role.log


def test_without_credentials(node: Node, traces: Traces) -> None:
    _stands_down(_agent(node, "bare", keys=False), "cannot find AWS credentials", "Give the agent credentials")
    traces.assert_none()


def test_cluster_that_is_not_there(node: Node, traces: Traces) -> None:
    _stands_down(_agent(node, "lost", "--cluster", "nowhere"), "cluster nowhere", "Cluster not found")
    traces.assert_none()


def test_wrong_secret(node: Node, traces: Traces) -> None:
    _stands_down(_agent(node, "thief", AWS_SECRET_ACCESS_KEY="guessed"), "refused to register", "Correct the cluster")
    traces.assert_none()


def test_unknown_key(node: Node, traces: Traces) -> None:
    _stands_down(_agent(node, "thief", AWS_ACCESS_KEY_ID="AKIAIOSFODNN7EXAMPLE"), "refused to register")
    traces.assert_none()


def test_address_that_is_no_engine(node: Node, traces: Traces) -> None:
    _stands_down(
        _agent(node, "odd", "--docker-host", "unix://docker.sock"), "unix://docker.sock", "Correct DOCKER_HOST"
    )
    traces.assert_none()


def test_host_that_was_deregistered(node: Node) -> None:
    node.start_agent()
    arn = node.agent_health()["containerInstanceArn"]
    node.agent.kill()
    node.ecs().deregister_container_instance(cluster="default", containerInstance=arn, force=True)
    _stands_down(node.agent, "registered")


def test_host_that_is_deregistered_while_connected(node: Node) -> None:
    node.start_agent()
    arn = node.agent_health()["containerInstanceArn"]
    node.ecs().deregister_container_instance(cluster="default", containerInstance=arn, force=True)
    node.control.terminate(10.0)
    node.start_control()
    assert node.agent.wait(30.0) == NOTHING_TO_DO
    assert "no member of its cluster any more" in node.agent.log and "trace=" not in node.agent.log


def test_second_agent_on_one_state(node: Node) -> None:
    node.start_agent()
    _stands_down(_agent(node, "agent"), f"process {node.agent.pid} is using it")
    assert node.agent_is_connected()


def test_second_agent_is_told_while_the_first_still_waits(node: Node) -> None:
    nowhere = ("--docker-host", f"unix://{node.root}/nowhere.sock")
    first = _agent(node, "shared", *nowhere)
    first.start()
    until(lambda: "waiting for the container engine" in first.log, "the first agent waits")
    second = _agent(node, "shared", *nowhere)
    second.log_file = node.root / "second.log"
    _stands_down(second, f"process {first.pid} is using it")
    assert first.terminate(OBEYS) == 0


def test_without_an_engine_it_waits_and_obeys(node: Node, traces: Traces) -> None:
    role = _agent(node, "patient", "--docker-host", f"unix://{node.root}/nowhere.sock")
    role.start()
    until(lambda: "waiting for the container engine" in role.log, "the agent waits")
    time.sleep(2.0)  # several tries go by, and none of them is worth a line
    assert role.log.count("level=warn") == 1 and "nowhere.sock" in role.log
    assert role.terminate(OBEYS) == 0
    traces.assert_none()


def test_goes_on_when_the_engine_comes(node: Node, tmp_path: Path) -> None:
    with PrivateEngine(tmp_path / "late") as engine:
        engine.terminate()
        role = _agent(node, "early", "--docker-host", engine.url)
        role.start()
        until(lambda: "waiting for the container engine" in role.log, "the agent waits")
        engine.start()
        until(lambda: "agent ready" in role.log, "the agent goes on", 40.0)
        assert role.terminate(OBEYS) == 0


def test_without_a_control_plane_it_waits_and_obeys(node: Node, traces: Traces) -> None:
    role = _agent(node, "alone", "--backend", f"http://127.0.0.1:{free_port()}")
    role.start()
    until(lambda: "call failed, will be tried again" in role.log, "the agent waits")
    assert role.running
    assert role.terminate(OBEYS) == 0
    traces.assert_none()


def test_goes_on_when_the_control_plane_comes(node: Node) -> None:
    node.control.kill()
    role = _agent(node, "early")
    role.start()
    until(lambda: "call failed, will be tried again" in role.log, "the agent waits")
    node.start_control()
    until(lambda: "agent ready" in role.log, "the agent goes on")
    assert role.terminate(OBEYS) == 0


@pytest.mark.parametrize("after", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
def test_obeys_at_any_moment_of_its_start(node: Node, after: float) -> None:
    role = _agent(node, "short")
    role.start()
    until(lambda: "msg=starting" in role.log, "the agent is there")
    time.sleep(after)
    assert role.terminate(OBEYS_STARTING) == 0


def _run(node: Node, script: str, count: int) -> None:
    ecs = node.ecs()
    ecs.register_task_definition(
        family="stays",
        networkMode="none",
        cpu="128",
        memory="64",
        containerDefinitions=[
            {"name": "app", "image": "sexton/busybox:latest", "memory": 32, "command": ["sh", "-c", script]}
        ],
    )
    ecs.run_task(cluster="default", taskDefinition="stays", count=count)
    until(lambda: sum(one["State"] == "running" for one in node.containers()) == count, "the tasks run")


def test_stops_in_a_second_and_leaves_its_tasks_running(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path
) -> None:
    with Node(tmp_path / "node", engine_session.url) as node:
        _run(node, "sleep 600", 3)
        assert node.terminate(OBEYS) == [0]
        assert [one["State"] for one in node.containers()] == ["running"] * 3
        node.start()
        until(lambda: node.agent_health().get("tasks") == 3, "the next agent takes them up")


@pytest.mark.parametrize("script", ["trap 'exit 0' TERM; while :; do sleep 1 & wait; done", "trap '' TERM; sleep 600"])
def test_leaves_nothing(tmp_path: Path, script: str) -> None:
    """Nor its parent cgroup, when it is the only one there; also where tasks do not obey."""
    with PrivateEngine(tmp_path / "engine") as engine:
        build_busybox(engine.url)
        before = {*CGROUPS.glob("*/ecs"), *CGROUPS.glob("ecs")}
        environment = {"ECS_CONTAINER_STOP_TIMEOUT": "3s"}
        with Node(tmp_path / "node", engine.url, leave_nothing=True, environment=environment) as node:
            _run(node, script, 5)
            assert len({one.name for one in node.cgroups()}) == 5
            began = time.monotonic()
            assert node.terminate(30.0) == [0]
            assert time.monotonic() - began < 20.0
            assert json.loads(engine.call("GET", "/containers/json?all=1")) == []
            assert node.cgroups() == []
            if not before:
                assert {*CGROUPS.glob("*/ecs"), *CGROUPS.glob("ecs")} == set()
