"""A real etcd of the tests' own, from Debian's etcd-server: on free loopback ports, and gone without a trace.

``PrivateEtcd`` is a cluster of any number of members. Each is a process that can be killed, frozen, thawed and
started again on its own data. The kernel kills them all when the thread that started them ends, however it ends:
start them from the main one. Elections take half a second, so that a lease may be as short as one.
"""

from __future__ import annotations

import atexit
import functools
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from started import Started

START_SECONDS = 30.0
"""A member answers within a second; a loaded machine takes longer."""

CALL_SECONDS = 5.0

HEARTBEAT_MS = 50
ELECTION_MS = 500


class EtcdFailed(Exception):
    """etcd, or a call to it, did not do what a test needs."""


class Member:
    """One etcd process, or the place of one that does not run."""

    def __init__(self, name: str, root: Path, client_port: int, peer_port: int, options: Sequence[str]) -> None:
        self.name = name
        self.port = client_port
        self.peer = f"http://127.0.0.1:{peer_port}"
        self.data = root / name
        self._log = root / f"{name}.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, cluster: str) -> None:
        scheme = "https" if any(option.startswith("--cert-file") for option in self._options) else "http"
        client = f"{scheme}://127.0.0.1:{self.port}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", "etcd"),
                    *("--name", self.name, "--data-dir", str(self.data)),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer),
                    *("--initial-cluster", cluster, "--initial-cluster-token", self.data.parent.name),
                    *("--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS)),
                    *("--logger", "zap", "--log-level", "warn"),
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )

    def kill(self) -> None:
        """As by a power cut of this member: no goodbye to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """From now on it is silent on every connection: a partition, as its peers and clients see it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """As an operator does it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_SECONDS)
            self._process = None

    def call(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """One plain call of the JSON gateway; EtcdFailed when the answer is a no."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_SECONDS)
        try:
            connection.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise EtcdFailed(f"cannot reach {self.name}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise EtcdFailed(f"cannot POST {path}: {answer.status} {body.decode(errors='replace')}")
        return json.loads(body.splitlines()[0])

    def answers(self) -> bool:
        """Whether it serves linearizable reads: a leader is elected and it follows."""
        try:
            self.call("/v3/kv/range", {"key": "AA=="})
        except EtcdFailed as error:
            # With logins switched on it is ready when it asks for one.
            return "user name is empty" in str(error)
        return True

    def accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=CALL_SECONDS).close()
        except OSError:
            return False
        return True

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class PrivateEtcd(Started):
    """A cluster below ``root``, which must be a directory of its own."""

    def __init__(self, root: Path, *, size: int = 1, options: Sequence[str] = (), scheme: str = "etcd") -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self._scheme = scheme
        ports = free_ports(2 * size)
        self.members = [
            Member(f"m{number}", root, ports[2 * number], ports[2 * number + 1], options) for number in range(size)
        ]
        self._cluster = ",".join(f"{member.name}={member.peer}" for member in self.members)

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.hosts}"

    def start(self) -> None:
        """Start every member that does not run, and wait until all answer."""
        for member in self.members:
            if not member.runs:
                member.start(self._cluster)
        for member in self.members:
            # Without the certificate of a client, accepting is all that can be seen of it.
            ready = member.answers if self._scheme == "etcd" else member.accepts
            await_true(ready, f"{member.name} to answer", member.log)

    def leader(self) -> Member:
        """The member that leads now."""
        found: list[Member] = []

        def led() -> bool:
            for member in self.members:
                try:
                    status = member.call("/v3/maintenance/status", {})
                except EtcdFailed:
                    continue
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    found[:] = [member]
                    return True
            return False

        await_true(led, "a leader")
        return found[0]

    def close(self) -> None:
        for member in self.members:
            member.kill()
        shutil.rmtree(self.root, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on at this moment, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def await_true(happened: Callable[[], bool], what: str, evidence: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise EtcdFailed(f"waited {START_SECONDS:g} s in vain for {what}: {evidence()[-2000:]}")
        time.sleep(0.02)


@functools.cache
def shared_etcd() -> PrivateEtcd:
    """One member for all tests that do not break it; each uses a prefix of its own. Ends with the process."""
    etcd = PrivateEtcd(Path(tempfile.mkdtemp(prefix="sexton-etcd-")))
    atexit.register(etcd.close)
    etcd.start()
    return etcd
