"""The unit that ships, under a real systemd: tasks and what they write live through everything it does to the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import build_busybox
from inside import staying_in
from node import QUIET, Node, until
from systemd import FIRST_BOOT_TIMEOUT, Systemd
from systemd_host import Engine, Host

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(FIRST_BOOT_TIMEOUT + 120)]

UNIT = "sexton-agent.service"
SHIPPED = Path(__file__).parents[2] / "packaging" / UNIT
# Where the guest, whose root directory is another one, finds this side's programs and files.
OUTSIDE = "/outside"


def unit(environment: dict[str, str]) -> str:
    """The unit that ships, with this checkout's agent, and no wait before it is started again."""
    command = f"ExecStart=/usr/sbin/chroot {OUTSIDE} {sys.executable} -m sexton agent"
    text = SHIPPED.read_text().replace("ExecStart=/usr/bin/sexton agent", command)
    assert command in text
    told = "".join(f'Environment="{name}={value}"\n' for name, value in environment.items())
    return text.replace("RestartSec=10s", f"RestartSec=100ms\n{told}")


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Host]:
    scratch = tmp_path / "guest"
    scratch.mkdir()
    with Systemd({}, scratch, everywhere=True) as systemd:
        top = scratch / "scratch" / "top"
        host = Host(systemd, top)
        inside = f"mkdir {top}{OUTSIDE} && mount --rbind / {top}{OUTSIDE}"
        subprocess.run([*host.inside, "sh", "-c", inside], check=True, timeout=10)
        # Everything there is has this network: the engine and the relay meet on its loopback.
        with staying_in(f"/proc/{systemd.pid}/ns/net"):
            yield host


def test_lines_and_their_relay_live_through_restarts_stops_and_the_death_of_the_agent(
    guest: Host, tmp_path: Path
) -> None:
    with Engine(tmp_path / "engine", guest) as engine:
        build_busybox(engine.url)
        node = Node(tmp_path / "node", engine.url, split=True)
        try:
            node.start_control()
            story(guest, node)
        finally:
            guest.systemd.systemctl("stop", UNIT)
            node.close()


def story(guest: Host, node: Node) -> None:
    systemctl = guest.systemd.systemctl
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | {
        **QUIET,
        **node.credentials(),
        "HOME": str(node.root),
        "AWS_EC2_METADATA_DISABLED": "true",
        "ECS_BACKEND_HOST": node.endpoint,
        "ECS_DATADIR": str(node.root / "agent"),
        "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
        "DOCKER_HOST": node.engine_url,
    }
    (guest.systemd.root / "run/systemd/system" / UNIT).write_text(unit(environment))
    systemctl("daemon-reload")
    assert systemctl("start", UNIT).returncode == 0, guest.systemd.run("journalctl", "-u", UNIT).stdout[-3000:]

    ecs, logs = node.ecs(), node.client("logs")
    options = {"awslogs-group": "/unit", "awslogs-region": "us-east-1", "awslogs-stream-prefix": "p"}
    container = {
        "name": "main",
        "image": "sexton/busybox:latest",
        "memory": 32,
        "command": ["sh", "-c", "i=0; while [ ! -e /go/end ]; do echo $i; i=$((i+1)); usleep 50000; done; echo end"],
        "mountPoints": [{"sourceVolume": "go", "containerPath": "/go"}],
        "logConfiguration": {"logDriver": "awslogs", "options": options | {"awslogs-create-group": "true"}},
    }
    go = node.root / "go"
    go.mkdir()
    ecs.register_task_definition(
        family="unit",
        networkMode="none",
        containerDefinitions=[container],
        volumes=[{"name": "go", "host": {"sourcePath": str(go)}}],
    )
    arn = until(lambda: ecs.run_task(taskDefinition="unit")["tasks"], "there is a host")[0]["taskArn"]
    stream = f"p/main/{arn.rpartition('/')[2]}"

    def lines() -> list[str]:
        try:
            page = logs.get_log_events(logGroupName="/unit", logStreamName=stream, startFromHead=True)
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [one["message"] for one in page["events"]]

    def relay() -> int:
        return int(json.loads((node.root / "agent/logspool/relay.json").read_text())["pid"])

    def main() -> str:
        return systemctl("show", "-P", "MainPID", UNIT).stdout.strip()

    def goes_on() -> None:
        known = len(lines())
        until(lambda: len(lines()) > known + 10, "more lines come")

    until(lambda: len(lines()) > 5, "its first lines")
    first, agent = relay(), main()

    assert systemctl("restart", UNIT).returncode == 0
    goes_on()
    assert systemctl("kill", "--kill-who=main", "-s", "KILL", UNIT).returncode == 0
    until(lambda: main() not in ("0", agent), "systemd starts it again")
    goes_on()
    systemctl("stop", UNIT)
    assert systemctl("is-active", UNIT).stdout.strip() == "inactive"
    known = len(lines())
    assert systemctl("start", UNIT).returncode == 0
    until(lambda: len(lines()) > known + 10, "what was written while it was stopped comes, and more")
    assert relay() == first, "one relay lived through all of it"

    (go / "end").touch()
    until(lambda: ecs.describe_tasks(tasks=[arn])["tasks"][0]["lastStatus"] == "STOPPED", "it ends")
    until(lambda: lines()[-1] == "end", "its last line")
    found = lines()[:-1]
    assert found == [str(number) for number in range(len(found))]
