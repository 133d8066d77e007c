"""A wheel, installed as anybody installs one: the command works, from the first start to the end of a service."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from node import errors_of, free_port, until

ROOT = Path(__file__).parents[2]
# Where the locked dependencies of the wheel are: the environment of the tests.
DEPENDENCIES = Path(sys.executable).parents[1] / f"lib/python3.{sys.version_info.minor}/site-packages"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with nothing but the wheel in it."""
    made = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = made.glob("*.whl")
    uv = ROOT / ".tools/uv/bin/uv"
    place = made / "site"
    options = ["--quiet", "--no-index", "--no-deps", "--no-cache", "--python", sys.executable, "--target", place]
    subprocess.run([uv, "pip", "install", *options, wheel], check=True, capture_output=True)
    return place


def command(installed: Path, home: Path) -> tuple[list[str], dict[str, str]]:
    """The installed command, with an environment in which this checkout is not to be found."""
    # -S: no path files, one of which leads to the sources.
    paths = f"{installed}:{DEPENDENCIES}"
    return [sys.executable, "-S", str(installed / "bin/sexton")], {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.timeout(120)
def test_an_installed_wheel_serves(installed: Path, tmp_path: Path) -> None:
    sexton, environment = command(installed, tmp_path)
    where = subprocess.run(
        [sys.executable, "-S", "-c", "import sexton; print(sexton.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.strip() == str(installed / "sexton/__init__.py")
    port = free_port()
    options = ["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data"), "--docker-host", "fake://"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*sexton, "up", *options], env=environment, stderr=log)

    def healthy() -> bool:
        assert running.poll() is None, (tmp_path / "log").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    try:
        until(healthy, "the API answers", 60)
        shown = subprocess.run(
            [*sexton, "ps", "--json"],
            env=environment | {"ECS_DATADIR": str(tmp_path / "data"), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    assert errors_of((tmp_path / "log").read_text()) == []
