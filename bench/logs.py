"""Log lines a second into the control plane, and out of it, beside writing and compressing the same lines by hand.

Run: ``python -m bench.logs``
"""

from __future__ import annotations

import json
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from bench.subject import free_port, running

MEGABYTES = 50
LINE = "2026-11-19T12:00:00.000Z INFO request {:08d} served in 12 ms for 10.1.2.3 by worker 7 with status 200"
BATCH = 8000


def _batches() -> list[list[str]]:
    count = MEGABYTES * 1_000_000 // len(LINE)
    lines = [LINE.format(number) for number in range(count)]
    return [lines[start : start + BATCH] for start in range(0, count, BATCH)]


def _floor(root: Path, batches: list[list[str]]) -> tuple[float, float]:
    """As little as can be done: JSON, a file, and a compressed one."""
    began = time.perf_counter()
    with (root / "plain").open("wb") as plain, (root / "compressed").open("wb") as small:
        for batch in batches:
            data = json.dumps([{"timestamp": 1, "message": line} for line in batch]).encode()
            plain.write(data)
            small.write(zlib.compress(data, 3))
    wrote = time.perf_counter() - began
    began = time.perf_counter()
    for batch in batches:
        sum("00123456" in line for line in batch)
    return wrote, time.perf_counter() - began


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    batches = _batches()
    lines = sum(map(len, batches))
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        root, port = Path(scratch), free_port()
        wrote, searched = _floor(root, batches)
        with running("control", root / "control", "--listen", f"127.0.0.1:{port}") as control:
            control.wait_port(port)
            key = control.key()
            logs = boto3.client(
                "logs",
                endpoint_url=f"http://127.0.0.1:{port}",
                region_name="us-east-1",
                aws_access_key_id=key.access_key_id,
                aws_secret_access_key=key.secret_access_key,
                config=Config(retries={"total_max_attempts": 1}),
            )
            logs.create_log_group(logGroupName="/bench")
            logs.create_log_stream(logGroupName="/bench", logStreamName="s")
            spent, began = control.cpu_seconds(), time.perf_counter()
            for number, batch in enumerate(batches):
                start = int(time.time() * 1000) - 3_600_000 + number * 100
                events = [{"timestamp": start, "message": line} for line in batch]
                logs.put_log_events(logGroupName="/bench", logStreamName="s", logEvents=events)
            took, cpu = time.perf_counter() - began, control.cpu_seconds() - spent
            began = time.perf_counter()
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName="/bench", filterPattern="00123456")
            found = sum(len(page["events"]) for page in pages)
            search = time.perf_counter() - began
            assert found == 1, found
            size = sum(one.stat().st_size for one in (root / "control/logs").rglob("*") if one.is_file())
            return [
                {
                    "what": "floor: JSON, written and compressed",
                    "seconds": round(wrote, 2),
                    "search (s)": round(searched, 2),
                },
                {
                    "what": f"{lines:,} lines of {len(LINE)} bytes, boto3 to the control plane",
                    "seconds": round(took, 2),
                    "of which the control plane's CPU": round(cpu, 2),
                    "search (s)": round(search, 2),
                    "MB/s": round(MEGABYTES / took, 1),
                    "on disk (MB)": round(size / 1e6, 1),
                    "RSS (MB)": round(control.memory_mb(), 1),
                },
            ]


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))
