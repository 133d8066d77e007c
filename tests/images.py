"""Images without a registry: one made from the machine's busybox, and a registry that only ever says no.

``build_busybox`` imports a tar made in memory, so an engine has an image within a fraction of a second, offline.
``FakeRegistry`` listens on loopback, where engines accept plain HTTP, and fails pulls in the way a test asks for.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from engine import engine_call

BUSYBOX = Path("/bin/busybox")


def build_busybox(engine_url: str, tag: str = "sexton/busybox:latest") -> str:
    """Make the image on this engine and return its tag; a second call makes it again."""
    repository, _, version = tag.rpartition(":")
    changes = quote('CMD ["sh"]')
    path = f"/images/create?fromSrc=-&repo={quote(repository)}&tag={quote(version)}&changes={changes}"
    engine_call(engine_url, "POST", path, _root_filesystem(), "application/x-tar")
    return tag


def _root_filesystem() -> bytes:
    program = BUSYBOX.read_bytes()
    if b"/ld-linux" in program[:4096]:
        raise RuntimeError(f"cannot make an image of {BUSYBOX}: it needs libraries; install busybox-static")
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


class FakeRegistry:
    """A registry on 127.0.0.1 whose every answer is of one kind: "unknown", "denied", "broken" or "hang"."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._runner: web.AppRunner | None = None
        self._leave = asyncio.Event()
        self.port = 0

    def ref(self, image: str = "none:latest") -> str:
        """How an engine is asked for an image of this registry."""
        return f"127.0.0.1:{self.port}/{image}"

    async def __aenter__(self) -> FakeRegistry:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _respond(self, request: web.Request) -> web.Response:
        if self._answer == "hang":
            await self._leave.wait()
        if self._answer == "broken":
            return web.json_response({"errors": []}, status=503)
        if self._answer == "denied":
            return _no(401, "UNAUTHORIZED", "authentication required")
        if request.path.rstrip("/") == "/v2":
            return web.json_response({})
        return _no(404, "MANIFEST_UNKNOWN", "manifest unknown")


def _no(status: int, code: str, message: str) -> web.Response:
    return web.json_response(
        {"errors": [{"code": code, "message": message}]},
        status=status,
        headers={"Docker-Distribution-Api-Version": "registry/2.0"},
    )
