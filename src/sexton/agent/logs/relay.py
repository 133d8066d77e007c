"""The relay: a small process of its own that the engine's log driver talks to instead of the destination.

It answers every call at once. What is written goes to the spool; whose it is says the token in the path, which only
the engine was told. It needs no keys, speaks to nobody but this host, and outlives the agent that started it, so that
an agent that restarts costs no line. Beyond the bound of the spool new lines are counted and dropped, and a mark is
left where they are missing.

    GET  /c/TOKEN       keys that mean nothing: the driver must sign with some
    POST /t/TOKEN/      the driver's calls

It ends when its directory is gone, when it is told to, and when another has its place.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sexton import __version__
from sexton.agent.logs import spool
from sexton.kit.frames import FrameFile, read_frames

# A file of the spool is closed at this size, so that what was delivered can go.
ROLL_BYTES = 4 << 20
MOST_BODY = 8 << 20
# Bodies that are read at the same time, so that memory is bounded however many containers write.
BODIES_AT_ONCE = 4
# An idle connection is closed; the engine's client lets go of its own after 90 seconds.
IDLE_SECONDS = 120
# How often it is looked whether the directory is still there.
LOOK_SECONDS = 5.0
_KEYS = json.dumps(
    {
        "AccessKeyId": "SEXTONRELAY",
        "SecretAccessKey": "none",  # never looked at
        "Token": "none",
        "Expiration": "2100-01-01T00:00:00Z",
    }
).encode()


class Room:
    """How much the spool holds, and what found no room."""

    def __init__(self, root: Path, bound: int) -> None:
        self._root = root
        self._bound = bound
        self._lock = threading.Lock()
        self._held = spool.size_of(root)
        self._lines, self._bytes = _dropped(root)

    def take(self, size: int) -> bool:
        with self._lock:
            if self._held + size > self._bound:
                self._held = spool.size_of(self._root)  # what was delivered meanwhile is gone
            if self._held + size > self._bound:
                return False
            self._held += size
            return True

    def dropped(self, lines: int, size: int) -> None:
        with self._lock:
            self._lines += lines
            self._bytes += size
            draft = self._root / f".{spool.DROPPED}"
            with contextlib.suppress(OSError):  # a full disk may refuse even this
                draft.write_text(f"{self._lines} {self._bytes}")
                draft.replace(self._root / spool.DROPPED)


def _dropped(root: Path) -> tuple[int, int]:
    try:
        lines, size = (root / spool.DROPPED).read_text().split()
        return int(lines), int(size)
    except (OSError, ValueError):
        return 0, 0


class Way:
    """One container's files, and where the next frame goes."""

    def __init__(self, folder: Path, room: Room) -> None:
        self._folder = folder
        self._room = room
        self._lock = threading.Lock()
        self._file: FrameFile | None = None
        self._missing = 0
        self._missing_since = 0  # in milliseconds
        self._number, self._newest = self._left()
        # What was taken may come again when its answer was lost, with the relay's death or the connection's.
        self.doubtful = True

    def _left(self) -> tuple[int, bytes]:
        """The last file's number and the mark of its last batch, of an earlier process."""
        number, newest = 0, b""
        with contextlib.suppress(OSError, ValueError):
            cursor = json.loads((self._folder / spool.CURSOR).read_bytes())
            number, newest = int(cursor["file"]), bytes.fromhex(cursor["newest"])
        for one in spool.files_of(self._folder)[-1:]:
            number = max(number, one)
            for frame in read_frames(spool.file_path(self._folder, one)):
                if frame.payload[:1] == spool.BATCH:
                    newest = spool.mark(frame.payload[1:])
        return number, newest

    def add(self, body: bytes) -> None:
        """Take a batch, or count it as dropped; FileNotFoundError when the way is gone."""
        with self._lock, spool.held(self._folder):
            newest = spool.mark(body)
            again, self.doubtful = self.doubtful and newest == self._newest, False
            if again:
                return
            self._newest = newest
            if self._room.take(len(body)) and self._write(body):
                return
            lines = body.count(b'"message":')
            if not self._missing:
                self._missing_since = time.time_ns() // 1_000_000
            self._missing += lines
            self._room.dropped(lines, len(body))

    def _write(self, body: bytes) -> bool:
        try:
            file = self._current()
            if self._missing:
                file.append(spool.GAP + f"{self._missing} {self._missing_since}".encode())
                self._missing = 0
            file.append(spool.BATCH + body)
        except OSError:
            return False
        return True

    def _current(self) -> FrameFile:
        if self._file is not None and (self._file.end > ROLL_BYTES or not self._file.linked):
            self._file.close()
            self._file = None
        if self._file is None:
            self._number += 1
            self._file = FrameFile(spool.file_path(self._folder, self._number), 0)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Relay(ThreadingHTTPServer):
    """Listens on a socket that the agent made, which holds calls while no relay is there."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, root: Path, bound: int, listener: socket.socket) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.root = root
        self.room = Room(root, bound)
        self.bodies = threading.Semaphore(BODIES_AT_ONCE)
        self._ways: dict[str, Way] = {}
        self._lock = threading.Lock()
        self._knock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def way(self, token: str) -> Way | None:
        """Whose the token is; None when it is nobody's."""
        if not spool.TOKEN.fullmatch(token):
            return None
        folder = self.root / token
        with self._lock:
            there = (folder / spool.WAY).exists()
            if token in self._ways and not there:
                self._ways.pop(token).close()
            elif there and token not in self._ways:
                self._ways[token] = Way(folder, self.room)
            return self._ways.get(token)

    def knock(self, token: str) -> None:
        with contextlib.suppress(OSError):  # nobody is there, or has not come to read for a while: it looks anyway
            self._knock.sendto(token.encode(), str(self.root / spool.WAKE))

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is the client's to mend."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: Relay
    # One answer, one packet.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nothing is said here."""

    def do_GET(self) -> None:
        kind, token = self._asked()
        self._answer(200, _KEYS) if kind == "c" and self.server.way(token) is not None else self._answer(404, b"{}")

    def do_POST(self) -> None:
        kind, token = self._asked()
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            self.close_connection = True
            self._answer(413, b'{"__type":"RequestEntityTooLargeException"}')
            return
        way = self.server.way(token) if kind == "t" else None
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        with self.server.bodies:
            body = self.rfile.read(int(length))
            if len(body) != int(length):
                self.close_connection = True
                return
            try:
                if way is None:
                    raise FileNotFoundError
                if operation == "PutLogEvents":
                    way.add(body)
            except FileNotFoundError:
                self._answer(400, b'{"__type":"ResourceNotFoundException","message":"nobody writes here any more"}')
                return
        if operation == "PutLogEvents":
            self.server.knock(token)
        try:
            self._answer(200, b'{"nextSequenceToken":"%d"}' % time.time_ns() if operation == "PutLogEvents" else b"{}")
        except OSError:
            if way is not None:
                way.doubtful = True
            raise

    def _asked(self) -> tuple[str, str]:
        parts = self.path.strip("/").split("/")
        return (parts[0], parts[1]) if len(parts) == 2 else ("", "")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sexton log relay", description="Started by an agent, for its engine.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--handle", type=int, required=True, help="the socket to listen on")
    parser.add_argument("--bound", type=int, required=True, help="bytes that the spool may hold")
    given = parser.parse_args(arguments)
    os.chdir("/")
    threading.stack_size(256 << 10)
    lock = os.open(given.root / spool.RELAY_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 3  # another has this place
    relay = Relay(given.root, given.bound, socket.socket(fileno=given.handle))
    said = {"pid": os.getpid(), "port": relay.server_address[1], "version": __version__}
    draft = given.root / f".{spool.RELAY_FILE}"
    draft.write_text(json.dumps(said))
    draft.replace(given.root / spool.RELAY_FILE)
    # In the thread that waits, so that a request that is being answered is answered.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=relay.shutdown).start())
    threading.Thread(target=_end_without, args=(given.root, lock, relay), daemon=True).start()
    relay.serve_forever(poll_interval=0.5)
    return 0


def _end_without(root: Path, lock: int, relay: Relay) -> None:
    """End the process when its directory has been removed or replaced."""
    while True:
        time.sleep(LOOK_SECONDS)
        try:
            same = os.path.samestat(os.stat(root / spool.RELAY_LOCK), os.fstat(lock))
        except OSError:
            same = False
        if not same:
            relay.shutdown()
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
