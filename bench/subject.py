"""The programs under measurement: real processes of Sexton, and the calls a client makes of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

# A calm machine needs a second; a loaded one may need a hundred.
READY_SECONDS = 120.0
REGION = "us-east-1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# An agent that takes no fixed port of the machine and leaves its packet filter alone.
QUIET = {"SEXTON_INTROSPECTION": "off", "SEXTON_TASK_ENDPOINT_PORT": "off"}


class Subject:
    """One process of ``sexton``; ``role`` is up, control or agent."""

    def __init__(self, role: str, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.began = time.perf_counter()
        self._log = (data / "log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sexton", role, "--data-dir", str(data), "--log-level", "error", *options],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **QUIET, **(environment or {})},
            stderr=self._log,
        )

    def key(self) -> Credentials:
        key = json.loads((self.data / "keys.json").read_text())["keys"][0]
        return Credentials(key["access_key_id"], key["secret_access_key"])

    def wait_agent(self) -> float:
        """Seconds from the start of the process until its agent is connected."""
        return self._wait(lambda: json.loads(self._local("/health"))["connectedSince"])

    def wait_port(self, port: int) -> float:
        """Seconds from the start of the process until its API answers."""

        def healthy() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200

        return self._wait(healthy)

    def wait_socket(self, name: str) -> float:
        """Seconds from the start of the process until it listens on a socket file of its data directory."""

        def listens() -> bool:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(self.data / name))
            return True

        return self._wait(listens)

    def _wait(self, ready: Any) -> float:
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if ready():
                    return time.perf_counter() - self.began
            if self.process.poll() is not None or time.perf_counter() - self.began > READY_SECONDS:
                raise RuntimeError(f"not ready: {(self.data / 'log').read_text()}")
            time.sleep(0.002)

    def _local(self, path: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1)
            line.connect(str(self.data / "agent.sock"))
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: line.recv(65536), b"")).partition(b"\r\n\r\n")[2]

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


@contextlib.contextmanager
def running(role: str, data: Path, *options: str, **more: Any) -> Iterator[Subject]:
    subject = Subject(role, data, *options, **more)
    try:
        yield subject
    finally:
        subject.stop()


class Client:
    """A keep-alive client of the API, as light as can be."""

    def __init__(self, port: int, key: Credentials) -> None:
        self._host = f"127.0.0.1:{port}"
        self._key = key
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call(self, operation: str, **fields: Any) -> dict[str, Any]:
        return dict(json.loads(self.answer(operation, **fields)))

    def answer(self, operation: str, **fields: Any) -> bytes:
        """The text of the answer."""
        body = json.dumps(fields).encode()
        headers = {
            "Host": self._host,
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"AmazonEC2ContainerServiceV20141113.{operation}",
        }
        headers |= sign("POST", "/", "", headers, body, self._key, region=REGION, service="ecs", now=time.time())
        self._connection.request("POST", "/", body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{operation}: {text.decode()}")
        return text


def fill(client: Client, image: str, count: int, network: str = "none") -> None:
    """Have the one agent there is run so many tasks (tens) that sleep, and wait until all of them do."""
    one = {"name": "app", "image": image, "memory": 8, "command": ["sleep", "100000"], "stopTimeout": 1}
    client.call("RegisterTaskDefinition", family="idle", networkMode=network, containerDefinitions=[one])
    for _ in range(count // 10):
        client.call("RunTask", taskDefinition="idle", count=10)
    while True:
        arns = client.call("ListTasks", desiredStatus="RUNNING")["taskArns"]
        shown = client.call("DescribeTasks", tasks=arns)["tasks"] if arns else []
        if len(shown) == count and all(one["lastStatus"] == "RUNNING" for one in shown):
            return
        time.sleep(0.2)
