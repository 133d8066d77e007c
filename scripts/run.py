"""``make run``: everything on this machine, from nothing to a running task, until Ctrl-C.

Finds a container engine or starts one, starts ``sexton up``, waits until it is healthy, runs one task from an image
made here, shows its state and its line, and prints what to paste to use the AWS CLI. At the end everything that was
started here is gone again: tasks, containers, cgroups, the engine. It can be repeated after any failure.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent.parent
STATE = HERE / ".state"
REGION = os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
IMAGE = "sexton/sample:latest"
HEALTHY_SECONDS = 30.0
TASK_SECONDS = 60.0
# Tasks get their own time to stop before this ends; see LEAVE_SECONDS of the agent.
STOP_SECONDS = 60.0

LINE = "echo hello from a task on $(hostname); trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
SAMPLE = {
    "family": "sexton-sample",
    "networkMode": "none",
    "containerDefinitions": [
        {
            "name": "hello",
            "image": IMAGE,
            "memory": 16,
            "command": [
                "sh",
                "-c",
                "echo hello from a task on $(hostname); trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done",
            ],
        }
    ],
}


class CannotRun(Exception):  # noqa: N818 - a sentence for a person
    """Something is missing; the message says what to do."""


def say(text: str = "") -> None:
    print(text, flush=True)


class Interrupted(BaseException):
    """Ctrl-C, or being asked to end."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def check_port(host: str, port: int) -> None:
    """Say who is in the way before anything is started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CannotRun(
                f"cannot listen on {host}:{port}: {error.strerror}. Stop what uses it (another 'make run'?), "
                f"or choose another port: SEXTON_LISTEN={host}:{port + 1} make run"
            ) from None


class Sexton:
    """The daemon under test by everybody: one ``sexton up``."""

    def __init__(self, address: str, data_dir: str, docker: str, log: Path) -> None:
        self.endpoint = f"http://{address}"
        self.data_dir = Path(data_dir)
        self._log = log
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "sexton", "up", "--leave-nothing"),
                    *("--listen", address, "--data-dir", data_dir, "--docker-host", docker, "--region", REGION),
                ],
                stderr=said,
                start_new_session=True,
            )

    def key(self) -> dict[str, str]:
        """The administrator's key, once there is one."""
        keys = json.loads((self.data_dir / "keys.json").read_text())["keys"]
        return dict(keys[0])

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            if self._process.poll() is not None:
                said = [line for line in self._log.read_text(errors="replace").splitlines() if "level=error" in line]
                raise CannotRun("sexton ended: " + (said[-1] if said else f"see {self._log}"))
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(2.0)
                    probe.connect(str(self.data_dir / "agent.sock"))
                    probe.sendall(b"GET /health HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")
                    answer = b"".join(iter(lambda: probe.recv(65536), b""))
                if json.loads(answer.partition(b"\r\n\r\n")[2])["connectedSince"]:
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > deadline:
                raise CannotRun(f"sexton is not healthy after {HEALTHY_SECONDS:.0f} s; its log is {self._log}")
            time.sleep(0.02)

    def stop(self) -> bool:
        """End it with everything it runs; False when it had to be killed."""
        if self._process.poll() is not None:
            return True
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def watch(self) -> int:
        """Wait for it to end by itself."""
        return self._process.wait()


def call(sexton: Sexton, operation: str, **fields: Any) -> dict[str, Any]:
    """One signed call of the API."""
    import urllib.error
    import urllib.request

    from sexton.cloud.credentials import Credentials
    from sexton.cloud.sigv4 import sign

    key = sexton.key()
    body = json.dumps(fields).encode()
    host = sexton.endpoint.partition("://")[2]
    headers = {
        "Host": host,
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": f"AmazonEC2ContainerServiceV20141113.{operation}",
    }
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    headers |= sign("POST", "/", "", headers, body, credentials, region=REGION, service="ecs", now=time.time())
    request = urllib.request.Request(sexton.endpoint + "/", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise CannotRun(f"cannot {operation}: {error.read().decode(errors='replace')}") from None


def run_sample(sexton: Sexton) -> None:
    """Run the sample task and show what became of it."""
    definition = call(sexton, "RegisterTaskDefinition", **SAMPLE)["taskDefinition"]
    answer = call(sexton, "RunTask", taskDefinition=definition["taskDefinitionArn"])
    if not answer["tasks"]:
        raise CannotRun(f"cannot place the sample task: {answer['failures']}")
    arn = answer["tasks"][0]["taskArn"]
    deadline = time.monotonic() + TASK_SECONDS
    while True:
        task = call(sexton, "DescribeTasks", tasks=[arn])["tasks"][0]
        if task["lastStatus"] in ("RUNNING", "STOPPED"):
            break
        if time.monotonic() > deadline:
            raise CannotRun(f"the sample task is still {task['lastStatus']}")
        time.sleep(0.02)
    say(f"task {arn.rpartition('/')[2]} is {task['lastStatus']} {task.get('stoppedReason', '')}".rstrip())
    say(f"  {_first_line(sexton, arn, deadline)}")


def _first_line(sexton: Sexton, arn: str, deadline: float) -> str:
    """What the task wrote, as 'sexton logs' would show it."""
    command = [sys.executable, "-m", "sexton", "logs", arn.rpartition("/")[2]]
    environment = os.environ | {"ECS_DATADIR": str(sexton.data_dir)}
    while True:
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if shown.stdout or time.monotonic() > deadline:
            return (shown.stdout or shown.stderr).splitlines()[0] if shown.stdout or shown.stderr else "(no line yet)"


def main() -> int:
    from host_engine import HostEngine, answers
    from local_image import EngineFailed, build_busybox

    from sexton.daemon import split_address
    from sexton.settings import BadSetting, load

    began = time.monotonic()
    engine: HostEngine | None = None
    sexton: Sexton | None = None
    code = 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if os.geteuid() != 0:
            raise CannotRun("cannot run as this user: container engines and cgroups need root. Run: sudo make run")
        settings = load(os.environ).settings
        check_port(*split_address(settings.listen))
        STATE.mkdir(exist_ok=True)
        if not answers(settings.docker_host):
            if not settings.docker_host.startswith("unix://"):
                raise CannotRun(
                    f"no container engine answers at {settings.docker_host}; start it, or unset DOCKER_HOST"
                )
            say(f"no container engine answers at {settings.docker_host}; starting one, its log is .state/dockerd.log")
            engine = HostEngine(STATE / "dockerd.log")
            engine.start(settings.docker_host)
        sexton = Sexton(settings.listen, settings.data_dir, settings.docker_host, STATE / "sexton.log")
        build_busybox(settings.docker_host, IMAGE)
        sexton.wait_healthy()
        say(f"sexton is up at {sexton.endpoint}, its log is .state/sexton.log")
        run_sample(sexton)
        say(f"({time.monotonic() - began:.1f} s)")
        _explain(sexton)
        code = 1 if sexton.watch() else 0
        say("sexton ended by itself; see .state/sexton.log")
    except Interrupted:
        say("\nstopping every task and everything that was started here")
    except (CannotRun, EngineFailed, BadSetting) as error:
        say(f"run: {error}")
        code = 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if sexton is not None and not sexton.stop():
            say("run: sexton did not end in time and was killed; run again to let it clean up")
            code = 1
        if engine is not None:
            engine.stop()
        if sexton is not None or engine is not None:
            say("stopped")
    return code


def _explain(sexton: Sexton) -> None:
    key = sexton.key()
    say("\nTo use the AWS CLI, boto3 or Terraform with it, paste:\n")
    say(f"export AWS_ENDPOINT_URL={shlex.quote(sexton.endpoint)}")
    say(f"export AWS_DEFAULT_REGION={shlex.quote(REGION)}")
    say(f"export AWS_ACCESS_KEY_ID={shlex.quote(key['access_key_id'])}")
    say(f"export AWS_SECRET_ACCESS_KEY={shlex.quote(key['secret_access_key'])}")
    own = HERE / ".venv/bin/aws"
    aws = "aws" if shutil.which("aws") else str(own.relative_to(HERE)) if own.exists() else ""
    asked = f"{aws} ecs list-tasks" if aws else "aws ecs list-tasks ('make setup' puts the AWS CLI into .venv/bin)"
    say(f"\nThen, for example: {asked}; and on this machine: .venv/bin/sexton ps")
    say("Ctrl-C ends everything.")


if __name__ == "__main__":
    sys.exit(main())
