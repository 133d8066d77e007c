"""A fleet of simulated agents on one control plane: placement rate, cost per task, DescribeTasks meanwhile, memory.

Each agent registers, keeps its ACS and TCS websockets open, answers heartbeats, acknowledges payloads and reports every
task RUNNING; nothing is faked towards the control plane, there are only no containers. Agents share one process, the
clients that run tasks another, and the one that describes tasks a third. All of them take their time from the same
cores as the control plane, so they are as light as they can be, and what they took is told. Every fleet runs the same
number of tasks, a smaller one in several rounds after each of which its tasks end, so that what one costs can be
compared: the control plane's own processor time, from the request to the report that it runs.

Run: ``python -m bench.fleet``, with other sizes ``python -m bench.fleet --agents 50 --tasks 2000``, or against a
control plane that runs elsewhere ``--endpoint http://HOST:PORT`` with the usual AWS variables for keys.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

from bench.fleetline import Api
from bench.subject import REGION, Client, Subject, free_port, running
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

SIZES = (10, 100, 1000)
TASKS = 20_000
TASKS_PER_AGENT = 20
RUNNERS = 4  # clients that run tasks, each ten at a time
AT_ONCE = 10
DESCRIBED = 100
DESCRIBE_SECONDS = 0.05  # between two requests of the describing client
PATIENCE = 300.0
CPU, MEMORY = 4096, 16384
BUDGET_RATE, BUDGET_P99 = 500, 50


class Fleet:
    """All agents; counts the tasks that were reported RUNNING and acknowledged."""

    def __init__(self, endpoint: str, key: Credentials, cluster: str) -> None:
        self._key = key
        self._cluster = cluster
        self._api = Api(endpoint, key)
        self._session: aiohttp.ClientSession | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._tasks: list[str] = []
        self.running = 0
        self.connected = 0

    async def live(self, agents: int, said: Connection) -> None:
        """Bring all agents up, say so, and then the number of running tasks whenever it is asked for; or end them."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as self._session:
            lives = [asyncio.ensure_future(self._agent()) for _ in range(agents)]
            while self.connected < agents:
                await asyncio.sleep(0.02)
                for one in lives:
                    if one.done():
                        one.result()
            said.send("connected")
            while (asked := await asyncio.get_running_loop().run_in_executor(None, said.recv)) in ("count", "clear"):
                if asked == "clear":
                    await asyncio.gather(*(self._report(task, "STOPPED") for task in self._tasks))
                    self._tasks.clear()
                    self.running = 0
                said.send((self.running, time.process_time()))
            for one in [*lives, *self._work]:
                one.cancel()
            await asyncio.gather(*lives, *self._work, return_exceptions=True)
            self._api.close()

    async def _agent(self) -> None:
        attributes = [
            {"name": "com.amazonaws.ecs.capability.docker-remote-api.1.18"},
            {"name": "ecs.availability-zone", "value": f"{REGION}{random.choice('abc')}"},
        ]
        resources = [
            {"name": "CPU", "type": "INTEGER", "integerValue": CPU},
            {"name": "MEMORY", "type": "INTEGER", "integerValue": MEMORY},
            {"name": "PORTS", "type": "STRINGSET", "stringSetValue": ["22"]},
            {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []},
        ]
        answer = await self._api.call(
            "RegisterContainerInstance", cluster=self._cluster, attributes=attributes, totalResources=resources
        )
        arn = answer["containerInstance"]["containerInstanceArn"]
        where = await self._api.call("DiscoverPollEndpoint", cluster=self._cluster, containerInstance=arn)
        acs = {"clusterArn": self._cluster, "containerInstanceArn": arn, "sendCredentials": "true", "seqNum": "1"}
        tcs = {"cluster": self._cluster, "containerInstance": arn}
        acs_socket = self._socket(where["endpoint"], acs)
        async with acs_socket as tasks, self._socket(where["telemetryEndpoint"], tcs) as telemetry:
            self.connected += 1
            drain = asyncio.ensure_future(_drain(telemetry))
            try:
                await self._listen(tasks, arn)
            finally:
                drain.cancel()

    def _socket(self, endpoint: str, query: dict[str, str]) -> Any:
        address = urlsplit(endpoint)
        path = f"{address.path.rstrip('/')}/ws"
        text = urlencode(sorted(query.items()))
        headers = {"Host": address.netloc}
        headers |= sign("GET", path, text, headers, b"", self._key, region=REGION, service="ecs", now=time.time())
        assert self._session is not None
        url = f"{address.scheme}://{address.netloc}{path}?{text}"
        return self._session.ws_connect(url, headers=headers, compress=0)

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, arn: str) -> None:
        async for frame in socket:
            message = msgspec.json.decode(frame.data)
            body = message["message"]
            match message["type"]:
                case "HeartbeatMessage":
                    await _say(socket, "HeartbeatAckRequest", messageId=body["messageId"])
                case "PayloadMessage":
                    await _say(
                        socket,
                        "AckRequest",
                        cluster=self._cluster,
                        containerInstance=arn,
                        messageId=body["messageId"],
                    )
                    for task in body["tasks"]:
                        report = asyncio.ensure_future(self._report(task["arn"], "RUNNING"))
                        self._work.add(report)
                        report.add_done_callback(self._work.discard)

    async def _report(self, task: str, status: str) -> None:
        await self._api.call("SubmitTaskStateChange", cluster=self._cluster, task=task, status=status)
        if status == "RUNNING":
            self._tasks.append(task)
            self.running += 1


async def _say(socket: aiohttp.ClientWebSocketResponse, kind: str, **fields: Any) -> None:
    await socket.send_str(msgspec.json.encode({"type": kind, "message": fields}).decode())


async def _drain(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for _ in socket:
        pass


def simulate(endpoint: str, key: Credentials, cluster: str, agents: int, said: Connection) -> None:
    """The agents' process."""
    _open_many_files()

    async def live() -> None:
        await Fleet(endpoint, key, cluster).live(agents, said)

    asyncio.run(live())


def describe(port: int, key: Credentials, cluster: str, said: Connection) -> None:
    """The describing client's process: latencies of DescribeTasks(100) until it is told to end."""
    client = Client(port, key)
    taken = []
    tasks: list[str] = []
    while not said.poll(DESCRIBE_SECONDS):
        if len(tasks) < DESCRIBED:
            tasks = client.call("ListTasks", cluster=cluster)["taskArns"][:DESCRIBED]
            continue
        began = time.perf_counter()
        client.answer("DescribeTasks", cluster=cluster, tasks=tasks)
        taken.append(time.perf_counter() - began)
    said.send(sorted(taken))


def run_tasks(port: int, key: Credentials, cluster: str, count: int) -> list[tuple[float, int]]:
    """Run so many tasks; when each request was answered, and with how many tasks."""
    answered: list[tuple[float, int]] = []
    left = iter(range(0, count, AT_ONCE))
    lock = threading.Lock()

    def work() -> None:
        client = Client(port, key)
        while True:
            with lock:
                at = next(left, None)
            if at is None:
                return
            many = min(AT_ONCE, count - at)
            answer = client.call("RunTask", cluster=cluster, taskDefinition="fleet", count=many)
            if len(answer["tasks"]) != many:
                raise RuntimeError(f"cannot place: {answer['failures'][:3]}")
            answered.append((time.perf_counter(), many))

    workers = [threading.Thread(target=work) for _ in range(RUNNERS)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    return answered


@contextlib.contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(*arguments, theirs))
    child.start()
    theirs.close()
    try:
        yield ours
        ours.send("end")
        child.join(30)
    finally:
        child.kill()
        child.join()


def measure(port: int, key: Credentials, agents: int, tasks: int, subject: Subject | None) -> dict[str, Any]:
    """One row: a fleet of this size, and so many tasks on it."""
    cluster = f"fleet-{agents}"
    client = Client(port, key)
    client.call("CreateCluster", clusterName=cluster)
    container = {"name": "main", "image": "none", "cpu": 10, "memory": 16}
    client.call("RegisterTaskDefinition", family="fleet", networkMode="none", containerDefinitions=[container])
    endpoint = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    with process(simulate, endpoint, key, cluster, agents) as fleet:
        _expect(fleet)
        connected = time.perf_counter() - began
        with process(describe, port, key, cluster) as describing:
            spent = placing = running = generated = 0.0
            answered: list[tuple[float, int]] = []
            rounds = max(1, tasks // (agents * TASKS_PER_AGENT))
            for turn in range(rounds):
                if turn:
                    _ask(fleet, "clear")
                many = tasks // rounds + (tasks % rounds if turn == 0 else 0)
                before = subject.cpu_seconds() if subject else 0.0
                generating = _ask(fleet)[1] + time.process_time()
                began = time.perf_counter()
                answered = run_tasks(port, key, cluster, many)
                placing += time.perf_counter() - began
                while (ran := _ask(fleet)[0]) < many:
                    if time.perf_counter() - began > PATIENCE:
                        raise RuntimeError(f"only {ran} of {many} tasks run")
                    time.sleep(0.01)
                running += time.perf_counter() - began
                spent += subject.cpu_seconds() - before if subject else 0.0
                generated += _ask(fleet)[1] + time.process_time() - generating
            describing.send("end")
            latencies = describing.recv()
    row = {
        "agents": agents,
        "tasks": tasks,
        "connected (s)": round(connected, 1),
        "placed/s": round(tasks / placing),
        "last tenth/s": round(_rate_at_end(answered)) if rounds == 1 else "",
        "running/s": round(tasks / running),
        f"Describe({DESCRIBED}) p50 (ms)": _percentile(latencies, 0.5),
        "p99 (ms)": _percentile(latencies, 0.99),
        "generator's CPU (cores)": round(generated / running, 2),
    }
    if subject:
        row |= {"CPU per task (us)": round(spent / tasks * 1e6), "RSS (MB)": round(subject.memory_mb())}
    return row


def _rate_at_end(answered: Sequence[tuple[float, int]]) -> float:
    """Placements a second over the last tenth of the requests."""
    last = sorted(answered)[-max(2, len(answered) // 10) :]
    return sum(many for _, many in last[1:]) / max(last[-1][0] - last[0][0], 1e-9)


def _percentile(values: Sequence[float], share: float) -> float | str:
    return round(values[min(len(values) - 1, int(len(values) * share))] * 1000, 1) if values else "-"


def _expect(fleet: Connection) -> None:
    if not fleet.poll(PATIENCE):
        raise RuntimeError("the agents do not connect")
    fleet.recv()


def _ask(fleet: Connection, what: str = "count") -> tuple[int, float]:
    """How many tasks run, and the processor time that the agents have taken."""
    fleet.send(what)
    running, spent = fleet.recv()
    return running, spent


def _open_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(sizes: Sequence[int] = SIZES, tasks: int = TASKS) -> list[dict[str, Any]]:
    """The rows of this benchmark, each with a control plane of its own."""
    rows = []
    _open_many_files()
    for agents in sizes:
        with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
            port = free_port()
            with running("control", Path(scratch), "--listen", f"127.0.0.1:{port}") as subject:
                subject.wait_port(port)
                rows.append(measure(port, subject.key(), agents, tasks, subject))
    rows.append({"agents": "budget", "placed/s": f">= {BUDGET_RATE}", "p99 (ms)": f"< {BUDGET_P99}"})
    return rows


def main() -> int:
    from bench.__main__ import show

    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--tasks", type=int, default=TASKS, help="on each fleet")
    parser.add_argument("--endpoint", help="a control plane that runs already; its keys from the environment")
    given = parser.parse_args()
    if given.endpoint:
        key = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        port = urlsplit(given.endpoint).port or 7070
        rows = [measure(port, key, agents, given.tasks, None) for agents in given.agents]
    else:
        rows = run(given.agents, given.tasks)
    show((__doc__ or "").partition("\n")[0], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
