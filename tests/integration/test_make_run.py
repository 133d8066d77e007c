"""``make run``: from nothing to a running task, and back to nothing; and what it says when something is in the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from node import free_port, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(150)]

READY_SECONDS = 3.0
RUN = Path(__file__).resolve().parents[2] / "scripts/run.py"


def start(engine_url: str, data: Path, port: int, output: Path, *before: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "DOCKER_HOST": engine_url,
        "ECS_DATADIR": str(data),
        "SEXTON_LISTEN": f"127.0.0.1:{port}",
    }
    with output.open("wb") as file:
        return subprocess.Popen([*before, sys.executable, str(RUN)], env=environment, stdout=file, stderr=file)


def test_a_sample_task_runs_and_ctrl_c_leaves_nothing(engine_session: PrivateEngine, tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output"
    before = set(Path("/sys/fs/cgroup").glob("*/ecs"))
    running = start(engine_session.url, tmp_path / "data", port, output)
    try:
        until(lambda: "Ctrl-C ends everything." in output.read_text() or running.poll() is not None, "it is up", 60)
        shown = output.read_text()
        assert " is RUNNING" in shown
        took = re.search(r"\(([0-9.]+) s\)", shown)
        # On a machine that is set up; beside other work it gets as much longer as the others take of it.
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert took and float(took[1]) < READY_SECONDS * busy
        assert "hello | hello from a task on " in shown
        exported = [line for line in shown.splitlines() if line.startswith("export ")]
        assert [line.partition("=")[0] for line in exported] == [
            "export AWS_ENDPOINT_URL",
            "export AWS_DEFAULT_REGION",
            "export AWS_ACCESS_KEY_ID",
            "export AWS_SECRET_ACCESS_KEY",
        ]
        pasted = dict(line.removeprefix("export ").split("=", 1) for line in exported)
        aws = str(Path(sys.executable).parent / "aws")
        listed = subprocess.run(
            [aws, "ecs", "list-tasks", "--output", "text"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **pasted},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ":task/default/" in listed.stdout
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(90) == 0
    assert output.read_text().rstrip().endswith("stopped")
    assert engine_session.cli("ps", "-aq", "--filter", "label=dev.sexton.container-instance").strip() == ""
    assert set(Path("/sys/fs/cgroup").glob("*/ecs")) <= before
    assert not (tmp_path / "data/agent.sock").exists()


def test_a_port_in_use_is_said_before_anything_starts(engine_session: PrivateEngine, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = start(engine_session.url, tmp_path / "data", port, tmp_path / "output")
        assert ended.wait(30) == 1
    said = (tmp_path / "output").read_text()
    assert f"cannot listen on 127.0.0.1:{port}" in said and f"SEXTON_LISTEN=127.0.0.1:{port + 1} make run" in said
    assert not (tmp_path / "data").exists()


AS_ANOTHER = """
import os, runpy, sys
os.geteuid = lambda: 65534  # the interpreter itself may not be readable for another user
sys.path.insert(0, {scripts!r})
runpy.run_path({run!r}, run_name="__main__")
"""


def test_another_user_than_root_is_told_what_to_do() -> None:
    program = AS_ANOTHER.format(scripts=str(RUN.parent), run=str(RUN))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "sudo make run" in ended.stdout


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"sx-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


ENGINE = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {scripts!r})
from host_engine import HostEngine, answers
def shown(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout
def machine():
    rules = [shown(program, "-t", table, "-S") for program in ("iptables", "ip6tables") for table in ("filter", "nat")]
    links = sorted(line.split()[0] for line in shown("ip", "-br", "link").splitlines())
    return rules, links, Path("/proc/sys/net/ipv4/ip_forward").read_text()
root = Path({root!r})
before = machine()
places = ("--data-root", f"{{root}}/data", "--exec-root", f"{{root}}/exec", "--pidfile", f"{{root}}/pid")
engine = HostEngine(root / "log", places)
engine.start({url!r})
during = machine()
assert answers({url!r}) and during != before, during
engine.stop()
assert not answers({url!r})
after = machine()
assert after == before, (before, after)

# Whoever started it is killed, and the engine is told so by the kernel: rules and bridge are left. Whoever comes next
# finds the machine like that and puts it back all the same.
engine = HostEngine(root / "log", places)
engine.start({url!r})
engine._process.terminate()
engine._process.wait()
assert machine() != before
engine = HostEngine(root / "log", places)
engine.start({url!r})
engine.stop()
after = machine()
assert after == before, (before, after)
assert not list(root.glob("*.json"))
"""


def test_an_engine_that_was_started_is_gone_without_a_trace(namespace: str, tmp_path: Path) -> None:
    root = tmp_path / "e"
    root.mkdir()
    url = f"unix://{root}/docker.sock"
    program = ENGINE.format(scripts=str(RUN.parent), root=str(root), url=url)
    ended = subprocess.run(
        ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert str(root) not in Path("/proc/mounts").read_text()
    shutil.rmtree(root)
