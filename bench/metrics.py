"""What the metrics of 50 containers cost in a minute: agent, dockerd, containerd and shims together.

Beside it, in the same run and of equal containers: the engine by itself, the engine's own statistics (one stream
followed for each container, or one question for each every ten seconds, as they are read elsewhere), and an agent that
makes no readings (``ECS_DISABLE_METRICS``). What readings cost is the difference to that agent: counters, samples, the
history of sizes and telemetry. What an engine spends on fifty idle containers moves from minute to minute whoever
looks, so it has a column of its own. Run: ``python -m bench.metrics``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp

from bench.launch import IDLE, Tasks
from bench.subject import Client, free_port, running
from engine import PrivateEngine
from images import build_busybox

CONTAINERS = 50
SECONDS = 60.0
# Long enough for what asks all the time.
SECONDS_OF_OTHERS = 30.0
SETTLE_SECONDS = 5.0
# Starting, connecting and the first telemetry are no steady cost.
SETTLE_SECONDS_OF_AN_AGENT = 12.0
# As often as the engine's statistics are asked for by who does not follow them.
POLL_SECONDS = 10.0
# As often as a Prometheus usually asks.
SCRAPE_SECONDS = 15.0


def _spent(pids: Iterable[int]) -> float:
    """Processor seconds of these processes, to the nanosecond: of fifty that idle, ticks would tell little."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _engine_pids(engine: PrivateEngine) -> list[int]:
    """The engine's daemons, and a shim for each container; a shim says whose it is on its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if Path(words[0]).name in ("dockerd", "containerd", "containerd-shim-runc-v2") and any(
                    str(engine.root) in word for word in words
                ):
                    found.append(int(entry.name))
    return found


def _minute(
    what: str,
    engine: PrivateEngine,
    others: list[int],
    work: Callable[[], None] = lambda: time.sleep(SECONDS_OF_OTHERS),
    settle: float = SETTLE_SECONDS,
) -> dict[str, Any]:
    time.sleep(settle)
    pids = _engine_pids(engine)
    before, ours, began = _spent(pids), _spent(others), time.perf_counter()
    work()
    scale = 60.0 / (time.perf_counter() - began)
    engine_cpu, other_cpu = (_spent(pids) - before) * scale, (_spent(others) - ours) * scale
    return {
        "what": what,
        "engine and shims (CPU s/min)": round(engine_cpu, 3),
        "reader (CPU s/min)": round(other_cpu, 3),
        "together": round(engine_cpu + other_cpu, 3),
    }


def _follow(engine: PrivateEngine) -> None:
    """Read every container's stats stream for the time of one measurement."""

    async def one(http: aiohttp.ClientSession, container: str) -> None:
        async with http.get(f"http://d/containers/{container}/stats?stream=1") as answer:
            async for _ in answer.content:
                pass

    async def all_of_them() -> None:
        connector = aiohttp.UnixConnector(engine.url.removeprefix("unix://"), limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
            rows = json.loads(engine.call("GET", "/containers/json"))
            followers = [asyncio.ensure_future(one(http, row["Id"])) for row in rows]
            await asyncio.wait(followers, timeout=SECONDS_OF_OTHERS)
            for follower in followers:
                follower.cancel()
            await asyncio.wait(followers)

    asyncio.run(all_of_them())


def _poll(engine: PrivateEngine) -> None:
    """Ask for every container's statistics once in a while for the time of one measurement."""
    ends = time.monotonic() + SECONDS_OF_OTHERS
    while (left := ends - time.monotonic()) > 0:
        for row in json.loads(engine.call("GET", "/containers/json")):
            engine.call("GET", f"/containers/{row['Id']}/stats?stream=false&one-shot=true")
        time.sleep(min(POLL_SECONDS, left))


def _scrape(port: int) -> Callable[[], None]:
    def work() -> None:
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert b"sexton_container_cpu_seconds" in answer.read()
            time.sleep(max(0.0, min(SCRAPE_SECONDS, ends - time.monotonic())))

    return work


def _with_agent(engine: PrivateEngine, root: Path, image: str) -> list[dict[str, Any]]:
    api, page = free_port(), free_port()
    rows = []
    with running("control", root / "control", "--listen", f"127.0.0.1:{api}") as control:
        control.wait_port(api)
        key = control.key()
        environment = {
            "AWS_ACCESS_KEY_ID": key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
            "SEXTON_INTROSPECTION": f"127.0.0.1:{page}",
            "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
        }
        backend = ("--backend", f"http://127.0.0.1:{api}", "--docker-host", engine.url)
        turns = (
            ("an agent that makes no readings", {"ECS_DISABLE_METRICS": "true"}, lambda: time.sleep(SECONDS)),
            ("sexton: read every 10 s, sent every 20 s", {}, lambda: time.sleep(SECONDS)),
            ("the same, and a Prometheus that asks every 15 s", {}, _scrape(page)),
        )
        tasks: Tasks | None = None
        for what, more, work in turns:
            with running("agent", root / "agent", *backend, environment=environment | more) as agent:
                agent.wait_agent()
                if tasks is None:  # the first agent's; the others find them running
                    tasks = Tasks(Client(api, key), image)
                    tasks.launch("none", CONTAINERS)
                rows.append(_minute(what, engine, [agent.process.pid], work, SETTLE_SECONDS_OF_AN_AGENT))
                rows[-1]["agent's RSS (MB)"] = round(agent.memory_mb(), 1)
    return rows


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, PrivateEngine(Path(scratch) / "e") as engine:
        image = build_busybox(engine.url)
        body = {"Image": image, "Cmd": IDLE, "HostConfig": {"NetworkMode": "none"}}
        for _ in range(CONTAINERS):
            made = json.loads(engine.call("POST", "/containers/create", body))["Id"]
            engine.call("POST", f"/containers/{made}/start")
        rows = [
            _minute(f"{CONTAINERS} containers that nobody looks at", engine, []),
            _minute("the engine's stats stream, a follower each", engine, [os.getpid()], lambda: _follow(engine)),
            _minute("the engine's statistics, asked every 10 s", engine, [os.getpid()], lambda: _poll(engine)),
        ]
        engine.remove_containers()
        return rows + _with_agent(engine, Path(scratch), image)


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))
