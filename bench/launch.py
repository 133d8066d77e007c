"""From RunTask to RUNNING, beside the floor: create and start of an equal container on the same engine.

Floor and Sexton take turns in one run, so that whatever else the machine does touches both. Sexton's time is read
off the task's own record: from the moment RunTask was accepted to the moment RUNNING arrived, both by the control
plane's clock. Run: ``python -m bench.launch``
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.subject import Client, Subject, free_port, running
from engine import PrivateEngine
from images import build_busybox

TURNS = 20
BURST = 50
ROUNDS = 3
MODES = ("none", "host", "bridge")
IDLE = ["sleep", "100000"]


def _body(image: str, mode: str, parent: str) -> dict[str, Any]:
    return {
        "Image": image,
        "Cmd": IDLE,
        "HostConfig": {"NetworkMode": mode, "Memory": 16 << 20, "CpuShares": 2, "CgroupParent": parent},
    }


class Floor:
    """The engine's own create and start, with nothing around it."""

    def __init__(self, url: str, image: str, parent: str) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.UnixConnector(url.removeprefix("unix://"), limit=0))
        self._image = image
        self._parent = parent  # below the engine's own, with which it goes

    async def launch(self, mode: str) -> tuple[float, str]:
        began = time.perf_counter()
        async with self._http.post("http://d/containers/create", json=_body(self._image, mode, self._parent)) as answer:
            container = (await answer.json())["Id"]
        async with self._http.post(f"http://d/containers/{container}/start") as answer:
            assert answer.status == 204, await answer.text()
        return time.perf_counter() - began, container

    async def burst(self, mode: str, count: int) -> tuple[float, list[str]]:
        began = time.perf_counter()
        made = await asyncio.gather(*(self.launch(mode) for _ in range(count)))
        return time.perf_counter() - began, [container for _, container in made]

    async def remove(self, containers: list[str]) -> None:
        for container in containers:
            async with self._http.delete(f"http://d/containers/{container}?force=1&v=1"):
                pass

    async def close(self) -> None:
        await self._http.close()


class Tasks:
    """The same containers as tasks."""

    def __init__(self, client: Client, image: str) -> None:
        self._client = client
        for mode in MODES:
            container = {"name": "main", "image": image, "memory": 16, "command": IDLE, "stopTimeout": 0}
            client.call(
                "RegisterTaskDefinition", family=mode, networkMode=mode, containerDefinitions=[container | {"cpu": 2}]
            )

    def launch(self, mode: str, count: int = 1) -> tuple[float, list[str]]:
        """Seconds from the first task's acceptance to the last one's RUNNING."""
        arns: list[str] = []
        for start in range(0, count, 10):
            answer = self._client.call("RunTask", taskDefinition=mode, count=min(10, count - start))
            assert not answer["failures"], answer["failures"]
            arns += [task["taskArn"] for task in answer["tasks"]]
        while True:
            tasks = self._client.call("DescribeTasks", tasks=arns)["tasks"]
            if all(task["lastStatus"] == "RUNNING" for task in tasks):
                break
            assert not any(task["lastStatus"] == "STOPPED" for task in tasks), tasks
            time.sleep(0.02)
        took = max(task["startedAt"] for task in tasks) - min(task["createdAt"] for task in tasks)
        return took, arns

    def stop(self, arns: list[str]) -> None:
        for arn in arns:
            self._client.call("StopTask", task=arn)
        while any(one["lastStatus"] != "STOPPED" for one in self._client.call("DescribeTasks", tasks=arns)["tasks"]):
            time.sleep(0.02)


async def measure(engine: PrivateEngine, subject: Subject, port: int, image: str) -> list[dict[str, Any]]:
    floor = Floor(engine.url, image, f"{engine.cgroup_parent}/floor")
    tasks = Tasks(Client(port, subject.key()), image)
    rows = []
    for mode in MODES:
        ours, bare = [], []
        for _ in range(TURNS):
            took, container = await floor.launch(mode)
            bare.append(took)
            await floor.remove([container])
            took, arns = tasks.launch(mode)
            ours.append(took)
            tasks.stop(arns)
        rows.append(_row(f"one task, {mode}", bare, ours))
    for mode in MODES:
        ours, bare = [], []
        for _ in range(ROUNDS):
            took, containers = await floor.burst(mode, BURST)
            bare.append(took)
            await floor.remove(containers)
            took, arns = tasks.launch(mode, BURST)
            ours.append(took)
            tasks.stop(arns)
        rows.append(_row(f"{BURST} tasks at once, {mode}", bare, ours))
    await floor.close()
    return rows


def _row(what: str, bare: list[float], ours: list[float]) -> dict[str, Any]:
    low, high = statistics.median(bare), statistics.median(ours)
    return {
        "what": what,
        "engine alone (ms)": round(low * 1000, 1),
        "sexton (ms)": round(high * 1000, 1),
        "overhead (ms)": round((high - low) * 1000, 1),
        "ratio": round(high / low, 3),
    }


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, PrivateEngine(Path(scratch) / "e") as engine:
        image = build_busybox(engine.url)
        port = free_port()
        options = ("--listen", f"127.0.0.1:{port}", "--docker-host", engine.url, "--leave-nothing")
        cleanup = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "ECS_RESERVED_MEMORY": "0"}
        with running("up", Path(scratch) / "up", *options, environment=cleanup) as subject:
            subject.wait_agent()
            return asyncio.run(measure(engine, subject, port, image))


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))
