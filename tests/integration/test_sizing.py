"""What tasks on a real engine use, as ``sexton top``, ``sexton advise``, Prometheus and CloudWatch are told."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest

from cloudparts import KEYS, Moto
from engine import PrivateEngine
from node import Node, free_port, until
from plane import open_plane
from sexton.agent import cloudwatch
from sexton.agent.app import Agent, Options
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.cloud.monitoring import Monitoring, batches
from sexton.core.insights import TaskMinute, of_tasks
from sexton.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
SPIN = "while :; do :; done"
# Holds 58 of its 64 MiB where no page cache is dropped.
FILL = "dd if=/dev/zero of=/dev/shm/full bs=1M count=60 2>/dev/null; sleep 1000"
# Its first process stays; what is killed is the one that wants more than there is.
EAT = "tail -c 60m /dev/zero | sort >/dev/null; sleep 1000"


class Bench:
    """A node, its command line and its metrics."""

    def __init__(self, root: Path, engine_url: str, image: str) -> None:
        self.port = free_port()
        self.image = image
        settings = {
            "ECS_POLLING_METRICS_WAIT_DURATION": "5s",
            "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
            "SEXTON_INTROSPECTION": f"127.0.0.1:{self.port}",
            "SEXTON_CARE": "false",
        }
        self.node = Node(root, engine_url, leave_nothing=True, environment=settings)

    def run(self, family: str, *containers: Json, **more: Any) -> str:
        ecs = self.node.ecs()
        try:
            made = [
                {"name": "app", "image": self.image, "command": ["sleep", "1000"], "stopTimeout": 2} | one
                for one in containers
            ]
            ecs.register_task_definition(family=family, networkMode="none", containerDefinitions=made, **more)
            answer = ecs.run_task(taskDefinition=family)
            assert answer["failures"] == []
            arn = str(answer["tasks"][0]["taskArn"])
            ecs.get_waiter("tasks_running").wait(tasks=[arn], WaiterConfig={"Delay": 0.1, "MaxAttempts": 400})
        finally:
            ecs.close()
        return arn

    def sexton(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "ECS_DATADIR": f"{self.node.root}/control", "COLUMNS": "80"}
        return subprocess.run(
            [sys.executable, "-m", "sexton", *arguments],
            capture_output=True, text=True, env=environment, timeout=60,
        )  # fmt: skip

    def advice(self, family: str, container: str, setting: str) -> Json:
        """What is said once there is proof that a figure is too small."""

        def ask() -> Json:
            done = self.sexton("advise", family, "--json")
            found = json.loads(done.stdout)["judgements"] if done.returncode == 0 else []
            wanted = (container, setting, "under-sized")
            return next((one for one in found if (one["container"], one["setting"], one["verdict"]) == wanted), {})

        found: Json = until(ask, f"advice about {family}", 60.0)
        return found

    def metrics(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        for line in self.metrics().splitlines():
            if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
                return float(line.rpartition(" ")[2])
        return -1.0


@pytest.fixture(scope="module")
def bench(
    engine_session: PrivateEngine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("sizing"), engine_session.url, busybox_image)
    with made.node as node:
        yield made
        assert node.terminate() == [0]
        assert node.containers() == []
        assert "Traceback" not in node.control.log


def test_what_is_too_small_and_what_too_large_is_said_with_figures(bench: Bench) -> None:
    bench.run("spin", {"memory": 64, "command": ["sh", "-c", SPIN]}, cpu="128", memory="128")
    bench.run("full", {"memory": 64, "command": ["sh", "-c", FILL]})
    bench.run("eat", {"memory": 16, "command": ["sh", "-c", EAT]})
    arn = bench.run("idle", {"memory": 512, "cpu": 512}, {"name": "side", "memory": 64, "memoryReservation": 32})

    cpu = bench.advice("spin", "", "cpu")
    assert cpu["now"] == 128 and cpu["set_to"] > 128
    assert cpu["throttled"] >= 0.05 and 0 < cpu["used"]["max"] < 200

    memory = bench.advice("full", "app", "memory")
    assert (memory["now"], memory["set_to"]) == (64, 80)
    assert memory["used"]["max"] > 58

    killed = bench.advice("eat", "app", "memory")
    assert killed["set_to"] == 32 and killed["oom_kills"] >= 1

    # Looked at while all run: a stranger's first picture.
    shown = json.loads(bench.sexton("top", "--once", "--json").stdout)
    (idle,) = (one for one in shown["tasks"] if one["arn"] == arn)
    assert idle["reserved"] == {"cpu": 512, "memory": 544, "cpu_limit": 0, "memory_limit": 0}
    assert idle["cpu"] < 20 and idle["containers"][0]["held"] < 16 << 20
    (spin,) = (one for one in shown["tasks"] if one["family"] == "spin")
    assert spin["cpu"] > 0 and 0 < spin["throttled_share"] <= 1
    text = bench.sexton("top", "--once").stdout
    assert "spin:1" in text and "<128M" in text and max(map(len, text.splitlines())) <= 120

    assert bench.metric("sexton_task_reserved_cores", family="spin", limit="yes") == 0.125
    assert bench.metric("sexton_task_cpu_throttled_periods_total", family="spin") > 0
    assert bench.metric("sexton_container_reserved_memory_bytes", family="idle", container="side") == 32 << 20
    assert bench.metric("sexton_container_memory_held_bytes", family="full") > 58 << 20
    assert bench.metric("sexton_host_reserved_cores") == 0.625


def test_every_metric_of_the_dashboard_and_of_the_manual_is_there(bench: Bench) -> None:
    text = bench.metrics()
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) | set(re.findall(r"^(\w+)", text, re.MULTILINE))
    for page in ("packaging/grafana/sexton-sizes.json", "docs/sizing.md"):
        named = set(re.findall(r"\bsexton_(?:host|task|container)_\w+", (ROOT / page).read_text()))
        # By name only: this kernel may have nothing to say of waiting by group.
        missing = named - served - {"sexton_task_stalled_seconds_total"}
        assert len(named) > 15 and missing == set()


def test_the_live_picture_waits_for_an_agent_that_is_away_and_ends_with_q(bench: Bench) -> None:
    """In a terminal of its own: what is drawn goes to one end of it, keys come from the other."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "ECS_DATADIR": f"{bench.node.root}/control", "TERM": "xterm"}
    command = [sys.executable, "-m", "sexton", "top", "--every", "0.5"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""

    def seen(words: bytes) -> bool:
        nonlocal shown
        with contextlib.suppress(OSError):  # the other end is closed
            if select.select([main], [], [], 0.05)[0]:
                shown += os.read(main, 65536)
        return words in shown

    try:
        until(lambda: seen(b"sexton top"), "the first picture")
        os.kill(bench.node.agent.pid, signal.SIGSTOP)
        until(lambda: seen(b"the agent does not answer"), "that it is missed")
        os.kill(bench.node.agent.pid, signal.SIGCONT)
        until(
            lambda: not seen(b"") or b"does not answer" not in shown[shown.rfind(b"sexton top") - 400 :], "it is back"
        )
        os.write(main, b"q")
        until(lambda: seen(b"no such words") or process.poll() is not None, "its end")
        assert process.returncode == 0
    finally:
        os.kill(bench.node.agent.pid, signal.SIGCONT)
        process.kill()
        process.wait()
        os.close(main)


def test_the_history_outlives_the_agent(bench: Bench) -> None:
    before = json.loads(bench.sexton("advise", "--json").stdout)
    assert bench.node.terminate() == [0]
    bench.node.start()
    after = json.loads(bench.sexton("advise", "--json").stdout)

    assert {(one["family"], one["container"]) for one in before["judgements"]} == {
        (one["family"], one["container"]) for one in after["judgements"]
    }
    for key in ("samples", "seconds"):
        assert after["host"][key] >= before["host"][key]
    text = bench.sexton("advise").stdout
    assert "spin:1" in text and "under-sized, set" in text
    assert "not enough data yet" in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["advise", "nobody"], 1, "nothing of 'nobody' was measured on this host; there is"),
        (["advise", "--enough", "soon"], 2, "must be a duration"),
        (["top", "--every", "0"], 2, "--every"),
        (["top", "--sort", "luck"], 2, "--sort"),
    ],
)
def test_what_a_user_gets_wrong_is_said_in_a_sentence(
    bench: Bench, arguments: list[str], code: int, words: str
) -> None:
    done = bench.sexton(*arguments)

    assert done.returncode == code and words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["top", "advise"])
def test_where_no_agent_runs_that_is_said(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sexton", command],
        capture_output=True, text=True, env={**os.environ, "ECS_DATADIR": str(tmp_path)}, timeout=60,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith(f"sexton: cannot reach an agent at {tmp_path}/agent.sock: no agent runs")


async def test_cloudwatch_adds_up_what_tasks_used(moto: Moto) -> None:
    minutes = [TaskMinute("web", "front", 256, cpu, 512, 100.0) for cpu in (10.0, 30.0, 30.0)]
    data = list(of_tasks("adding", minutes))
    at = datetime.now(UTC).replace(second=0, microsecond=0)
    async with aiohttp.ClientSession() as http:
        monitoring = Monitoring(http, {"AWS_ENDPOINT_URL": moto.url}, "us-east-1")
        keys = Credentials(KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"])
        for batch in batches(data):
            await monitoring.put("ECS/ContainerInsights", at.timestamp(), batch, keys)
    client = moto.client("cloudwatch")

    def told(name: str, unit: str, **dimensions: str) -> Json:
        answer = client.get_metric_statistics(
            Namespace="ECS/ContainerInsights",
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            StartTime=at - timedelta(minutes=1),
            EndTime=at + timedelta(minutes=1),
            Period=60,
            Statistics=["Average", "Sum", "SampleCount", "Minimum", "Maximum"],
            Unit=unit,
        )
        (point,) = answer["Datapoints"]
        return {key: value for key, value in point.items() if isinstance(value, float | int)}

    used = {"SampleCount": 3.0, "Sum": 70.0, "Average": 70 / 3, "Minimum": 10.0, "Maximum": 30.0}
    # Not by the cluster alone: moto counts whatever has these dimensions among others, CloudWatch has exact matches.
    assert told("CpuUtilized", "None", ClusterName="adding", ServiceName="front") == used
    assert told("MemoryReserved", "Megabytes", ClusterName="adding", TaskDefinitionFamily="web")["Sum"] == 1536.0
    client.close()


async def test_metrics_arrive_where_cloudwatch_is_said_to_be(
    moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudwatch, "MINUTE", 0.5)
    environment = {
        "AWS_ENDPOINT_URL_CLOUDWATCH": moto.url,
        "AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"],
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    async with open_plane(tmp_path / "control") as plane:
        settings = Settings(
            backend=f"http://127.0.0.1:{plane.port}",
            data_dir=str(tmp_path / "agent"),
            docker_host="fake://",
            introspection=("off", 0),
            cloudwatch="ECS/ContainerInsights",
        )
        keys = Keyring([Static(Credentials(plane.key.access_key_id, plane.key.secret_access_key))])
        agent = Agent(Options(settings, environment, keys), lambda name, error: None)
        try:
            await agent.start()
            client = moto.client("cloudwatch")
            found: list[Json] = []
            async with asyncio.timeout(20):
                while not found:
                    await asyncio.sleep(0.1)
                    answer = await asyncio.to_thread(
                        client.get_metric_statistics,
                        Namespace="ECS/ContainerInsights",
                        MetricName="instance_number_of_running_tasks",
                        Dimensions=[{"Name": "ClusterName", "Value": "default"}],
                        StartTime=datetime.now(UTC) - timedelta(hours=1),
                        EndTime=datetime.now(UTC) + timedelta(hours=1),
                        Period=60,
                        Statistics=["Average", "Sum"],
                        Unit="Count",
                    )
                    found = answer["Datapoints"]
            client.close()
        finally:
            await agent.stop()
    assert found[0]["Average"] == 0.0
