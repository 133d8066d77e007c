"""Log drivers that are none of ours pass through: real containers, a real engine, and whoever takes the lines.

Each taker is a socket of the test: a syslog server, a fluentd, and what journald listens on, in a mount namespace in
which nothing of the machine's own is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import PrivateEngine, engine_call
from images import build_busybox
from node import Node, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

DRIVERS = '["json-file","syslog","fluentd","journald","none"]'
LINES = ["first line", "second line"]
_ASIDE = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal
mount --bind "$1" /run/systemd/journal
echo ready
exec sleep 1000000
"""


class JournalEngine(PrivateEngine):
    """An engine on what looks to it like a host with a journal."""

    def __init__(self, root: Path, journal: Path) -> None:
        super().__init__(root)
        journal.mkdir()
        command = ["unshare", "-m", "sh", "-c", _ASIDE, "sh", str(journal)]
        self._aside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._aside.stdout is not None and self._aside.stdout.readline() == "ready\n"

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        return super()._run("nsenter", "-t", str(self._aside.pid), "-m", "--", *command)

    def close(self) -> None:
        super().close()
        self._aside.kill()
        self._aside.wait()
        assert self._aside.stdout is not None
        self._aside.stdout.close()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "journal"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, journal: Path) -> Iterator[Node]:
    with JournalEngine(tmp_path_factory.mktemp("engine"), journal) as engine:
        build_busybox(engine.url)
        environment = {"ECS_AVAILABLE_LOGGING_DRIVERS": DRIVERS}
        with Node(tmp_path_factory.mktemp("node"), engine.url, leave_nothing=True, environment=environment) as node:
            yield node


def run(node: Node, driver: str, **options: str) -> str:
    """Run a task to its end that logs like this; its id."""
    container = {
        "name": "main",
        "image": "sexton/busybox:latest",
        "memory": 32,
        "command": ["sh", "-c", "; ".join(f"echo {line}" for line in LINES)],
        "logConfiguration": {"logDriver": driver, "options": options},
    }
    ecs = node.ecs()
    ecs.register_task_definition(family=driver, networkMode="none", containerDefinitions=[container])
    answer = ecs.run_task(taskDefinition=driver)
    assert answer["failures"] == [], answer["failures"]
    arn = str(answer["tasks"][0]["taskArn"])

    def ended() -> dict[str, Any] | None:
        (task,) = ecs.describe_tasks(tasks=[arn])["tasks"]
        return dict(task) if task["lastStatus"] == "STOPPED" else None

    task = until(ended, "the task ends")
    assert task["containers"][0].get("exitCode") == 0, task
    return arn.rpartition("/")[2]


def configured(node: Node, task: str) -> dict[str, Any]:
    """How the engine was told to log for a task."""
    (container,) = [one for one in node.containers() if one["Labels"]["com.amazonaws.ecs.task-arn"].endswith(task)]
    shown = json.loads(engine_call(node.engine_url, "GET", f"/containers/{container['Id']}/json"))
    return dict(shown["HostConfig"]["LogConfig"])


def sexton_logs(node: Node, task: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sexton", "logs", task, "main"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "HOME": str(node.root)}
        | node.credentials()
        | {"ECS_DATADIR": f"{node.root}/control", "AWS_ENDPOINT_URL": node.endpoint},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@contextlib.contextmanager
def datagrams(bound: socket.socket) -> Iterator[list[bytes]]:
    """What a socket is sent."""
    found: list[bytes] = []
    with taking(bound, lambda: found.append(bound.recv(65536))):
        yield found


@contextlib.contextmanager
def taking(bound: socket.socket, take: Callable[[], object]) -> Iterator[None]:
    bound.settimeout(0.1)
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            with contextlib.suppress(TimeoutError):
                take()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
        bound.close()


def test_json_file_keeps_its_options_and_is_read_back(node: Node) -> None:
    task = run(node, "json-file", **{"max-size": "1m", "max-file": "2"})

    assert configured(node, task) == {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "2"}}
    assert sexton_logs(node, task).stdout.splitlines() == LINES


def test_syslog(node: Node) -> None:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    with datagrams(bound) as found:
        address = f"udp://127.0.0.1:{bound.getsockname()[1]}"
        run(node, "syslog", **{"syslog-address": address, "syslog-format": "rfc5424", "tag": "mine"})
        until(lambda: len(found) >= 2, "both lines are there")
    assert [one.decode().rpartition(" - mine - ")[2].rpartition("- ")[2].strip() for one in found] == LINES
    assert all(b" mine " in one for one in found)


def test_fluentd(node: Node) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    said: list[bytes] = []

    def take() -> None:
        line, _ = listener.accept()
        with line:
            while part := line.recv(65536):
                said.append(part)

    with taking(listener, take):
        run(node, "fluentd", **{"fluentd-address": f"127.0.0.1:{listener.getsockname()[1]}", "tag": "mine"})
        until(lambda: b"".join(said).count(LINES[1].encode()), "both lines are there")
    messages = forwarded(b"".join(said))
    assert [(tag, record["log"], record["source"]) for tag, record in messages] == [
        ("mine", line, "stdout") for line in LINES
    ]
    assert all(record["container_id"] for _, record in messages)


def forwarded(said: bytes) -> list[tuple[str, dict[str, str]]]:
    """Messages of the forward protocol: tag and record."""
    found = []
    while said:
        for end in range(1, len(said) + 1):  # a decoder takes whole messages, and they are short
            try:
                tag, _, record, *_ = msgspec.msgpack.decode(said[:end], ext_hook=lambda code, data: bytes(data))
            except (msgspec.DecodeError, ValueError, TypeError):
                continue
            found.append((tag, record))
            said = said[end:]
            break
        else:
            raise AssertionError(said)
    return found


def test_journald(node: Node, journal: Path) -> None:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound.bind(str(journal / "socket"))
    with datagrams(bound) as found:
        run(node, "journald", tag="mine")
        until(lambda: len(found) >= 2, "both lines are there")
    entries = [dict(row.partition("=")[::2] for row in one.decode().splitlines() if "=" in row) for one in found]
    assert [one["MESSAGE"] for one in entries] == LINES
    assert {one["CONTAINER_TAG"] for one in entries} == {"mine"}


def test_none_keeps_nothing_and_sexton_logs_says_so(node: Node) -> None:
    task = run(node, "none")

    assert configured(node, task)["Type"] == "none"
    told = sexton_logs(node, task)
    assert (told.returncode, told.stdout) == (1, "")
    why = "its log driver is none, and configured logging driver does not support reading"
    assert told.stderr == f"sexton: cannot read the log of main: {why}\n"
