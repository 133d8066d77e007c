"""Memory, idle CPU and start-up time of each role, beside a bare interpreter and an idle aiohttp server.

The agent and its control plane are measured once more while fifty tasks run.

Run: ``python -m bench.footprint``
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.subject import Client, Subject, fill, free_port, running
from engine import PrivateEngine
from images import build_busybox

# Long enough for a telemetry round and a heartbeat.
IDLE_SECONDS = 30.0
TASKS = 50

_FLOORS = {
    "bare interpreter": "pass",
    "asyncio + aiohttp, idle": "import asyncio, aiohttp, aiohttp.web, sqlite3, ssl, msgspec",
}


def _floor(code: str) -> tuple[float, float]:
    """Memory of a process that has only this loaded, and the time it takes to get there."""
    program = (
        f"{code}\nprint(int(open('/proc/self/status').read().partition('VmRSS:')[2].split()[0]) / 1000, flush=True)"
    )
    began = time.perf_counter()
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return float(shown), time.perf_counter() - began


def _idle(subjects: dict[str, tuple[Subject, float]]) -> list[dict[str, Any]]:
    before = {name: subject.cpu_seconds() for name, (subject, _) in subjects.items()}
    time.sleep(IDLE_SECONDS)
    return [
        {
            "what": f"sexton {name}",
            "RSS (MB)": round(subject.memory_mb(), 1),
            "CPU when idle (%)": round((subject.cpu_seconds() - before[name]) / IDLE_SECONDS * 100, 2),
            "start-up (s)": round(started, 2),
        }
        for name, (subject, started) in subjects.items()
    ]


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows: list[dict[str, Any]] = []
    for name, code in _FLOORS.items():
        memory, took = _floor(code)
        rows.append({"what": name, "RSS (MB)": memory, "CPU when idle (%)": 0.0, "start-up (s)": round(took, 2)})
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, PrivateEngine(Path(scratch) / "e") as engine:
        root = Path(scratch)
        ports = free_port(), free_port()
        with (
            running("up", root / "up", "--listen", f"127.0.0.1:{ports[0]}", "--docker-host", engine.url) as up,
            running("control", root / "control", "--listen", f"127.0.0.1:{ports[1]}") as control,
        ):
            started = {"up": (up, up.wait_agent()), "control": (control, control.wait_port(ports[1]))}
            key = control.key()
            keys = {"AWS_ACCESS_KEY_ID": key.access_key_id, "AWS_SECRET_ACCESS_KEY": key.secret_access_key}
            backend = ("--backend", f"http://127.0.0.1:{ports[1]}", "--docker-host", engine.url, "--leave-nothing")
            with running("agent", root / "agent", *backend, environment=keys) as agent:
                started["agent"] = (agent, agent.wait_agent())
                with running("care", root / "care", "--docker-host", engine.url) as care:
                    started["care"] = (care, care.wait_socket("care.sock"))
                    rows += _idle(started)
                fill(Client(ports[1], key), build_busybox(engine.url), TASKS, "bridge")
                busy = {f"{name} with {TASKS} tasks": started[name] for name in ("agent", "control")}
                rows += _idle(busy)
    return rows


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))
