"""Parts that break, one test for each, on a real engine: what runs goes on, what ended has its right end, nothing is
started twice or left behind, and the log says what happened.

One engine and one node serve all of them; each test leaves both as it found them. ``SEXTON_SOAK=1`` freezes the engine
for a minute instead of a few seconds.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from engine import PrivateEngine
from images import build_busybox
from node import Node, NodeFailed, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]

SOAK = os.environ.get("SEXTON_SOAK") == "1"
FROZEN_SECONDS = 60.0 if SOAK else 6.0
SETTLE_SECONDS = 60.0
SETTINGS = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "ECS_CONTAINER_STOP_TIMEOUT": "2s"}
IMAGE = "sexton/busybox:latest"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

Json = dict[str, Any]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    with PrivateEngine(tmp_path_factory.mktemp("engine"), live_restore=True) as engine:
        build_busybox(engine.url, IMAGE)
        yield engine


class Bench:
    """A node, and tasks on it that write a line for every run."""

    def __init__(self, node: Node, engine: PrivateEngine, folder: Path) -> None:
        self.node = node
        self.engine = engine
        self._ecs = node.ecs()
        self._ledger = folder / "ledger"
        self._ledger.touch()
        for family, script in {
            "stays": "trap 'exit 7' TERM; echo $ID >> /out/ledger; while :; do sleep 0.2 & wait; done",
            "ends": "echo $ID >> /out/ledger; sleep 2; exit 3",
        }.items():
            self._ecs.register_task_definition(
                family=family,
                networkMode="none",
                volumes=[{"name": "out", "host": {"sourcePath": str(folder)}}],
                containerDefinitions=[
                    {
                        "name": "app",
                        "image": IMAGE,
                        "memory": 16,
                        "command": ["sh", "-c", script],
                        "mountPoints": [{"sourceVolume": "out", "containerPath": "/out"}],
                    }
                ],
            )

    def run(self, family: str, instance: str = "") -> str:
        mark = f"{family}-{time.time_ns()}"
        override = {"containerOverrides": [{"name": "app", "environment": [{"name": "ID", "value": mark}]}]}
        if instance:
            answer = self._ecs.start_task(taskDefinition=family, overrides=override, containerInstances=[instance])
        else:
            answer = self._ecs.run_task(taskDefinition=family, overrides=override)
        assert answer["tasks"], answer["failures"]
        return str(answer["tasks"][0]["taskArn"])

    def task(self, arn: str) -> Json:
        found: Json = self._ecs.describe_tasks(tasks=[arn])["tasks"][0]
        return found

    def running(self, *arns: str) -> None:
        for arn in arns:
            until(lambda arn=arn: self.task(arn)["lastStatus"] == "RUNNING", f"{arn} runs", SETTLE_SECONDS)  # type: ignore[misc]

    def ended(self, arn: str) -> Json:
        """Its only container, once the task has ended."""
        until(lambda: self.task(arn)["lastStatus"] == "STOPPED", f"{arn} ends", SETTLE_SECONDS)
        container: Json = self.task(arn)["containers"][0]
        return container

    def stop(self, *arns: str) -> None:
        for arn in arns:
            self._ecs.stop_task(task=arn)
        for arn in arns:
            assert self.ended(arn)["exitCode"] == 7

    def container(self, arn: str) -> Json:
        return next(one for one in self.node.containers() if one["Labels"]["com.amazonaws.ecs.task-arn"] == arn)

    def pid(self, arn: str) -> int:
        shown = json.loads(self.engine.call("GET", f"/containers/{self.container(arn)['Id']}/json"))
        return int(shown["State"]["Pid"])

    def end_the_rest(self) -> None:
        """What a test that failed had no time to stop, or the next ones fail with it."""
        for arn in self._ecs.list_tasks()["taskArns"]:
            self._ecs.stop_task(task=arn)

    def clean(self) -> None:
        """Nothing is left, nothing ran twice, and the agent has not stumbled."""
        until(lambda: not self.node.containers(), "no container is left", SETTLE_SECONDS)
        until(lambda: not self.node.cgroups(), "no cgroup is left", SETTLE_SECONDS)
        twice = {mark: count for mark, count in Counter(self._ledger.read_text().split()).items() if count > 1}
        assert not twice
        assert self.node.agent.running and "trace=" not in self.node.agent.log


@pytest.fixture(scope="module")
def whole(engine: PrivateEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Node(tmp_path_factory.mktemp("node"), engine.url, environment=SETTINGS) as node:
        yield Bench(node, engine, tmp_path_factory.mktemp("out"))


@pytest.fixture
def bench(whole: Bench) -> Iterator[Bench]:
    yield whole
    whole.end_the_rest()
    whole.clean()


def _said(bench: Bench, arn: str, *words: str) -> bool:
    """Whether a line of the log about this task holds all these words."""
    return any(arn in line and all(word in line for word in words) for line in bench.node.agent.log.splitlines())


def test_shim_is_killed(bench: Bench) -> None:
    """A shim takes its container with it, and nobody else's."""
    victim, other = bench.run("stays"), bench.run("stays")
    bench.running(victim, other)
    parent = int(Path(f"/proc/{bench.pid(victim)}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"containerd-shim" in Path(f"/proc/{parent}/cmdline").read_bytes()
    os.kill(parent, signal.SIGKILL)
    end = bench.ended(victim)
    assert end.get("exitCode") not in (0, 7), end
    assert bench.task(other)["lastStatus"] == "RUNNING"
    bench.stop(other)


def test_containerd_is_killed(bench: Bench) -> None:
    """Tasks run on without it; what is asked for meanwhile happens once it is back."""
    stays, ends = bench.run("stays"), bench.run("ends")
    bench.running(stays, ends)
    bench.engine.kill_containerd()
    late = bench.run("ends")
    time.sleep(2.5)  # what ends in between ends unseen
    assert bench.task(stays)["lastStatus"] == "RUNNING"
    bench.engine.start()
    # Its engine missed the end and would call it running for ever.
    assert bench.ended(ends)["exitCode"] == 3
    assert bench.ended(late)["exitCode"] == 3
    bench.running(stays)
    bench.stop(stays)


def test_engine_is_frozen(bench: Bench) -> None:
    """As long as the engine says nothing, nothing is known and nothing fails; afterwards everything happens."""
    stays, stopped, ends = bench.run("stays"), bench.run("stays"), bench.run("ends")
    bench.running(stays, stopped)
    dockerd = bench.engine._dockerd
    assert dockerd is not None
    dockerd.send_signal(signal.SIGSTOP)
    try:
        late = bench.run("ends")
        bench._ecs.stop_task(task=stopped)
        deadline = time.monotonic() + FROZEN_SECONDS
        while time.monotonic() < deadline:
            health = bench.node.agent_health()
            assert health.get("connectedSince"), "the agent is frozen as well"
            time.sleep(0.5)
        states = {bench.task(arn)["lastStatus"] for arn in (stays, stopped)}
        assert states == {"RUNNING"}
    finally:
        dockerd.send_signal(signal.SIGCONT)
    assert bench.ended(stopped)["exitCode"] in (7, 137)
    assert bench.ended(ends)["exitCode"] == 3
    assert bench.ended(late)["exitCode"] == 3
    assert bench.task(stays)["lastStatus"] == "RUNNING"
    bench.stop(stays)


def test_container_is_touched_by_somebody_else(bench: Bench) -> None:
    removed, killed, paused, restarted = (bench.run("stays") for _ in range(4))
    bench.running(removed, killed, paused, restarted)
    bench.engine.cli("rm", "--force", bench.container(removed)["Id"])
    bench.engine.cli("kill", bench.container(killed)["Id"])
    bench.engine.cli("pause", bench.container(paused)["Id"])
    gone = bench.ended(removed)
    assert gone.get("exitCode") == 137 or gone["reason"].startswith("ContainerVanishedError"), gone
    assert bench.ended(killed)["exitCode"] == 137
    until(lambda: _said(bench, paused, "touched by somebody else", "what=pause"), "the pause is in the log")
    assert bench.task(paused)["lastStatus"] == "RUNNING"
    bench._ecs.stop_task(task=paused)
    assert bench.ended(paused)["exitCode"] in (7, 137)
    bench.stop(restarted)


def test_two_agents_on_one_host(bench: Bench, tmp_path: Path) -> None:
    """Of one directory there is one agent; of two, each minds its own containers."""
    node = bench.node
    own = bench.run("stays")
    bench.running(own)
    more = ("--backend", node.endpoint, "--docker-host", node.engine_url)
    twin = node.role("agent", "--data-dir", f"{node.root}/control", *more, label="twin")
    twin.environment.update(node.credentials())
    twin.start()
    assert twin.wait() == 5
    assert "agent.db" in twin.log, twin.log
    other = node.role("agent", "--data-dir", f"{tmp_path}/other", "--leave-nothing", *more, label="other")
    other.environment.update(node.credentials())
    other.start()
    known = {node.agent_health()["containerInstanceArn"]}

    def second() -> Any:
        arns = set(bench._ecs.list_container_instances()["containerInstanceArns"]) - known
        rows = (
            bench._ecs.describe_container_instances(containerInstances=sorted(arns))["containerInstances"]
            if arns
            else []
        )
        return [one["containerInstanceArn"] for one in rows if one["agentConnected"]]

    (instance,) = until(second, "the other agent is connected")
    theirs = bench.run("stays", instance)
    bench.running(theirs)
    time.sleep(1.0)  # either agent has looked at what it sees of the engine
    bench.running(own, theirs)
    assert other.terminate() == 0
    assert bench.ended(theirs)["exitCode"] == 7
    assert bench.task(own)["lastStatus"] == "RUNNING"
    bench._ecs.deregister_container_instance(containerInstance=instance, force=True)
    bench.stop(own)


@pytest.fixture
def timely(engine: PrivateEngine, tmp_path: Path) -> Iterator[tuple[Bench, Path]]:
    """A node whose clock a test sets by writing to a file."""
    assert FAKETIME is not None, "faketime is not installed; run scripts/setup.sh dev"
    clock = tmp_path / "clock"
    clock.write_text("+0")
    environment = SETTINGS | {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "NO_FAKE_STAT": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    with Node(tmp_path / "node", engine.url, environment=environment) as node:
        yield Bench(node, engine, tmp_path), clock


def _same_time(bench: Bench) -> bool:
    """Whether the node's clock is ours: it takes no signature of another time."""
    try:
        bench._ecs.list_clusters()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidSignatureException", error
        return False
    return True


def test_clock_jumps(timely: tuple[Bench, Path]) -> None:
    """A day ahead and a day back: nothing ends, nothing is started again, and what ends then ends rightly."""
    bench, clock = timely
    stays, exits = bench.run("stays"), [bench.run("stays") for _ in range(2)]
    bench.running(stays, *exits)
    for offset, victim in zip(("+1d", "-1d"), exits, strict=True):
        clock.write_text(offset)
        until(lambda: not _same_time(bench), "the clock has jumped")
        bench.engine.cli("kill", bench.container(victim)["Id"])
        until(lambda victim=victim: _said(bench, victim, "is=STOPPED"), "the end is noticed")  # type: ignore[misc]
        with pytest.raises(NodeFailed):
            until(lambda: _said(bench, stays, "is=STOPPED"), "what runs ends", 2.0)
    clock.write_text("+0")
    until(lambda: _same_time(bench), "the clock is right again")
    for victim in exits:
        assert bench.ended(victim)["exitCode"] == 137
    assert bench.task(stays)["lastStatus"] == "RUNNING"
    ends = bench.run("ends")
    assert bench.ended(ends)["exitCode"] == 3
    bench.stop(stays)
    bench.clean()
