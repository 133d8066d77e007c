"""Requests a second beside the emulators that people use today, moto's server and ministack, in the same run.

All three get the same requests from the same client (see bench.api): four keep-alive connections. They take turns,
round after round, so that whatever else the machine does touches all of them; the middle round counts. The emulators
answer from memory and check no signature; Sexton verifies each, and a definition that it has registered is on the
disk. Both emulators come from PyPI, pinned with the other tools of developers.

Run: ``python -m bench.peers``
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from bench.api import REGION, TASKS, bodies, control_plane, measure, request
from bench.subject import Client, free_port
from sexton.cloud.credentials import Credentials

ROUNDS = 3
SECONDS = 2.0
READY_SECONDS = 60.0
KEY = Credentials("AKIDBENCH", "secret-key-of-a-benchmark")

# How many times as many requests a second as each emulator are wanted.
WANTED = {
    "ListClusters": {"moto": 8, "ministack": 2},
    "RegisterTaskDefinition": {"moto": 8, "ministack": 2},
    "DescribeTasks(100)": {"ministack": 7},
}


@dataclass(frozen=True)
class Server:
    """One that is measured: where it listens, whom it lets in, and the tasks that it is asked about."""

    name: str
    port: int
    key: Credentials
    tasks: tuple[str, ...]

    def request(self, what: str) -> bytes:
        operation, body = bodies()[what]
        if operation == "DescribeTasks":
            body = json.dumps({"cluster": "default", "tasks": self.tasks}).encode()
        return request(operation, body, self.port, self.key)


@contextlib.contextmanager
def emulator(name: str, command: Sequence[str], port: int, scratch: Path, **environment: str) -> Iterator[Server]:
    """A server from PyPI with as many tasks as ours has."""
    with (scratch / f"{name}.log").open("wb") as log:
        # It finds no container engine: what it would start is not what is measured.
        nothing = {"DOCKER_HOST": f"unix://{scratch}/no-engine.sock", "TMPDIR": str(scratch), "HOME": str(scratch)}
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name(command[0])), *command[1:]],
            env={"PATH": os.environ["PATH"], **nothing, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield Server(name, port, KEY, _filled(port, process, scratch / f"{name}.log"))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _filled(port: int, process: subprocess.Popen[bytes], log: Path) -> tuple[str, ...]:
    """Wait for it, and run the tasks that will be described."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            client = Client(port, KEY)
            client.call("CreateCluster", clusterName="default")
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"cannot measure: the emulator does not answer: {log.read_text()[-1000:]}") from None
            time.sleep(0.1)
    container = {"name": "web", "image": "nginx:1.27", "cpu": 128, "memory": 256, "essential": True}
    size = {"cpu": "256", "memory": "512", "networkMode": "awsvpc", "requiresCompatibilities": ["FARGATE"]}
    client.call("RegisterTaskDefinition", family="described", containerDefinitions=[container], **size)
    # The only launch type for which both want no host; moto wants a subnet that it knows instead.
    network = {"awsvpcConfiguration": {"subnets": [_subnet(port)], "securityGroups": []}}
    tasks: list[str] = []
    while len(tasks) < TASKS:
        answer = client.call(
            "RunTask", taskDefinition="described", count=10, launchType="FARGATE", networkConfiguration=network
        )
        tasks += [task["taskArn"] for task in answer["tasks"]]
    return tuple(tasks[:TASKS])


def _subnet(port: int) -> str:
    ec2 = boto3.client(
        "ec2",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name=REGION,
        aws_access_key_id=KEY.access_key_id,
        aws_secret_access_key=KEY.secret_access_key,
    )
    return str(ec2.describe_subnets()["Subnets"][0]["SubnetId"])


@contextlib.contextmanager
def servers(scratch: Path) -> Iterator[tuple[Server, ...]]:
    """Sexton and both emulators, each a process of its own."""
    moto, ministack = free_port(), free_port()
    with (
        control_plane(scratch / "sexton") as (subject, port),
        emulator("moto", ("moto_server", "-H", "127.0.0.1", "-p", str(moto)), moto, scratch) as first,
        emulator(
            "ministack", ("ministack",), ministack, scratch, GATEWAY_PORT=str(ministack), BIND_HOST="127.0.0.1"
        ) as second,
    ):
        ours = bodies()["DescribeTasks(100)"][1]
        yield Server("sexton", port, subject.key(), tuple(json.loads(ours)["tasks"])), first, second


def run(seconds: float = SECONDS) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as directory, servers(Path(directory)) as measured:
        for what, wanted in WANTED.items():
            rates: dict[str, list[float]] = {one.name: [] for one in measured}
            for one in measured:
                measure(one.port, one.request(what), 0.3)
            for _ in range(ROUNDS):
                for one in measured:
                    rates[one.name].append(measure(one.port, one.request(what), seconds)[0])
            middle = {name: statistics.median(given) for name, given in rates.items()}
            row: dict[str, Any] = {"what": what} | {f"{name}/s": round(rate) for name, rate in middle.items()}
            for name in ("moto", "ministack"):
                times = f"{middle['sexton'] / middle[name]:.1f}"
                row[f"times {name}"] = f"{times} (wanted {wanted[name]})" if name in wanted else times
            rows.append(row)
    return rows


if __name__ == "__main__":
    from bench.__main__ import show

    show((__doc__ or "").partition("\n")[0], run())
