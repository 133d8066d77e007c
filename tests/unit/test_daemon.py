"""The daemon's door: wrong calls are told in one sentence, and it never listens where strangers are.

Processes are real; the engine is the scripted fake, and every directory is the test's own.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sexton import daemon
from sexton.settings import BadSetting


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    # Nothing outside this machine may be asked for credentials.
    return kept | {"ECS_DATADIR": str(data_dir), "AWS_EC2_METADATA_DISABLED": "true"} | more


def sexton(data_dir: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sexton", *arguments],
        env=environment(data_dir, **more),
        capture_output=True,
        text=True,
        timeout=15,
    )


class Running:
    """A daemon that is killed at the end, whatever happens."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.log = data_dir / "daemon.log"
        command = [sys.executable, "-m", "sexton", *arguments, "--log-format", "json", "--log-file", str(self.log)]
        self.process = subprocess.Popen(command, env=environment(data_dir), stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def wait_for(self, event):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.lines():
                if line["msg"] == event:
                    return line
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"never said '{event}': {self.lines()}")

    def end(self, number=signal.SIGTERM):
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(10)
        return self.process.returncode, time.monotonic() - began


@pytest.mark.parametrize(
    "arguments, more, sentence",
    [
        (("control", "--listen", "0.0.0.0:7070"), {}, "cannot listen on 0.0.0.0: without TLS"),
        (("up", "--listen", "[::]:7070"), {}, "cannot listen on ::"),
        (("control", "--listen", "127.0.0.1.example.com:1"), {}, "serves loopback addresses only"),
        (("control",), {"SEXTON_LISTEN": "10.0.0.1:7070"}, "cannot listen on 10.0.0.1"),
        (("control", "--listen", "0.0.0.0:7070", "--insecure-plaintext"), {}, "say which one they reach it by"),
        (("control", "--tls-cert", "/x"), {}, "--tls-cert and --tls-key belong together"),
        (("control", "--advertise", "host:7070"), {}, "cannot use SEXTON_ADVERTISE: it must be the URL of a host"),
        (("control", "--listen", "127.0.0.1"), {}, "give an address and a port, such as 127.0.0.1:7070"),
        (("control", "--listen", "127.0.0.1:70700"), {}, "give an address and a port"),
        (("control", "--account", "12"), {}, "cannot use SEXTON_ACCOUNT_ID: it must be twelve digits"),
        (("agent",), {"ECS_INSTANCE_ATTRIBUTES": "foo"}, "cannot use ECS_INSTANCE_ATTRIBUTES"),
        (("agent", "--docker-host", "ssh://x"), {}, "cannot use DOCKER_HOST: it must begin with unix://"),
        (("agent", "--log-file", "/nowhere/at/all"), {}, "cannot log to /nowhere/at/all: No such file"),
        (("agent", "--listen", "127.0.0.1:1"), {}, "unrecognized arguments: --listen"),
        (("control", "--cluster", "x"), {}, "unrecognized arguments: --cluster"),
        (("up", "--log-level", "loud"), {}, "invalid choice: 'loud'"),
        (("up", "what"), {}, "unrecognized arguments: what"),
    ],
)
def test_a_wrong_call_is_told_and_does_nothing(tmp_path, arguments, more, sentence):
    done = sexton(tmp_path, *arguments, **more)

    # What was typed is a wrong call; what a file or the environment says may be put right behind our back.
    assert done.returncode == (1 if any(name.startswith("ECS_") for name in more) else 2)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("role", ["up", "control", "agent"])
def test_help_names_the_setting_of_each_option(tmp_path, role):
    done = sexton(tmp_path, role, "--help")

    assert done.returncode == 0
    assert f"usage: sexton {role}" in done.stdout
    assert "[ECS_DATADIR]" in done.stdout


@pytest.mark.parametrize(
    "host, inside",
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("127.0.0.1.example.com", False),
        ("127.example.com", False),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_what_looks_like_it(host, inside):
    assert daemon.is_loopback(host) is inside


@pytest.mark.parametrize(
    "text, address",
    [("127.0.0.1:7070", ("127.0.0.1", 7070)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_addresses(text, address):
    assert daemon.split_address(text) == address


@pytest.mark.parametrize("text", ["", ":", "a", "a:", ":1", "a:b", "a:-1", "a:65536"])
def test_what_is_no_address(text):
    with pytest.raises(BadSetting, match="cannot listen on"):
        daemon.split_address(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_control_plane_comes_up_and_leaves_at_a_signal(tmp_path, number):
    with Running(tmp_path, "control", "--listen", "127.0.0.1:0") as running:
        endpoint = running.wait_for("control plane ready")["endpoint"]
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=5)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        code, seconds = running.end(number)

    assert code == 0
    assert seconds < 3
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = sexton(tmp_path, "control", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")

    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_that_cannot_be_one_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = sexton(tmp_path / "file", "control", "--listen", "127.0.0.1:0")

    assert done.returncode == 1
    assert 'msg="cannot start" reason="cannot ' in done.stderr
    assert f"{tmp_path}/file" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_without_credentials_stands_down(tmp_path):
    done = sexton(tmp_path, "agent", "--docker-host", "fake://", "--backend", "http://127.0.0.1:1", HOME=str(tmp_path))

    assert done.returncode == 5
    assert "standing down" in done.stderr
    assert "cure=" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_agent_waits_for_its_engine_and_still_leaves_at_a_signal(tmp_path):
    with Running(tmp_path, "up", "--listen", "127.0.0.1:0", "--docker-host", f"unix://{tmp_path}/none.sock") as running:
        running.wait_for("waiting for the container engine")
        code, seconds = running.end()

    assert code == 0
    assert seconds < 3


def test_a_setting_that_is_not_usable_is_told_once(tmp_path):
    done = sexton(
        tmp_path,
        *("agent", "--docker-host", "fake://", "--backend", "http://127.0.0.1:1"),
        ECS_RESERVED_MEMORY="lots",
        HOME=str(tmp_path),
    )

    assert done.stderr.count("setting is not usable") == 1
    assert "setting=ECS_RESERVED_MEMORY" in done.stderr


def test_no_daemon_loads_the_command_lines_libraries(tmp_path):
    code = (
        "import sys; from sexton import __main__, commandline, daemon\n"
        "import sexton.agent.app, sexton.control.app\n"
        "commandline.read_command('up', [])\n"
        "print([name for name in ('typer', 'rich', 'dbus_fast') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_an_agent_loads_what_few_hosts_use_only_there(tmp_path):
    few = (
        "aiohttp.web",
        "argparse",
        "ctypes",
        "sexton.agent.attachments",
        "sexton.agent.cloudwatch",
        "sexton.agent.introspection",
        "sexton.agent.logs.ways",
        "sexton.agent.networks",
        "sexton.agent.why",
        "sexton.core.render",
        "sexton.host.network_probe",
        "sexton.wire.ecs",
        "sexton.wire.logs",
    )
    code = f"import sys, sexton.daemon, sexton.agent.app; print([name for name in {few} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
