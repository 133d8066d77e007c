"""An image made on this machine, from its static busybox, without a registry and without a build.

The tar is made in memory and imported through the engine's API, which takes a fraction of a second.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import quote

BUSYBOX = Path("/bin/busybox")
CALL_SECONDS = 60.0


class EngineFailed(Exception):  # noqa: N818 - a sentence for a person
    """The engine did not do what it was asked."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("docker", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def engine_call(
    url: str,
    method: str,
    path: str,
    body: bytes | None = None,
    kind: str = "application/json",
    seconds: float = CALL_SECONDS,
) -> bytes:
    """One plain call of the Engine API at unix:// or tcp://; EngineFailed when the answer is a no."""
    scheme, _, rest = url.partition("://")
    connection = (
        _UnixConnection(rest, seconds) if scheme == "unix" else http.client.HTTPConnection(rest, timeout=seconds)
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Content-Type": kind} if body is not None else {})
        answer = connection.getresponse()
        text = answer.read()
    if answer.status >= 400:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = json.loads(text)["message"].encode()
        said = text.decode(errors="replace").strip()
        raise EngineFailed(f"cannot {method} {path.partition('?')[0]}: {answer.status} {said}")
    return text


def build_busybox(engine_url: str, tag: str) -> str:
    """Make the image on this engine and return its tag; a second call makes it again."""
    repository, _, version = tag.rpartition(":")
    changes = quote('CMD ["sh"]')
    path = f"/images/create?fromSrc=-&repo={quote(repository)}&tag={quote(version)}&changes={changes}"
    engine_call(engine_url, "POST", path, _root_filesystem(), "application/x-tar")
    return tag


def _root_filesystem() -> bytes:
    program = BUSYBOX.read_bytes()
    if b"/ld-linux" in program[:4096]:
        raise EngineFailed(f"cannot make an image of {BUSYBOX}: it needs libraries; install busybox-static")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("var", 0o755)):
            _add(tar, name, tarfile.DIRTYPE, mode)
        _add(tar, "bin/busybox", tarfile.REGTYPE, 0o755, program)
        for applet in sorted({*applets} - {"busybox"}):
            _add(tar, f"bin/{applet}", tarfile.SYMTYPE, 0o777, target="busybox")
        _add(tar, "etc/passwd", tarfile.REGTYPE, 0o644, b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:\n")
        _add(tar, "etc/group", tarfile.REGTYPE, 0o644, b"root:x:0:\nnogroup:x:65534:\n")
    return made.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"", target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), target
    tar.addfile(entry, io.BytesIO(content))
