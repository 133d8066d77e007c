"""Faults that a task asks for, in real networks: two namespaces with a cable between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.agent.metadata import faults
from sexton.agent.metadata.faultrunner import HOST, FaultRunner
from sexton.agent.metadata.faults import FaultPaths
from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.ownnetwork import namespace_of
from sexton.core.task import DesiredTask
from sexton.host import faultnet
from sexton.kit.allowance import Allowances
from sexton.runtime.contract import NotFound
from unit.agent.rig import arn, container, task
from unit.agent.taskport import serving

NEAR, FAR = "10.231.0.1", "10.231.0.2"
BLACKHOLE = {"Port": 8001, "Protocol": "tcp", "TrafficType": "egress"}


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Lab:
    """A task's network and, at the other end of its only cable, another machine."""

    def __init__(self) -> None:
        mark = f"sxf{os.getpid() % 0xFFFF:04x}{secrets.token_hex(2)}"
        self.near, self.far, self._cable = f"{mark}-near", f"{mark}-far", (f"{mark}a"[-15:], f"{mark}b"[-15:])
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Lab:
        one, other = self._cable
        for name in (self.near, self.far):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", one, "netns", self.near, "type", "veth", "peer", "name", other, "netns", self.far)
        for name, cable, address in ((self.near, one, NEAR), (self.far, other, FAR)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "addr", "add", f"fd00::{address[-1]}/64", "dev", cable, "nodad")
            ip("-n", name, "link", "set", cable, "up")
        ip("-n", self.near, "route", "add", "default", "via", FAR)
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._listeners:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()
        for name in (self.near, self.far):
            ip("netns", "delete", name)

    @property
    def path(self) -> str:
        return f"/run/netns/{self.near}"

    def inside(self, name: str, work: Any) -> Any:
        """Do something in a namespace, in a thread of its own."""
        found: list[Any] = []

        def enter() -> None:
            with open(f"/run/netns/{name}") as file:
                _setns(file.fileno())
            found.append(work())

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return found[0]

    def listen(self, name: str, port: int, family: socket.AddressFamily = socket.AF_INET) -> None:
        """Take connections there."""

        def opened() -> socket.socket:
            made = socket.socket(family)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("::" if family is socket.AF_INET6 else "", port))
            made.listen(16)
            return made

        listener = self.inside(name, opened)
        self._listeners.append(listener)

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        self._threads.append(threading.Thread(target=take))
        self._threads[-1].start()

    def reaches(self, port: int, address: str = FAR, name: str = "") -> bool:
        """Whether a connection from the task, or from a namespace, comes about."""

        def tried() -> bool:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as line:
                line.settimeout(0.3)
                return line.connect_ex((address, port)) == 0

        return bool(self.inside(name or self.near, tried))

    def arrive(self, many: int, port: int = 9) -> int:
        """Of so many packets that the task sends, how many arrive at the other end."""
        catcher = self.inside(self.far, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with catcher:
            catcher.bind(("", port))
            catcher.setblocking(False)
            sender = self.inside(self.near, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            found = 0
            with sender:
                for _ in range(many):
                    sender.sendto(b"x", (FAR, port))
                    with contextlib.suppress(BlockingIOError):
                        while catcher.recv(16):
                            found += 1
            return found


def _setns(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture
def lab():
    with Lab() as made:
        for port in (8001, 8002):
            made.listen(made.far, port)
        yield made


class Anybody:
    async def is_of(self, caller: Any, runner: Any) -> bool:
        return caller.task in ("", runner.arn)


class Tasks:
    """Three tasks: with a network of its own and faults allowed, with none allowed, and behind the bridge."""

    def __init__(self, lab: Lab, directory: Any, **fields: Any) -> None:
        modes = {
            1: {"network_mode": "awsvpc", "enable_fault_injection": True},
            2: {"network_mode": "awsvpc"},
            3: {"network_mode": "bridge", "enable_fault_injection": True},
            4: {"network_mode": "host", "enable_fault_injection": True},
        }
        self.runners = [
            SimpleNamespace(arn=arn(n), task_id=arn(n)[-32:], desired=DesiredTask(task=task(n, **mode)))
            for n, mode in modes.items()
        ]
        self.names = Names(b"k" * 32, lambda: self.runners)  # type: ignore[arg-type]
        self.runner = FaultRunner(str(directory))

        async def own_network(runner: Any) -> str:
            return lab.path

        self.paths = FaultPaths(self.names, Anybody(), self.runner, own_network)  # type: ignore[arg-type]
        self.paths._allowances = Allowances(1e6, 1e6)

    def path(self, number: int, what: str) -> str:
        return f"/api/{self.names.of(arn(number), container().name or '')}/fault/v1/{what}"


@pytest.fixture
def tasks(lab, tmp_path):
    return Tasks(lab, tmp_path)


async def post(port: Any, path: str, body: Any = None) -> tuple[int, Any]:
    said = await port.ask(path, "POST", None if body is None else json.dumps(body).encode())
    return said.status, json.loads(said.text)


async def test_a_port_is_blocked_for_the_task_and_freed_again(lab, tasks):
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-blackhole-port/")
        assert lab.reaches(8001) and lab.reaches(8002)
        assert await post(port, place + "status", BLACKHOLE) == (200, {"Status": "not-running"})
        for _ in range(2):  # to begin what runs is no error
            assert await post(port, place + "start", BLACKHOLE) == (200, {"Status": "running"})
        assert (lab.reaches(8001), lab.reaches(8002)) == (False, True)
        assert await post(port, place + "status", BLACKHOLE) == (200, {"Status": "running"})
        assert await post(port, place + "status", BLACKHOLE | {"Port": 8002}) == (200, {"Status": "not-running"})
        for _ in range(2):
            assert await post(port, place + "stop", BLACKHOLE) == (200, {"Status": "stopped"})
        assert lab.reaches(8001)


async def test_what_comes_in_is_blocked_but_for_the_spared(lab, tasks):
    lab.listen(lab.near, 8003)
    lab.listen(lab.near, 8003 + 1, socket.AF_INET6)
    incoming = {"Port": 8003, "Protocol": "tcp", "TrafficType": "ingress"}
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-blackhole-port/")
        assert lab.reaches(8003, NEAR, lab.far)
        await post(port, place + "start", incoming)
        assert not lab.reaches(8003, NEAR, lab.far)
        await post(port, place + "start", incoming | {"SourcesToFilter": ["10.231.0.0/24"]})
        assert lab.reaches(8003, NEAR, lab.far)
        assert lab.reaches(8004, "fd00::1", lab.far)
        await post(port, place + "start", incoming | {"Port": 8004})
        assert not lab.reaches(8004, "fd00::1", lab.far)


async def test_packets_are_lost_as_often_as_asked_and_only_to_whom(lab, tasks):
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-packet-loss/")
        assert lab.arrive(400) == 400
        assert await post(port, place + "start", {"LossPercent": 50, "Sources": [FAR]}) == (200, {"Status": "running"})
        assert 120 <= lab.arrive(400) <= 280  # eight standard deviations
        assert await post(port, place + "start", {"LossPercent": 50, "Sources": [FAR]}) == (
            409,
            {"Error": "There is already one network packet loss fault running"},
        )
        assert await post(port, tasks.path(1, "network-latency/start"), LATE) == (
            409,
            {"Error": "There is already one network packet loss fault running"},
        )
        assert await post(port, place + "status") == (200, {"Status": "running"})
        assert await post(port, place + "stop") == (200, {"Status": "stopped"})
        assert await post(port, place + "status") == (200, {"Status": "not-running"})
        for spared in ({"Sources": ["10.99.0.0/16"]}, {"Sources": ["0.0.0.0/0"], "SourcesToFilter": [FAR]}):
            await post(port, place + "start", {"LossPercent": 100} | spared)
            assert lab.arrive(100) == 100
            await post(port, place + "stop")
        await post(port, place + "start", {"LossPercent": 100, "Sources": [FAR], "FlowsPercent": 50})
        hit = sum(lab.arrive(1, 10_000 + number) == 0 for number in range(100))
        assert 15 <= hit <= 85
        await post(port, place + "stop")


LATE = {"DelayMilliseconds": 50, "JitterMilliseconds": 0, "Sources": [FAR]}


async def test_latency_comes_where_the_kernel_can_and_is_refused_with_the_reason_where_not(lab, tasks):
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-latency/")
        status, answer = await post(port, place + "start", LATE)
        if status == 200:
            assert await post(port, place + "status") == (200, {"Status": "running"})
        else:
            assert (status, answer) == (500, {"Error": "cannot delay packets: this host's kernel has no netem"})
            assert await post(port, place + "status") == (200, {"Status": "not-running"})
        assert await post(port, place + "stop") == (200, {"Status": "stopped"})
        assert await faultnet.queued(lab.path, "5e78:") == ()
        assert "sexton-fault" not in await faultnet.tables(lab.path)
        assert lab.reaches(8001)


@pytest.fixture
def netem(monkeypatch):
    """A kernel that can delay packets. This one may have no netem, so a queue that holds nothing stands in for it: what
    would be late is lost, and everything else of the way there is real. What netem would have been told is kept."""
    told, real = [], faultnet.queue

    async def queue(namespace: str, *command: str) -> None:
        if "netem" in command:
            at = command.index("netem")
            told.append(command[at:])
            command = (*command[:at], "pfifo", "limit", "0")
        await real(namespace, *command)

    monkeypatch.setattr(faultnet, "queue", queue)
    return told


@pytest.mark.parametrize(
    ("body", "late", "in_time"),
    [
        ({}, 100, 0),
        ({"Sources": ["10.99.0.0/16"]}, 0, 100),
        ({"Sources": ["0.0.0.0/0"], "SourcesToFilter": [FAR]}, 0, 100),
    ],
    ids=["to whom it was asked for", "to nobody else", "but for those that are spared"],
)
async def test_where_the_kernel_has_netem_those_packets_are_late_that_were_asked_for(
    lab, tasks, netem, body, late, in_time
):
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-latency/")
        assert await post(port, place + "start", LATE | body) == (200, {"Status": "running"})
        assert (100 - lab.arrive(100), lab.arrive(100)) == (late, in_time)
        assert await post(port, place + "status") == (200, {"Status": "running"})
        for second in ("network-latency", "network-packet-loss"):
            assert await post(port, tasks.path(1, f"{second}/start"), LATE | {"LossPercent": 5}) == (
                409,
                {"Error": "There is already one network latency fault running"},
            )
        assert await post(port, place + "stop") == (200, {"Status": "stopped"})
        assert await post(port, place + "status") == (200, {"Status": "not-running"})
        assert lab.arrive(100) == 100
        assert await faultnet.queued(lab.path, "5e78:") == ()
        assert "sexton-fault" not in await faultnet.tables(lab.path)
    assert netem == [("netem", "delay", "50ms", "limit", "100000")]


async def test_jitter_some_flows_and_a_fault_that_is_begun_again(lab, tasks, netem):
    async with serving(tasks.paths) as port:
        place = tasks.path(1, "network-latency/")
        for flows in (50, 50):
            body = LATE | {"JitterMilliseconds": 7, "FlowsPercent": flows}
            assert await post(port, place + "start", body) == (200, {"Status": "running"})
            hit = sum(lab.arrive(1, 10_000 + number) == 0 for number in range(100))
            assert 15 <= hit <= 85
            assert await post(port, place + "stop") == (200, {"Status": "stopped"})
    assert netem == [("netem", "delay", "50ms", "7ms", "limit", "100000")] * 2


@pytest.mark.parametrize(
    ("number", "what", "body", "status", "said"),
    [
        (2, "network-blackhole-port/start", BLACKHOLE, 400, f"enableFaultInjection is not enabled for task: {arn(2)}"),
        (
            3,
            "network-packet-loss/stop",
            None,
            400,
            "bridge mode is not supported. Please use either host or awsvpc mode.",
        ),
        (1, "network-blackhole-port/stop", None, 400, "required request body is missing"),
        (1, "network-latency/start", {}, 400, "required parameter DelayMilliseconds is missing"),
        (1, "network-latency/start", [1], 400, "cannot read the request body: it is no JSON object"),
    ],
)
async def test_what_may_not_or_cannot_be_is_said(tasks, number, what, body, status, said):
    async with serving(tasks.paths) as port:
        assert await post(port, tasks.path(number, what), body) == (status, {"Error": said})


async def test_nobodys_name_another_tasks_network_and_other_verbs(tasks):
    async with serving(tasks.paths) as port:
        assert await post(port, "/api/none/fault/v1/network-latency/status") == (
            404,
            {"Error": "unable to get task arn from request: unable to get task Arn from v3 endpoint ID: none"},
        )
        assert (await port.ask(tasks.path(1, "network-latency/status"))).status == 405
        assert (await port.ask(tasks.path(1, "network-latency/pause"), "POST")).status == 404
    async with serving(tasks.paths, task=arn(2)) as port:
        assert (await post(port, tasks.path(1, "network-latency/status")))[0] == 404


async def test_a_second_request_within_five_seconds_is_one_too_many(tasks):
    tasks.paths._allowances = Allowances(faults.RATE, 1.0)
    async with serving(tasks.paths) as port:
        first, second = [await port.ask(tasks.path(1, "network-latency/status"), "POST") for _ in range(2)]
        assert (first.status, second.status) == (200, 429)
        assert second.text == "You have reached maximum request limit"
        assert second.headers["Content-Type"].startswith("text/plain")
        assert (await port.ask(tasks.path(1, "network-latency/stop"), "POST")).status == 200


async def test_tools_that_hang_or_fail_are_said_and_requests_wait_for_each_other(lab, tasks, monkeypatch):
    monkeypatch.setattr(faults, "REQUEST_SECONDS", 0.3)
    hold = asyncio.Event()

    async def stuck(namespace: str) -> str:
        await hold.wait()
        return ""

    monkeypatch.setattr(faultnet, "tables", stuck)
    async with serving(tasks.paths) as port:
        answers = await asyncio.gather(
            post(port, tasks.path(1, "network-latency/status")),
            post(port, tasks.path(1, "network-packet-loss/start"), {"LossPercent": 5, "Sources": [FAR]}),
        )
        assert answers == [
            (500, {"Error": "check status network-latency: request timed out"}),
            (500, {"Error": "start network-packet-loss: request timed out"}),
        ]
    monkeypatch.undo()
    gone = Tasks(SimpleNamespace(path="/run/netns/none"), "x")  # type: ignore[arg-type]
    async with serving(gone.paths) as port:
        status, answer = await post(port, gone.path(1, "network-blackhole-port/start"), BLACKHOLE)
        assert status == 500 and "No such file" in answer["Error"]


async def test_what_a_killed_agent_left_in_the_hosts_network_is_removed_by_the_next_one(tmp_path, lab):
    """And nothing of an agent beside it, nor of a task that runs on."""
    before, other = Tasks(lab, tmp_path / "mine"), Tasks(lab, tmp_path / "other")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = {"Port": server.getsockname()[1], "Protocol": "tcp", "TrafficType": "egress"}

        def open_port() -> bool:
            with socket.socket() as line:
                line.settimeout(0.3)
                return line.connect_ex(server.getsockname()) == 0

        try:
            async with serving(before.paths) as port:
                assert await post(port, before.path(4, "network-blackhole-port/start"), taken) == (
                    200,
                    {"Status": "running"},
                )
            async with serving(other.paths) as port:
                await post(port, other.path(4, "network-blackhole-port/start"), taken | {"Port": 1})
            assert not open_port()
            after = FaultRunner(str(tmp_path / "mine"))
            await after.sweep({before.runners[3].task_id})
            assert not open_port()
            await after.sweep(set())
            assert open_port()
            assert other.runner._agent in await faultnet.tables(HOST)
        finally:
            await before.runner.sweep(set())
            await other.runner.sweep(set())
    listed = await faultnet.tables(HOST)
    assert before.runner._agent not in listed and other.runner._agent not in listed


async def test_a_tasks_own_network_is_that_of_its_running_containers_and_never_the_hosts(lab):
    inside = subprocess.Popen(["ip", "netns", "exec", lab.near, "sleep", "100"])
    try:
        for _ in range(500):
            if os.readlink(f"/proc/{inside.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
                break
            await asyncio.sleep(0.01)
        pids = {"in": inside.pid, "host": os.getpid(), "ended": 0}

        class Engine:
            async def inspect(self, ref: str) -> Any:
                if ref == "gone":
                    raise NotFound("gone")
                return SimpleNamespace(pid=pids[ref])

        def runner(*ids: str) -> Any:
            return SimpleNamespace(known=SimpleNamespace(containers=[SimpleNamespace(runtime_id=one) for one in ids]))

        found = await namespace_of(Engine(), runner("", "gone", "ended", "host", "in"))  # type: ignore[arg-type]
        assert found == f"/proc/{inside.pid}/ns/net"
        assert await namespace_of(Engine(), runner("host", "ended")) is None  # type: ignore[arg-type]
        assert "sexton" not in await faultnet.tables(found)
    finally:
        inside.kill()
        inside.wait()
