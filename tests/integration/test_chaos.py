"""Sudden death of any part, at any instant, during fifty tasks: none is lost, none runs twice, nothing is left.

Every task that runs writes one line to a file of the host, so a second run is seen and not merely believed impossible.
The seed of a campaign is printed; SEXTON_SEED repeats it, SEXTON_SOAK=1 makes it ten times as long.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from engine import PrivateEngine
from images import build_busybox
from node import Node, until

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SOAK = os.environ.get("SEXTON_SOAK") == "1"
KILLS = 200 if SOAK else 20
TASKS = 200 if SOAK else 50
# Between two kills: short enough to hit agents that are still starting, long enough to hit ones that work.
PAUSE = (0.05, 2.0)
# A client of a service that dies every other second needs patience, not a counter.
CALL_SECONDS = 60.0
SETTLE_SECONDS = 120.0
OWN_EXIT = 7  # of a task that is told to stop


class Kind(NamedTuple):
    """What a task of the campaign does, and how it must end."""

    name: str
    command: list[str]
    stop_code: str
    exit_code: int | None

    @property
    def runs(self) -> bool:
        return self.name != "bad"


def _shell(script: str) -> list[str]:
    return ["sh", "-c", script]


KINDS = {
    one.name: one
    for one in (
        Kind("ends", _shell("echo $ID >> /out/ledger; exit 3"), "EssentialContainerExited", 3),
        Kind("works", _shell("echo $ID >> /out/ledger; sleep 2; exit 0"), "EssentialContainerExited", 0),
        Kind("bad", ["/no/such/command"], "TaskFailedToStart", None),
        Kind(
            "stays",
            _shell(f"trap 'exit {OWN_EXIT}' TERM; echo $ID >> /out/ledger; while :; do sleep 1 & wait; done"),
            "UserInitiated",
            OWN_EXIT,
        ),
    )
}


class Started(NamedTuple):
    """A task that was asked for, and by which mark its lines are told."""

    mark: str
    kind: Kind
    arn: str


class Load:
    """A client that runs tasks and stops some, however often the service dies under it."""

    def __init__(self, node: Node, folder: Path, image: str) -> None:
        folder.mkdir(exist_ok=True)
        self._ledger = folder / "ledger"
        self._ledger.touch()
        self._ecs = node.ecs()
        self.started: list[Started] = []
        for kind in KINDS.values():
            self.call(
                "register_task_definition",
                family=kind.name,
                networkMode="none",
                volumes=[{"name": "out", "host": {"sourcePath": str(folder)}}],
                containerDefinitions=[
                    {
                        "name": "app",
                        "image": image,
                        "memory": 16,
                        "command": kind.command,
                        "mountPoints": [{"sourceVolume": "out", "containerPath": "/out"}],
                    }
                ],
            )

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """One API call, repeated while nobody or an ailing service answers."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            try:
                answer: dict[str, Any] = getattr(self._ecs, operation)(**request)
                return answer
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500 or time.monotonic() > deadline:
                    raise
            except BotoCoreError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def run(self, kind: Kind) -> Started:
        """Start one task exactly once: a repeated call carries the token of the first."""
        mark = uuid.uuid4().hex
        override = {"name": "app", "environment": [{"name": "ID", "value": mark}]}
        deadline = time.monotonic() + CALL_SECONDS
        token = 0
        while True:
            answer = self.call(
                "run_task",
                cluster="default",
                taskDefinition=kind.name,
                clientToken=f"{mark}-{token}",
                overrides={"containerOverrides": [override]},
            )
            if answer["tasks"]:
                self.started.append(Started(mark, kind, answer["tasks"][0]["taskArn"]))
                return self.started[-1]
            # No host was connected just then; nothing was started, so this is a new request.
            assert time.monotonic() < deadline, answer["failures"]
            token += 1
            time.sleep(0.05)

    def stop(self, task: Started) -> None:
        """End it once it runs, unless it died with its engine before it could say so."""
        until(lambda: task.mark in self.lines() or self._stopped(task), f"{task.arn} runs", CALL_SECONDS)
        self.call("stop_task", cluster="default", task=task.arn)

    def _stopped(self, task: Started) -> bool:
        found = self.call("describe_tasks", cluster="default", tasks=[task.arn])["tasks"]
        return bool(found) and found[0]["lastStatus"] == "STOPPED"

    def lines(self) -> Counter[str]:
        return Counter(self._ledger.read_text().split())

    def descriptions(self) -> dict[str, dict[str, Any]]:
        arns = [one.arn for one in self.started]
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(arns), 100):
            answer = self.call("describe_tasks", cluster="default", tasks=arns[start : start + 100])
            assert not answer["failures"]
            found |= {one["taskArn"]: one for one in answer["tasks"]}
        return found

    def all_stopped(self) -> bool:
        return all(one["lastStatus"] == "STOPPED" for one in self.descriptions().values())

    def go(self, count: int, seconds: float, draw: random.Random) -> None:
        """``count`` tasks of all kinds over about so many seconds; each that stays is stopped some time later."""
        names = draw.choices(list(KINDS), weights=(4, 2, 1, 2), k=count)
        staying: list[tuple[float, Started]] = []
        for name in names:
            task = self.run(KINDS[name])
            if name == "stays":
                staying.append((time.monotonic() + draw.random() * 5, task))
            for due in [one for one in staying if one[0] < time.monotonic()]:
                staying.remove(due)
                self.stop(due[1])
            time.sleep(draw.random() * 2 * seconds / count)
        for _, task in staying:
            self.stop(task)


class InBackground:
    """A thread whose failure is the test's."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the client is stuck"
        if self._error is not None:
            raise self._error


@pytest.fixture
def draw() -> random.Random:
    seed = int(os.environ.get("SEXTON_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SEXTON_SEED={seed}")
    return random.Random(seed)


LOST = "DockerStateError: the engine died while it started this container and lost sight of it"
SETTINGS = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "ECS_CONTAINER_STOP_TIMEOUT": "5s"}


def _nothing_left(node: Node) -> None:
    until(lambda: not node.containers(), "no container is left", SETTLE_SECONDS)
    until(lambda: not node.cgroups(), "no cgroup is left", SETTLE_SECONDS)
    assert node.agent_health()["tasks"] == 0


@pytest.mark.timeout(7200 if SOAK else 300)
def test_kill_at_any_instant(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path, draw: random.Random
) -> None:
    with Node(tmp_path / "node", engine_session.url, split=True, environment=SETTINGS) as node:
        load = Load(node, tmp_path / "out", busybox_image)
        seconds = KILLS * sum(PAUSE) / 2
        client = InBackground(lambda: load.go(TASKS, seconds, draw))
        killer = random.Random(draw.random())
        victims: Counter[str] = Counter()
        for _ in range(KILLS):
            time.sleep(killer.uniform(*PAUSE))
            chosen = killer.choice([(node.agent,), (node.control,), (node.agent, node.control)])
            victims["+".join(one.name for one in chosen)] += 1
            for role in chosen:
                role.kill()
            for role in chosen:
                role.start()
        client.join(seconds + 4 * CALL_SECONDS)
        until(load.all_stopped, "every task has stopped", SETTLE_SECONDS)
        print(f"{TASKS} tasks, kills: {dict(victims)}")
        _right_ends(load)
        _nothing_left(node)
        assert node.agent.running and node.control.running
        assert "trace=" not in node.agent.log and "trace=" not in node.control.log


def _right_ends(load: Load) -> None:
    found, lines = load.descriptions(), load.lines()
    wrong = []
    for task in load.started:
        seen = found[task.arn]
        ended = (seen.get("stopCode"), seen["containers"][0].get("exitCode"), lines[task.mark])
        if ended != (task.kind.stop_code, task.kind.exit_code, int(task.kind.runs)):
            wrong.append((task.kind.name, task.arn, ended, seen.get("stoppedReason"), seen["containers"][0]))
        if task.kind.name == "bad":
            assert seen["containers"][0]["reason"].startswith("CannotStartContainerError")
    assert not wrong
    assert set(lines) <= {one.mark for one in load.started}


@pytest.fixture
def breakable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PrivateEngine]:
    with PrivateEngine(tmp_path / "engine", live_restore=request.param) as engine:
        build_busybox(engine.url)
        yield engine


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["kill", "terminate"])
@pytest.mark.parametrize("breakable", [False, True], ids=["containers die", "containers live"], indirect=True)
def test_engine_restarts(breakable: PrivateEngine, how: str, tmp_path: Path, draw: random.Random) -> None:
    """What dies with the engine ends with what the engine says of it; what lives goes on; nothing hangs or repeats."""
    with Node(tmp_path / "node", breakable.url, environment=SETTINGS) as node:
        load = Load(node, tmp_path / "out", "sexton/busybox:latest")
        client = InBackground(lambda: load.go(30, 12.0, draw))
        killer = random.Random(draw.random())
        for _ in range(3):
            time.sleep(killer.uniform(0.5, 3.0))
            getattr(breakable, how)()
            time.sleep(killer.uniform(0.0, 1.0))
            breakable.start()
        client.join(4 * CALL_SECONDS)
        until(load.all_stopped, "every task has stopped", SETTLE_SECONDS)
        found, lines = load.descriptions(), load.lines()
        for task in load.started:
            seen = found[task.arn]
            code, reason = seen["containers"][0].get("exitCode"), seen["containers"][0].get("reason", "")
            assert lines[task.mark] <= 1, (task, seen)
            if not task.kind.runs:
                assert reason.startswith(("CannotStartContainerError", LOST)), (task, seen)
                continue
            # Ended by itself, with its engine, or in the one moment in which an engine's death leaves open what it did.
            assert code is not None or reason.startswith(LOST), (task, seen)
            if code == task.kind.exit_code:
                assert lines[task.mark] == 1, (task, seen)
        _nothing_left(node)
        assert node.agent.running and "trace=" not in node.agent.log
