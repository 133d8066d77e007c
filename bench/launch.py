"""From RunTask to RUNNING, beside the floor: create and start of an equal container on the same engine.

Floor and Sexton take turns in one run, so that whatever else the machine does touches both. Sexton's time is read
off the task's own record: from the moment RunTask was accepted to the moment RUNNING arrived, both by the control
plane's clock. Nothing is measured while the engine still removes what was there before.
Run: ``python -m bench.launch``
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

TURNS = 6
BURST = 50
ROUNDS = 3
# Of one wait, whatever else the machine does; a burst takes five seconds on a calm one.
PATIENCE_SECONDS = 120.0
# Whoever waits asks so often, and no more: its questions would take the time of what it measures.
ASK_SECONDS = 0.02
ASK_SECONDS_OF_MANY = 0.1
# What lives on for a moment after the engine has said that nothing is left: the drain of a cgroup, a shim's end.
SETTLE_SECONDS = 0.3
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

    def __init__(self, http: aiohttp.ClientSession, image: str, parent: str) -> None:
        self._http = http
        self._image = image
        self._parent = parent  # below the engine's own, with which it goes

    async def launch(self, mode: str) -> tuple[float, str]:
        began = time.perf_counter()
        async with self._http.post("http://d/containers/create", json=_body(self._image, mode, self._parent)) as answer:
            container = (await answer.json())["Id"]
        async with self._http.post(f"http://d/containers/{container}/start") as answer:
            assert answer.status == 204, await answer.text()
        return time.perf_counter() - began, container

    async def burst(self, mode: str, count: int) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self.launch(mode) for _ in range(count)))
        return time.perf_counter() - began

    async def remove_all(self) -> None:
        places = asyncio.Semaphore(8)  # an engine that is asked for more at once takes longer

        async def remove(container: str) -> None:
            async with places, self._http.delete(f"http://d/containers/{container}?force=1&v=1"):
                pass

        await asyncio.gather(*(remove(row["Id"]) for row in await self._there()))
        await self.emptied()

    async def emptied(self) -> None:
        """Wait until the engine has no container any more."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._there():
                await asyncio.sleep(ASK_SECONDS_OF_MANY)
        await asyncio.sleep(SETTLE_SECONDS)

    async def _there(self) -> list[dict[str, Any]]:
        async with self._http.get("http://d/containers/json?all=1") as answer:
            return list(await answer.json())


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
        tasks = self._all(arns, "RUNNING")
        took = max(task["startedAt"] for task in tasks) - min(task["createdAt"] for task in tasks)
        return took, arns

    def stop(self, arns: list[str]) -> None:
        for arn in arns:
            self._client.call("StopTask", task=arn)
        self._all(arns, "STOPPED")

    def _all(self, arns: list[str], status: str) -> list[dict[str, Any]]:
        """The tasks, once all of them have come so far."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            tasks: list[dict[str, Any]] = self._client.call("DescribeTasks", tasks=arns)["tasks"]
            there = [task["lastStatus"] for task in tasks]
            if set(there) == {status}:
                return tasks
            if time.monotonic() > ends or ("STOPPED" in there and status != "STOPPED"):
                raise RuntimeError(f"not all tasks are {status}: {there}")
            time.sleep(ASK_SECONDS if len(arns) == 1 else ASK_SECONDS_OF_MANY)


async def measure(engine: PrivateEngine, subject: Subject, port: int, image: str) -> list[dict[str, Any]]:
    tasks = Tasks(Client(port, subject.key()), image)
    rows = []
    connector = aiohttp.UnixConnector(engine.url.removeprefix("unix://"), limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        floor = Floor(http, image, f"{engine.cgroup_parent}/floor")
        for count, rounds in ((1, TURNS), (BURST, ROUNDS)):
            for mode in MODES:
                ours, bare = [], []
                for _ in range(rounds):
                    bare.append(await floor.burst(mode, count))
                    await floor.remove_all()
                    took, arns = tasks.launch(mode, count)
                    ours.append(took)
                    tasks.stop(arns)
                    await floor.emptied()
                rows.append(_row("one task" if count == 1 else f"{count} tasks at once", mode, bare, ours))
    return rows


def _row(what: str, mode: str, bare: list[float], ours: list[float]) -> dict[str, Any]:
    """The middle of the turns, each compared with the floor that was measured just before it."""
    pairs = list(zip(bare, ours, strict=True))
    return {
        "what": f"{what}, {mode}",
        "engine alone (ms)": round(statistics.median(bare) * 1000, 1),
        "sexton (ms)": round(statistics.median(ours) * 1000, 1),
        "overhead (ms)": round(statistics.median(high - low for low, high in pairs) * 1000, 1),
        "ratio": round(statistics.median(high / low for low, high in pairs), 3),
        "ratio of the best": round(min(ours) / min(bare), 3),
        "turns": len(ours),
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
