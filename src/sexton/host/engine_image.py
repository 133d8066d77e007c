"""An image out of a container engine's store, as the archive the engine saves: no container is made of it.

One request over the engine's socket, spooled to a file without a name, because layers stand in it in any order.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
from urllib.parse import quote

from sexton.host.errors import Absent, Unreadable
from sexton.host.image_archive import read_archive
from sexton.host.rootfs import Index

# An engine that is alive begins to answer at once; a large image takes its disk's time afterwards.
ANSWER_DEADLINE = 60.0


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ANSWER_DEADLINE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def read_image(reference: str, engine: str) -> Index:
    """The root file system of this image. Absent when the engine does not have it, Unreadable when it cannot be had."""
    if not engine.startswith("unix://"):
        raise Unreadable(f"cannot ask the engine at {engine}", "Name its socket, such as unix:///run/docker.sock.")
    connection = _SocketConnection(engine.removeprefix("unix://"))
    try:
        connection.request("GET", f"/images/{quote(reference, safe='/:@')}/get")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            said = _message(answer.read(65536)) or f"status {answer.status}"
            known = _known(engine, reference)
            if not known:
                raise Absent(f"the engine at {engine} has no image '{reference}', and there is no such file: pull it")
            raise Unreadable(f"cannot save the image '{reference}': {said}", "Look at the engine's log.")
        with tempfile.TemporaryFile() as spool:
            shutil.copyfileobj(answer, spool, 1 << 20)
            spool.seek(0)
            return read_archive(spool, reference)
    except (OSError, http.client.HTTPException) as error:
        raise Unreadable(
            f"'{reference}' is no file here, and the engine at {engine} cannot be asked for an image of that name: "
            f"{getattr(error, 'strerror', None) or error or type(error).__name__}",
            "Name a directory, a tar, or an image of a running engine (--docker-host).",
        ) from error
    finally:
        connection.close()


def _known(engine: str, reference: str) -> bool:
    connection = _SocketConnection(engine.removeprefix("unix://"))
    try:
        connection.request("GET", f"/images/{quote(reference, safe='/:@')}/json")
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return ""
