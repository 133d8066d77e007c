"""A real Docker engine of the tests' own: started in a directory, broken at will, and gone without a trace.

``PrivateEngine`` runs a containerd and a dockerd with every path, the bridge, the network and the parent cgroup made
for it alone, so that any number run beside each other and beside a host's own engine. It changes no packet filter and
no kernel setting: ports are published by the engine's userland proxy. The two daemons are separate processes, as
Debian installs them, and each can be killed on its own.

What it makes lives until ``close()``: containers, processes, mounts, the bridge, cgroups and the directory.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from local_image import CALL_SECONDS, EngineFailed, engine_call

from started import Started

START_SECONDS = 60.0
"""A daemon answers within a second; a loaded machine with a cold cache takes longer."""

STOP_SECONDS = 30.0
"""An engine gives its containers ten seconds of their own when it is told to end."""

_DAEMONS = ("containerd", "dockerd")


class PrivateEngine(Started):
    """One engine below ``root``. ``options`` are more of dockerd's; live restore keeps containers over its restarts.
    ``within`` is a command that runs another one elsewhere, such as in a network namespace."""

    def __init__(
        self, root: Path, *, live_restore: bool = False, options: Sequence[str] = (), within: Sequence[str] = ()
    ) -> None:
        self.root = root
        self._within = tuple(within)
        self.name = f"sx{os.getpid() % 0xFFFF:04x}{random.randrange(0xFFFFFF):06x}"  # also the bridge: 15 at most
        self.url = f"unix://{root}/docker.sock"
        self.cgroup_parent = f"/{self.name}"
        # Not below ``root``: the engine makes sockets there, whose whole path may have 107 letters.
        self._exec_root = Path("/tmp") / f"{self.name}-exec"
        self._options = [*options, *(["--live-restore"] if live_restore else [])]
        self._containerd: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None
        self._bridged = False
        root.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start what does not run, on the same root, and wait until it answers."""
        self._make_bridge()
        if not _runs(self._containerd):
            self._containerd = self._run("containerd", "--config", str(self._containerd_config()))
            self._await("containerd", self._containerd, lambda: _listens(self.root / "containerd.sock"))
        if not _runs(self._dockerd):
            self._dockerd = self._run(
                "dockerd",
                *("--host", self.url),
                *("--containerd", f"{self.root}/containerd.sock"),
                *("--data-root", f"{self.root}/data"),
                *("--exec-root", str(self._exec_root)),
                *("--pidfile", f"{self.root}/dockerd.pid"),
                *("--bridge", self.name),
                *("--cgroup-parent", self.cgroup_parent),
                *("--exec-opt", "native.cgroupdriver=cgroupfs"),
                *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
                "--userland-proxy=true",
                *self._options,
            )
            self._await("dockerd", self._dockerd, self.answers)

    def answers(self) -> bool:
        try:
            return engine_call(self.url, "GET", "/_ping") == b"OK"
        except (OSError, http.client.HTTPException, EngineFailed):
            return False

    def kill(self) -> None:
        """SIGKILL to dockerd alone; containers and containerd stay."""
        _end(self._dockerd, signal.SIGKILL)

    def kill_containerd(self) -> None:
        """SIGKILL to containerd alone; containers and their shims stay. ``start()`` brings it back."""
        _end(self._containerd, signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM to dockerd, as at a planned restart: it stops its containers unless live restore is on."""
        _end(self._dockerd, signal.SIGTERM)

    def lose_power(self) -> None:
        """All at once, as when the machine goes dark: daemons, shims and containers. What is on disk stays."""
        sockets = self._shim_sockets()
        _kill(_below(self.daemons()))
        for one in (self._dockerd, self._containerd):
            if one is not None:
                one.wait(STOP_SECONDS)
        for path in sockets:
            path.unlink(missing_ok=True)
        _unmount_below(self.root)
        shutil.rmtree(self.root / "containerd-state", ignore_errors=True)

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """One call of the Engine API, JSON in."""
        return engine_call(self.url, method, path, None if body is None else json.dumps(body).encode())

    def cli(self, *args: str) -> str:
        """What the docker command printed; EngineFailed with its words when it failed."""
        done = subprocess.run(
            ["docker", "--host", self.url, *args],
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env={"PATH": os.environ["PATH"], "DOCKER_CONFIG": f"{self.root}/cli"},
        )
        if done.returncode:
            raise EngineFailed(f"cannot run docker {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def remove_containers(self) -> None:
        """All of them, running or not."""
        for row in json.loads(self.call("GET", "/containers/json?all=1")):
            with contextlib.suppress(EngineFailed):  # gone meanwhile
                self.call("DELETE", f"/containers/{row['Id']}?force=1&v=1")

    def close(self) -> None:
        """End and remove everything this engine made, and the groups its containers were put into; can be repeated."""
        groups: set[str] = set()
        with contextlib.suppress(EngineFailed, OSError, http.client.HTTPException):
            if (self.root / "data").exists():
                if not _runs(self._dockerd):
                    # A dockerd that finds containers alive gives each ten seconds to end; nobody needs them now.
                    _kill(_below(self.daemons()) - self.daemons())
                self.start()
                groups |= self._groups_of_agents()
                self.remove_containers()
                self.call("POST", "/networks/prune")
        _end(self._dockerd, signal.SIGTERM)
        sockets = self._shim_sockets()
        _end(self._containerd, signal.SIGTERM)
        _kill(_below(self.daemons()))
        for path in sockets:
            path.unlink(missing_ok=True)
        for place in (self.root, self._exec_root):
            _unmount_below(place)
        _remove_cgroups(self.cgroup_parent)
        for group in groups:
            with contextlib.suppress(OSError):  # its agent runs on and removes it itself
                _remove_cgroups(group)
        if self._bridged:
            subprocess.run([*self._within, "ip", "link", "delete", self.name], capture_output=True)
            self._bridged = False
        for place in (self.root, self._exec_root):
            shutil.rmtree(place, ignore_errors=True)

    def _groups_of_agents(self) -> set[str]:
        """Groups that agents made for their tasks and sandboxes: one that was killed could not take them away."""
        found = set()
        for row in json.loads(self.call("GET", "/containers/json?all=1")):
            with contextlib.suppress(EngineFailed):  # gone meanwhile
                shown = json.loads(self.call("GET", f"/containers/{row['Id']}/json"))
                found.add(str(shown["HostConfig"]["CgroupParent"]))
        return {group for group in found if group.startswith("/ecs/")}

    def _make_bridge(self) -> None:
        if self._bridged:
            return
        _ip("link", "add", self.name, "type", "bridge", within=self._within)
        self._bridged = True
        _ip("addr", "add", _free_subnet(), "dev", self.name, within=self._within)
        _ip("link", "set", self.name, "up", within=self._within)

    def _containerd_config(self) -> Path:
        path = self.root / "containerd.toml"
        path.write_text(
            "version = 2\n"
            f'root = "{self.root}/containerd"\n'
            f'state = "{self.root}/containerd-state"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.root}/containerd.sock"\n'
        )
        return path

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C in the terminal ends the tests, which then end the engine in order.
        with (self.root / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._within, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
            )

    def _await(self, name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                tail = (self.root / f"{name}.log").read_text(errors="replace")[-2000:]
                raise EngineFailed(f"cannot start {name} (is it installed, is this root?):\n{tail}")
            time.sleep(0.01)

    def _shim_sockets(self) -> list[Path]:
        """Shims listen outside the root; each one's bundle says where."""
        return [
            Path(address.read_text().strip().removeprefix("unix://"))
            for address in self.root.glob("containerd-state/io.containerd.runtime.v2.task/*/*/address")
        ]

    def daemons(self) -> set[int]:
        """The engine's own processes, shims included: their command lines name this root."""
        return {
            pid
            for pid, (_, command) in _processes().items()
            if str(self.root).encode() in command
            and Path(os.fsdecode(command.split(b"\0")[0])).name.startswith(_DAEMONS)
        }


def _end(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    if process is None:
        return
    process.send_signal(number)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _runs(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _ip(*args: str, within: Sequence[str] = ()) -> str:
    done = subprocess.run([*within, "ip", *args], capture_output=True, text=True)
    if done.returncode:
        raise EngineFailed(f"cannot run ip {' '.join(args)} (is this root?): {done.stderr.strip()}")
    return done.stdout


def _free_subnet() -> str:
    """An address for a bridge, in a /24 of 10/8 that overlaps no route of this host."""
    taken = []
    for route in json.loads(_ip("-json", "route", "show", "table", "all")):
        with contextlib.suppress(ValueError):
            network = ipaddress.ip_network(route["dst"], strict=False)
            if network.prefixlen:
                taken.append(network)
    while True:
        chosen = ipaddress.ip_network(f"10.{random.randrange(1, 255)}.{random.randrange(255)}.0/24")
        if not any(chosen.overlaps(network) for network in taken if network.version == 4):
            return f"{chosen[1]}/24"


def _processes() -> dict[int, tuple[int, bytes]]:
    """Parent and command line of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                parent = int(stat[stat.rindex(")") + 2 :].split()[1])
                found[int(entry.name)] = (parent, (entry / "cmdline").read_bytes())
    return found


def _below(roots: set[int]) -> set[int]:
    """These processes and all that descend from them."""
    tree, found = _processes(), set(roots)
    while more := {pid for pid, (parent, _) in tree.items() if parent in found} - found:
        found |= more
    return found


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    """Not gone and not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _unmount_below(root: Path) -> None:
    """Deepest first; a mount may be stacked, so until none is left."""
    for _ in range(8):
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        below = sorted((point for point in mounts if Path(point).is_relative_to(root)), key=len, reverse=True)
        if not below:
            return
        for point in below:
            subprocess.run(["umount", "--lazy", point], capture_output=True)


def _remove_cgroups(parent: str) -> None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] not in ("cgroup", "cgroup2"):
            continue
        top = Path(fields[4] + parent)
        if top.exists():
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda p: -len(p.parts)):
                folder.rmdir()
            top.rmdir()


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
