"""A real agent process on a scripted control plane: restarts beside running tasks, bad neighbours, and nonsense.

The long form (``SEXTON_SOAK=1``) is 50 restarts with 50 tasks and 100,000 mutated messages instead of 10,000.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import pytest

from amazon_agent import recorded_frames
from engine import EngineFailed, PrivateEngine, engine_call
from node import CGROUPS, INSTANCE_LABEL, QUIET, Role, remove_tree, until
from scripted_plane import INSTANCE, Json, ScriptedPlane, task_arn

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SOAK = os.environ.get("SEXTON_SOAK") == "1"
RESTARTS, TASKS = (50, 50) if SOAK else (5, 10)
MUTATIONS = 100_000 if SOAK else 10_000
# What any program like this one has loaded.
LIBRARIES = "import asyncio, aiohttp, aiohttp.web, sqlite3, ssl, msgspec"
# What must hold on a machine that does nothing else; a loaded one gets more, as it does for everything.
RECONNECT_SECONDS = 1.0
RECONNECT_SECONDS_LOADED = 8.0


class AgentProcess(Role):
    """``sexton agent`` against a scripted control plane."""

    def __init__(self, root: Path, plane: ScriptedPlane, engine_url: str, *options: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        environment = (
            {
                "PATH": os.environ["PATH"],
                "HOME": str(root),
                "AWS_EC2_METADATA_DISABLED": "true",
                "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
                "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
            }
            | QUIET
            | plane.environment
        )
        command = ("--data-dir", f"{root}/data", "--backend", plane.url, "--docker-host", engine_url, *options)
        super().__init__("agent", root / "agent.log", command, environment)

    def rss_kib(self) -> int:
        return _rss_kib(Path(f"/proc/{self.pid}/status").read_text())

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _rss_kib(status: str) -> int:
    return int(status.partition("VmRSS:")[2].split()[0])


def a_task(number: int, image: str = "app:1", **fields: Any) -> Json:
    container = {
        "name": "app",
        "image": image,
        "essential": True,
        "memory": 8,
        "stopTimeout": 1,
        "command": ["sleep", "1000"],
    }
    return {
        "arn": task_arn(number),
        "family": "web",
        "version": "1",
        "desiredStatus": "RUNNING",
        "networkMode": "none",
        "containers": [container | fields.pop("container", {})],
    } | fields


@pytest.fixture
def plane() -> Iterator[ScriptedPlane]:
    with ScriptedPlane() as plane:
        yield plane


@pytest.fixture
def launch(tmp_path: Path, plane: ScriptedPlane) -> Iterator[Callable[..., AgentProcess]]:
    """Starts an agent and waits until it is connected; its containers are gone afterwards."""
    made: list[tuple[AgentProcess, str]] = []

    def start(engine_url: str, *options: str) -> AgentProcess:
        agent = AgentProcess(tmp_path / f"agent-{len(made)}", plane, engine_url, *options)
        made.append((agent, engine_url))
        before = len(plane.connections)
        agent.start()
        until(lambda: len(plane.connections) > before, "the agent is connected")
        return agent

    yield start
    for agent, engine_url in made:
        agent.kill()
        if engine_url.startswith("unix"):
            for row in _containers(engine_url):
                with contextlib.suppress(EngineFailed):  # gone meanwhile
                    engine_call(engine_url, "DELETE", f"/containers/{row['Id']}?force=1&v=1")
            for path in _cgroups(agent):
                with contextlib.suppress(OSError):  # in use: somebody else's of the same name
                    remove_tree(path)


def _cgroups(agent: AgentProcess) -> list[Path]:
    """Those of its tasks; one that was killed has removed none of them."""
    log = agent.log
    mine = {name for number in range(TASKS + 10) if (name := task_arn(number).rpartition("/")[2]) in log}
    return [path for path in [*CGROUPS.glob("*/ecs/*"), *CGROUPS.glob("ecs/*")] if path.name in mine]


def _containers(engine_url: str) -> list[Json]:
    filters = quote(json.dumps({"label": [f"{INSTANCE_LABEL}={INSTANCE}"]}))
    found: list[Json] = json.loads(engine_call(engine_url, "GET", f"/containers/json?all=1&filters={filters}"))
    return found


@pytest.mark.timeout(300 if SOAK else 60)
def test_it_is_as_small_as_promised(
    engine_session: PrivateEngine, busybox_image: str, plane: ScriptedPlane, launch: Callable[..., AgentProcess]
) -> None:
    """The promise is 45 MB fresh and 50 MB with 50 tasks; what Python and its libraries take differs from host to host
    and was 38.7 MB where it was made."""
    code = f"{LIBRARIES}; print(open('/proc/self/status').read())"
    clean = {"PATH": os.environ["PATH"]}
    floor = _rss_kib(subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True).stdout)
    agent = launch(engine_session.url)
    fresh = agent.rss_kib()
    plane.payload(*(a_task(number, busybox_image) for number in range(TASKS)))
    until(lambda: all(plane.told(task_arn(number)) == ["RUNNING"] for number in range(TASKS)), "every task runs", 120.0)

    print(f"libraries {floor}, fresh {fresh}, with {TASKS} tasks {agent.rss_kib()} KiB")
    assert fresh - floor <= 6_300
    assert agent.rss_kib() - floor <= 11_300


@pytest.mark.timeout(900 if SOAK else 120)
def test_restarts_beside_running_tasks(
    engine_session: PrivateEngine, busybox_image: str, plane: ScriptedPlane, launch: Callable[..., AgentProcess]
) -> None:
    """Connected again at once, every task where it was, and nothing that was told is told again."""
    agent = launch(engine_session.url)
    plane.payload(*(a_task(number, busybox_image) for number in range(TASKS)))
    arns = [task_arn(number) for number in range(TASKS)]
    until(lambda: all(plane.told(arn) == ["RUNNING"] for arn in arns), "every task runs", 120.0)
    before = {row["Id"]: row["State"] for row in _containers(engine_session.url)}
    took = []
    for turn in range(RESTARTS):
        connections = len(plane.connections)
        if turn % 2:
            agent.kill()
        else:
            assert agent.terminate() == 0
        began = time.monotonic()
        agent.start()
        until(lambda known=connections: len(plane.connections) > known, "the agent is connected again")
        took.append(plane.connections[-1] - began)
    # A look at every container follows each start; what it finds is nothing new.
    plane.payload(a_task(TASKS, busybox_image, desiredStatus="STOPPED"))
    until(lambda: "STOPPED" in plane.told(task_arn(TASKS)), "the last agent works")
    print(f"{TASKS} tasks, {RESTARTS} restarts: median {median(took):.2f} s, longest {max(took):.2f} s")
    assert [plane.told(arn) for arn in arns] == [["RUNNING"]] * TASKS
    assert {row["Id"]: row["State"] for row in _containers(engine_session.url)} == before
    assert median(took) < (RECONNECT_SECONDS if SOAK else RECONNECT_SECONDS_LOADED)
    plane.payload(*(a_task(number, busybox_image, desiredStatus="STOPPED") for number in range(TASKS)))
    until(lambda: all(plane.told(arn) == ["RUNNING", "STOPPED"] for arn in arns), "every task ends", 120.0)
    until(lambda: not _containers(engine_session.url), "nothing is left", 60.0)


def test_bad_task_among_good_ones(
    engine_session: PrivateEngine, busybox_image: str, plane: ScriptedPlane, launch: Callable[..., AgentProcess]
) -> None:
    agent = launch(engine_session.url)
    waits = {"dependsOn": [{"containerName": "app", "condition": "START"}]}
    message = plane.payload(
        a_task(1, busybox_image),
        a_task(2, busybox_image, container=waits),
        a_task(3, busybox_image, container={"command": 7}),
        a_task(4, busybox_image, container={"dockerConfig": {"hostConfig": "{"}}),
        a_task(5, busybox_image, container={"portMappings": [{"containerPortRange": "1-1000"}]}, networkMode="bridge"),
        a_task(6, busybox_image),
    )
    until(lambda: plane.told(task_arn(1)) == plane.told(task_arn(6)) == ["RUNNING"], "the good ones run")
    until(lambda: all(plane.told(task_arn(number)) == ["STOPPED"] for number in (2, 3, 4, 5)), "the bad ones end")
    reasons = {one.body["task"]: one.body.get("reason", "") for one in plane.reports}
    assert "Task dependencies cannot be resolved, taskArn: " in reasons[task_arn(2)]
    assert reasons[task_arn(3)].startswith("UnrecogniedTaskError: Error loading task - ")
    assert reasons[task_arn(4)].startswith("HostConfigError")
    assert reasons[task_arn(5)].startswith("HostConfigError")
    assert not plane.acknowledged(message)
    assert agent.log.count("task rejected") == 4
    assert agent.running and "trace=" not in agent.log


def _frames() -> list[str]:
    """Every kind of message that a control plane sends, as recorded where there is a record."""
    kinds = ("PayloadMessage", "HeartbeatMessage", "TaskManifestMessage", "TaskStopVerificationAck")
    recorded = [frame for kind in kinds for frame in recorded_frames("acs", kind, "service")]
    head = {"messageId": "m", "clusterArn": "c", "containerInstanceArn": INSTANCE, "seqNum": 1}
    everything = a_task(
        7,
        container={
            "dependsOn": [{"containerName": "app", "condition": "HEALTHY"}],
            "links": ["a:b"],
            "portMappings": [{"containerPort": 80, "hostPort": 0, "protocol": "udp"}],
            "restartPolicy": {"enabled": True, "ignoredExitCodes": [0], "restartAttemptPeriod": 60},
            "dockerConfig": {"config": '{"Labels":{"a":"b"}}', "hostConfig": '{"Init":true}', "version": "1.25"},
            "stopTimeout": 1,
            "healthCheckType": "docker",
        },
        volumes=[{"name": "v", "host": {"sourcePath": "/tmp"}}],
        associations=[{"name": "g", "type": "gpu", "containers": ["app"]}],
    )
    made = [
        {"type": "PayloadMessage", "message": head | {"tasks": [a_task(8), everything]}},
        {"type": "IAMRoleCredentialsMessage", "message": head | {"taskArn": task_arn(8), "roleType": "TaskExecution"}},
        {"type": "StageUpdateMessage", "message": head | {"updateInfo": {"location": "x", "signature": "y"}}},
        {"type": "AttachTaskNetworkInterfacesMessage", "message": head | {"waitTimeoutMs": 1}},
        {"type": "ConfirmAttachmentMessage", "message": head | {"attachment": {"attachmentType": "amazonebs"}}},
        {"type": "ErrorMessage", "message": {"message": "x"}},
    ]
    return recorded + [json.dumps(one) for one in made]


_ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    10**40,
    0.5,
    "",
    "x" * 5000,
    "\x00\ud7ff",
    [],
    {},
    [[[]]],
    {"a": {"b": []}},
)


def _mutated(frame: str, draw: random.Random) -> str:
    """The frame with something wrong: in its structure, in its text, or both."""
    if draw.random() < 0.7:
        value = json.loads(frame)
        for _ in range(draw.randint(1, 4)):
            _disturb(value, draw)
        frame = json.dumps(value)
    if draw.random() < 0.4:
        at = draw.randrange(len(frame) + 1)
        cut = draw.choice([0, 1, 3, len(frame)])
        put = draw.choice(["", "}", '"', "[" * draw.choice([1, 50_000]), "\u0000", "é", "9" * 400])
        frame = frame[:at] + put + frame[at + cut :]
    return frame


def _disturb(value: Any, draw: random.Random) -> None:
    """Change one thing somewhere inside."""
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                walk(inner[key])

    walk(value)
    if not places:
        return
    inside, key = draw.choice(places)
    match draw.randrange(4):
        case 0:
            inside[key] = copy.deepcopy(draw.choice(_ODD))
        case 1:
            del inside[key]
        case 2:
            inside[key] = [inside[key]]
        case _ if isinstance(inside, list):
            inside.append(copy.deepcopy(inside[key]))
        case _:
            inside[f"{key}x"] = inside.pop(key)


@pytest.mark.timeout(600 if SOAK else 120)
def test_mutated_messages(plane: ScriptedPlane, launch: Callable[..., AgentProcess]) -> None:
    """Whatever a control plane says: the agent lives, answers, grows by nothing but its tasks, and leaves nothing."""
    seed = int(os.environ.get("SEXTON_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SEXTON_SEED={seed}")
    draw = random.Random(seed)
    agent = launch("fake://", "--leave-nothing")
    frames = _frames()
    began, rss = time.monotonic(), agent.rss_mib()
    for start in range(0, MUTATIONS, 100):
        plane.raw(*(_mutated(draw.choice(frames), draw) for _ in range(100)))
        beat = f"beat-{start}"
        plane.say("HeartbeatMessage", healthy=True, messageId=beat)
        answer = {"type": "HeartbeatAckRequest", "message": {"messageId": beat}}
        until(lambda answer=answer: answer in list(plane.heard), "the agent answers")  # type: ignore[misc]
    print(f"{MUTATIONS} messages in {time.monotonic() - began:.1f} s; RSS {rss:.1f} -> {agent.rss_mib():.1f} MiB")
    assert len(plane.connections) == 1  # not one of them cost the connection
    good = a_task(99, networkMode="bridge")
    plane.payload(good | {"containers": [good["containers"][0] | {"image": "app:1"}]})
    until(lambda: plane.told(task_arn(99)), "a good task is answered")
    assert "trace=" not in agent.log, agent.log[agent.log.index("trace=") - 500 :][:2000]
    assert agent.rss_mib() < rss + 25
    assert agent.terminate() == 0
