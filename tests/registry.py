"""A real registry of the tests' own: Debian's docker-registry on a free loopback port, with or without a password.

Engines speak plain HTTP to loopback, so nothing has to be told to them. What is pushed lies below ``root``.
"""

from __future__ import annotations

import http.client
import io
import os
import subprocess
import tarfile
import time
from pathlib import Path
from urllib.parse import quote

from engine import PrivateEngine, engine_call
from node import free_port

START_SECONDS = 30.0
USER, PASSWORD = "tester", "swordfish"
# The password above as bcrypt has it; nothing on the machine can make one anew.
_HTPASSWD = f"{USER}:$2y$05$abcdefghijklmnopqrstuupWDwJQeCHYIBQy8WvkVB6ImhZ476YYy\n"


class Registry:
    """One registry; use as a context manager."""

    def __init__(self, root: Path, *, locked: bool = False) -> None:
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._root = root
        self._locked = locked
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Registry:
        self._root.mkdir(parents=True, exist_ok=True)
        (self._root / "htpasswd").write_text(_HTPASSWD)
        config = self._root / "config.yml"
        config.write_text(
            "version: 0.1\n"
            "log: {level: warn}\n"
            f"storage: {{filesystem: {{rootdirectory: {self._root}/data}}, delete: {{enabled: true}}}}\n"
            f"http: {{addr: '{self.host}'}}\n"
            + (f"auth: {{htpasswd: {{realm: tests, path: {self._root}/htpasswd}}}}\n" if self._locked else "")
        )
        with (self._root / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["docker-registry", "serve", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"},
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._root / "registry.log").read_text()[-2000:]
                self.__exit__()
                raise AssertionError(f"cannot start docker-registry:\n{tail}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ref(self, name: str) -> str:
        return f"{self.host}/{name}"

    def push(self, engine: PrivateEngine, image: str, name: str, *, keep: bool = False) -> str:
        """Put an image of the engine into the registry and, unless told to keep it, take the name off the engine."""
        ref = self.ref(name)
        engine.cli("tag", image, ref)
        if self._locked:
            engine.cli("login", "--username", USER, "--password", PASSWORD, self.host)
        try:
            engine.cli("push", ref)
        finally:
            if self._locked:
                engine.cli("logout", self.host)
        if not keep:
            engine.cli("rmi", ref)
        return ref

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
        try:
            connection.request("GET", "/v2/")
            return connection.getresponse().status in (200, 401)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def make_image(engine: PrivateEngine, tag: str, size: int = 1000, *, changes: str = "") -> str:
    """An image of so many bytes nobody can guess, unlike any other; it holds nothing that runs. Its tag."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("content")
        entry.size = size
        tar.addfile(entry, io.BytesIO(os.urandom(size)))
    repository, _, version = tag.rpartition(":")
    path = f"/images/create?fromSrc=-&repo={quote(repository, safe='')}&tag={quote(version)}"
    if changes:
        path += f"&changes={quote(changes)}"
    engine_call(engine.url, "POST", path, made.getvalue(), "application/x-tar")
    return tag
