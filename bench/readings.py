"""Processor time that metrics of 50 containers cost, agent and engine together, beside the same without readings.

Two agents on two engines of one machine at the same time, each with 50 containers that sleep; one makes no readings
(``ECS_DISABLE_METRICS``), so that the difference is what readings cost: counters, samples, the history of sizes and
telemetry. Beside them what the engine's own statistics cost, asked once for each container every ten seconds, which
is how they are read elsewhere. Run: ``python -m bench.readings``
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.subject import Client, Subject, fill, free_port, running
from engine import PrivateEngine
from images import build_busybox

CONTAINERS = 50
SECONDS = 60.0
# Starting and the first telemetry are no steady cost.
SETTLE_SECONDS = 25.0
POLL_SECONDS = 10.0


class Side:
    """One control plane with one agent on one engine."""

    def __init__(self, root: Path, engine: PrivateEngine, stack: contextlib.ExitStack, **environment: str) -> None:
        self._engine = engine
        port = free_port()
        options = ("--listen", f"127.0.0.1:{port}")
        control = stack.enter_context(running("control", root / "control", *options))
        control.wait_port(port)
        key = control.key()
        keys = {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}
        backend = ("--backend", f"http://127.0.0.1:{port}", "--docker-host", engine.url, "--leave-nothing")
        self._agent: Subject = stack.enter_context(
            running("agent", root / "agent", *backend, environment={**keys, **environment})
        )
        self._agent.wait_agent()
        self._client = Client(port, key)

    def fill(self, image: str) -> None:
        fill(self._client, image, CONTAINERS)

    def cpu_seconds(self) -> tuple[float, float]:
        """Of the agent, and of its engine."""
        return self._agent.cpu_seconds(), sum(_cpu_seconds(pid) for pid in self._engine.daemons())

    def memory_mb(self) -> float:
        return self._agent.memory_mb()

    def ask_engine(self) -> None:
        """What polling the engine's own statistics is: one question for each container."""
        for one in json.loads(_get(self._engine.url, "/containers/json")):
            _get(self._engine.url, f"/containers/{one['Id']}/stats?stream=false&one-shot=true")


def _get(url: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("engine", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(url.removeprefix("unix://"))
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read()


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sexton-bench-")))
        sides: dict[str, Side] = {}
        for name, environment in (
            ("with readings", {}),
            ("without (floor)", {"ECS_DISABLE_METRICS": "true"}),
        ):
            place = root / name.partition(" ")[0]
            engine = stack.enter_context(PrivateEngine(place / "engine"))
            image = build_busybox(engine.url)
            sides[name] = Side(place, engine, stack, **environment)
            sides[name].fill(image)
        time.sleep(SETTLE_SECONDS)
        rows = _measure(sides, asked=None)
        floor = sides["without (floor)"]
        (polled,) = _measure({"the engine's own statistics": floor}, asked=floor)
        return [*rows, polled]


def _measure(sides: dict[str, Side], asked: Side | None) -> list[dict[str, Any]]:
    before = {name: side.cpu_seconds() for name, side in sides.items()}
    ends = time.monotonic() + SECONDS
    while (left := ends - time.monotonic()) > 0:
        if asked is not None:
            asked.ask_engine()
        time.sleep(min(POLL_SECONDS, left))
    rows = []
    for name, side in sides.items():
        agent, engine = (after - then for after, then in zip(side.cpu_seconds(), before[name], strict=True))
        rows.append(
            {
                "what": name,
                "agent (CPU s/min)": round(agent, 2),
                "engine (CPU s/min)": round(engine, 2),
                "together": round(agent + engine, 2),
                "RSS of the agent (MB)": round(side.memory_mb(), 1),
            }
        )
    return rows


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))
