"""Requests a second that the API answers, beside the floor: a bare HTTP server with a constant answer of the same size.

The control plane runs as users run it, in a process of its own. Four clients, each a keep-alive connection that
asks again as soon as it has its answer, share another process; they are cheap on purpose (one epoll loop, requests
signed beforehand), since they take their time from the same cores. The floor is the same HTTP library doing nothing:
no signature, no decoding, no records, no disk.

Run: ``python -m bench.api``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import select
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web

from bench.store import floor as bare_commits
from bench.subject import Subject, free_port, running
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.control.app import STORE_FILE
from sexton.control.records import Records, TaskRecord
from sexton.core import names, render
from sexton.kit.supervise import Nursery
from sexton.store.contract import Durability
from sexton.store.opening import open_store
from sexton.wire import ecs

CLIENTS = 4
SECONDS = 3.0
TASKS = 100
REGION = "us-east-1"
ACCOUNT = "000000000000"
PLACE = names.Place(REGION, ACCOUNT)
JSON = "application/x-amz-json-1.1"

# What the API must reach on two cores that have nothing else to do.
BUDGETS = {"ListClusters": 4000, "RegisterTaskDefinition": 3000, "DescribeTasks(100)": 1000}


def task_ids() -> list[str]:
    return [f"{number:032x}" for number in range(TASKS)]


def bodies() -> dict[str, tuple[str, bytes]]:
    """The measured requests: the operation and its body."""
    container = {
        "name": "web",
        "image": "nginx:1.27",
        "cpu": 128,
        "memory": 256,
        "essential": True,
        "environment": [{"name": f"NAME_{number}", "value": f"value {number}"} for number in range(5)],
        "portMappings": [{"containerPort": 80, "hostPort": 0, "protocol": "tcp"}],
    }
    definition = {"family": "web", "networkMode": "bridge", "containerDefinitions": [container]}
    return {
        "ListClusters": ("ListClusters", b"{}"),
        "RegisterTaskDefinition": ("RegisterTaskDefinition", json.dumps(definition).encode()),
        "DescribeTasks(100)": ("DescribeTasks", json.dumps({"cluster": "default", "tasks": task_ids()}).encode()),
    }


def request(operation: str, body: bytes, port: int, key: Credentials) -> bytes:
    """One signed request as it goes on the wire, with the headers that the AWS SDK for Python sends."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Accept-Encoding": "identity",
        "X-Amz-Target": f"{ecs.TARGET_PREFIX}.{operation}",
        "Content-Type": JSON,
        "User-Agent": "bench",
    }
    signed = {name: headers[name] for name in ("Host", "X-Amz-Target", "Content-Type")}
    headers |= sign("POST", "/", "", signed, body, key, region=REGION, service="ecs", now=time.time())
    headers["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body


def drive(port: int, data: bytes, seconds: float, answer: multiprocessing.Queue[tuple[int, float, int]]) -> None:
    """Ask over and over on every connection; gives how many answers came, in which time, and the size of one."""
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    missing: dict[int, int] = {}
    last: set[int] = set()  # connections that the server will close after the answer that comes

    def begin() -> None:
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[one.fileno()] = one
        poll.register(one, select.EPOLLIN)
        missing[one.fileno()] = 0
        one.sendall(data)

    def again(number: int) -> None:
        """A new connection in the place of one that the server has closed, or is about to."""
        last.discard(number)
        poll.unregister(number)
        sockets.pop(number).close()
        begin()

    for _ in range(CLIENTS):
        begin()
    done = size = closed = 0
    began = time.perf_counter()
    space = bytearray(1 << 18)
    while (now := time.perf_counter()) - began < seconds:
        for number, _ in poll.poll(1.0):
            got = sockets[number].recv_into(space)
            if got == 0 and not missing[number] and closed <= done:
                closed += 1  # servers end a connection after so many requests; the request was not heard
                again(number)
                continue
            if missing[number] == 0:
                end = space.find(b"\r\n\r\n", 0, got)
                head = bytes(space[: max(end, 0)])
                if b" 200 " not in head[:16]:
                    raise RuntimeError(f"cannot measure: the server answered {bytes(space[: min(got, 500)])!r}")
                lines = head.lower().split(b"\r\n")
                size = int(next(line for line in lines if line.startswith(b"content-length:")).split(b":")[1])
                missing[number] = size - (got - end - 4)
                if b"connection: close" in lines or lines[0].startswith(b"http/1.0"):
                    last.add(number)
            else:
                missing[number] -= got
            if missing[number] == 0:
                done += 1
                if number in last:
                    again(number)
                else:
                    sockets[number].sendall(data)
    answer.put((done, now - began, size))


def measure(port: int, data: bytes, seconds: float = SECONDS) -> tuple[float, int]:
    """Answers a second, and the size of one."""
    context = multiprocessing.get_context("spawn")
    answer: multiprocessing.Queue[tuple[int, float, int]] = context.Queue()
    client = context.Process(target=drive, args=(port, data, seconds, answer))
    client.start()
    try:
        done, took, size = answer.get(timeout=seconds + 30)
    finally:
        client.join(10)
    return done / took, size


def serve_constant(size: int, ports: multiprocessing.Queue[int]) -> None:
    """The floor's process."""

    async def live() -> None:
        body = b"x" * size

        async def answer(incoming: web.BaseRequest) -> web.StreamResponse:
            await incoming.read()
            return web.Response(body=body, headers={"Content-Type": JSON})

        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    asyncio.run(live())


@contextlib.contextmanager
def constant_server(size: int) -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    ports: multiprocessing.Queue[int] = context.Queue()
    server = context.Process(target=serve_constant, args=(size, ports))
    server.start()
    try:
        yield ports.get(timeout=30)
    finally:
        server.terminate()
        server.join(10)


@contextlib.contextmanager
def control_plane(directory: Path) -> Iterator[tuple[Subject, int]]:
    """A control plane of its own, with the tasks that are described; it and its port."""
    asyncio.run(_seed(directory))
    port = free_port()
    with running("control", directory, "--listen", f"127.0.0.1:{port}") as subject:
        subject.wait_port(port)
        yield subject, port


async def _seed(directory: Path) -> None:
    """Tasks as RunTask would have made them."""
    store = await open_store(f"sqlite://{directory / STORE_FILE}")
    records = Records(store)
    nursery = Nursery("seed")
    await records.start(nursery)
    containers = (ecs.ContainerDefinition(name="web", image="nginx:1.27", cpu=128, memory=256),)
    definition = ecs.TaskDefinition(family="web", revision=1, container_definitions=containers)
    made = []
    for task_id in task_ids():
        task = ecs.Task(
            task_arn=names.task_arn(PLACE, names.DEFAULT_CLUSTER, task_id),
            cluster_arn=names.cluster_arn(PLACE, names.DEFAULT_CLUSTER),
            container_instance_arn=names.instance_arn(PLACE, names.DEFAULT_CLUSTER, "0" * 32),
            task_definition_arn=names.definition_arn(PLACE, "web", 1),
            containers=render.containers_of(definition, PLACE, names.DEFAULT_CLUSTER, task_id, (task_id,)),
            attachments=(),
            availability_zone=f"{REGION}a",
            cpu="128",
            memory="256",
            created_at=time.time(),
            started_at=time.time(),
            desired_status="RUNNING",
            last_status="RUNNING",
            enable_execute_command=False,
            group="family:web",
            launch_type="EC2",
            overrides=ecs.TaskOverride(container_overrides=(), inference_accelerator_overrides=()),
            version=3,
        )
        record = TaskRecord(region=REGION, cluster=names.DEFAULT_CLUSTER, id=task_id, task=task, account=ACCOUNT)
        made.append(records.put(records.tasks, record, REGION, names.DEFAULT_CLUSTER, task_id))
    await records.commit([], made)
    await nursery.close()
    await store.close()


def run(seconds: float = SECONDS) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        directory = Path(scratch)
        with control_plane(directory / "data") as (subject, port):
            for what, (operation, body) in bodies().items():
                data = request(operation, body, port, subject.key())
                measure(port, data, 0.3)  # caches fill, the interpreter specialises its code
                before = subject.cpu_seconds()
                rate, size = measure(port, data, seconds)
                spent = subject.cpu_seconds() - before
                with constant_server(size) as bare:
                    floor, _ = measure(bare, request(operation, body, bare, subject.key()), seconds)
                rows.append(
                    {
                        "what": what,
                        "requests/s": round(rate),
                        "floor/s": round(floor),
                        "budget/s": BUDGETS[what],
                        "server CPU (us each)": round(spent / (rate * seconds) * 1e6),
                        "answer (bytes)": size,
                    }
                )
        # Registering is durable when it is answered: the disk's own pace, with as many rows at once, bounds it too.
        durable = bare_commits(directory / "floor.db", Durability.FULL, CLIENTS, seconds)
        rows.append({"what": f"bare SQLite, {CLIENTS} rows a commit", "requests/s": round(durable)})
    return rows


if __name__ == "__main__":
    from bench.__main__ import show

    show((__doc__ or "").partition("\n")[0], run())
