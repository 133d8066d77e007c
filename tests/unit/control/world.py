"""A control plane's inside without a port: operations by name over records in a real store.

Requests and answers are plain JSON, as a client writes and reads them. Time stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from sexton.control.context import Call, Context, over
from sexton.control.dispatch import OPERATIONS, check
from sexton.control.records import Records
from sexton.kit.supervise import Nursery
from sexton.store.contract import Durability, Store
from sexton.store.opening import open_store
from sexton.wire import ecs

REGION = "us-east-1"
ACCOUNT = "123456789012"
NOW = 1_800_000_000.0

Json = dict[str, Any]


class World:
    """One control plane: its records, its context, and a clock."""

    def __init__(self, store: Store, context: Context) -> None:
        self.store = store
        self.context = context
        self.records = context.records
        self.now = NOW

    async def do(self, operation: str, **fields: Any) -> Json:
        """One request, validated as the dispatcher does."""
        shape = ecs.OPERATIONS[operation].request
        request = msgspec.json.decode(msgspec.json.encode(fields), type=shape)
        check(operation, request)
        call = Call(REGION, "AKSXEXAMPLE", self.now)
        answer = await OPERATIONS[operation](self.context, call, request)
        return msgspec.json.decode(msgspec.json.encode(answer))

    async def define(self, family: str = "web", **fields: Any) -> str:
        """Register a definition with one container; its ARN."""
        container = {"name": "main", "image": "busybox", "memory": 100, "cpu": 100} | fields.pop("container", {})
        answer = await self.do(
            "RegisterTaskDefinition",
            family=family,
            containerDefinitions=[container],
            **({"networkMode": "none"} | fields),
        )
        return answer["taskDefinition"]["taskDefinitionArn"]

    async def join(
        self, *, connected: bool = True, cpu: int = 1000, memory: int = 1000, offers: Sequence[str] = (), **fields: Any
    ) -> str:
        """Register a container instance with capacity, as connected; its ARN. It ``offers`` more attributes."""
        names = ("com.amazonaws.ecs.capability.docker-remote-api.1.18", *offers)
        attributes = [dict(zip(("name", "value"), one.split("=", 1), strict=False)) for one in names]
        answer = await self.do(
            "RegisterContainerInstance",
            attributes=attributes,
            totalResources=[
                {"name": "CPU", "type": "INTEGER", "integerValue": cpu},
                {"name": "MEMORY", "type": "INTEGER", "integerValue": memory},
                {"name": "PORTS", "type": "STRINGSET", "stringSetValue": ["22"]},
                {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []},
            ],
            **fields,
        )
        arn = answer["containerInstance"]["containerInstanceArn"]
        if connected:
            await self.connect(arn)
        return arn

    async def connect(self, arn: str, *, connected: bool = True) -> None:
        from sexton.control.ops import instances

        call = Call(REGION, "", self.now)
        await instances.change(self.context, call, arn.split("/")[1], arn, agent_connected=connected)

    async def run(self, definition: str = "web", **fields: Any) -> Json:
        return await self.do("RunTask", taskDefinition=definition, **fields)

    async def run_one(self, definition: str = "web", **fields: Any) -> str:
        """Run one task; its ARN."""
        answer = await self.run(definition, **fields)
        assert answer["failures"] == []
        return answer["tasks"][0]["taskArn"]

    async def report(self, task: str, status: str, **fields: Any) -> None:
        await self.do("SubmitTaskStateChange", task=task, status=status, **fields)

    async def ended(self, task: str, code: int = 0) -> None:
        """Report that the task's only container exited."""
        main = {"containerName": "main", "status": "STOPPED", "exitCode": code}
        await self.report(task, "STOPPED", containers=[main])

    async def task(self, arn: str) -> Json:
        answer = await self.do("DescribeTasks", tasks=[arn])
        assert answer["failures"] == []
        return answer["tasks"][0]

    async def instance(self, arn: str) -> Json:
        answer = await self.do("DescribeContainerInstances", containerInstances=[arn])
        return answer["containerInstances"][0]


@asynccontextmanager
async def open_world(
    directory: Path, cluster: bool = True, durability: Durability = Durability.FULL
) -> AsyncIterator[World]:
    """A world over the store file in a directory; opened again it goes on where it was."""
    store = await open_store(f"sqlite://{directory / 'control.db'}", durability=durability)
    try:
        async with world_over(store) as world:
            if cluster:
                await world.do("CreateCluster")
            yield world
    finally:
        await store.close()


class Gate:
    """Holds back a store's transactions that write under a prefix until it is opened."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._txn = store.txn
        self._prefix = prefix
        store.txn = self._pass

    async def _pass(self, compares: Any, writes: Any) -> Any:
        if any(write.key.startswith(self._prefix) for write in writes):
            self.reached.set()
            await self.opened.wait()
        return await self._txn(compares, writes)


_replicas = itertools.count()


@asynccontextmanager
async def world_over(store: Store) -> AsyncIterator[World]:
    """One of any number of control planes over one store."""
    records = Records(store)
    context = over(records, ACCOUNT)._replace(endpoint="http://127.0.0.1:7070")
    nursery = Nursery(f"world-{next(_replicas)}")
    await records.start(nursery)
    try:
        yield World(store, context)
    finally:
        await nursery.close()
