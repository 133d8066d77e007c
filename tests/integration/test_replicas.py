"""Three control planes over one etcd, under load, while they are killed, cut off and robbed of their store.

Clients and simulated agents use all three. Each harm is done while tasks are being run and services kept; afterwards
nothing that was accepted may be missing, no task may have been started on two hosts or twice for one request, no host
may have held more than it has, and every agent must be back.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cut import Wire
from etcd import PrivateEtcd
from event_follower import Follower
from fleet_agent import FleetAgent, Key
from node import Role, free_port
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import Credentials
from sexton.control.leader import LEASE_SECONDS
from sexton.store.contract import Store, StoreError
from sexton.store.opening import open_store
from sexton.wire import ecs
from sexton.wire.errors import EcsError

AGENTS = 6
CLIENTS = 6
TASK_MEMORY = 256
HOST_MEMORY = 400
"""Room for one task of the load beside the service's, so that the control planes want the same room all the time."""

PATIENCE = 60.0
LATE = 6.0
"""Seconds that etcd may take to notice the end of a lease, and a loaded machine to notice etcd."""

PREFIX = "/replicas"
TIMES = 3 if os.environ.get("SEXTON_SOAK") else 1


async def until(true: Any, what: str, seconds: float = PATIENCE) -> float:
    """Wait until something holds; how long that took."""
    begun = time.monotonic()
    while True:
        found = true()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return time.monotonic() - begun
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.05)


class ReplicaProcess:
    """One ``sexton control`` with a wire of its own to etcd."""

    def __init__(self, number: int, root: Path, wire: Wire) -> None:
        self.wire = wire
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.data = root / f"control-{number}"
        environment = {"PATH": os.environ["PATH"], "HOME": str(root)}
        for passed_on in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            if passed_on in os.environ:
                environment[passed_on] = os.environ[passed_on]
        self.role = Role(
            "control",
            root / f"control-{number}.log",
            [
                *("--data-dir", str(self.data), "--listen", f"127.0.0.1:{self.port}"),
                *("--store", f"etcd://127.0.0.1:{wire.port}{PREFIX}"),
            ],
            environment | {"SEXTON_SERVICE_SETTLE": "1s"},
        )

    async def healthy(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http,
                http.get(f"{self.endpoint}/health") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def key(self) -> Credentials:
        found = json.loads((self.data / "keys.json").read_text())["keys"][0]
        return Credentials(found["access_key_id"], found["secret_access_key"])


class Cluster:
    """Three replicas, their etcd, and whoever uses them."""

    def __init__(self, etcd: PrivateEtcd, replicas: list[ReplicaProcess], http: aiohttp.ClientSession) -> None:
        self.etcd = etcd
        self.replicas = replicas
        self.agents: list[FleetAgent] = []
        self.accepted: dict[str, str] = {}  # client token -> task
        self.unknown: set[str] = set()
        self._http = http

    def client(self, number: int = 0) -> EcsClient:
        order = self.replicas[number % 3 :] + self.replicas[: number % 3]
        key = Key(self.replicas[0].key())
        return EcsClient(",".join(one.endpoint for one in order), "us-east-1", key, self._http)

    def one(self, replica: ReplicaProcess) -> EcsClient:
        return EcsClient(replica.endpoint, "us-east-1", Key(replica.key()), self._http)

    async def insist(self, client: EcsClient, operation: str, request: Any) -> Any:
        while True:
            try:
                async with asyncio.timeout(20):
                    return await client.call(operation, request)
            except (Unreachable, TimeoutError):
                await asyncio.sleep(0.05)
            except EcsError as error:
                if error.status < 500:
                    raise
                await asyncio.sleep(0.05)

    async def load(self, number: int) -> None:
        """Run one task after the other, each request until it is answered, wherever that may be."""
        client = self.client(number)
        while True:
            token = uuid.uuid4().hex
            request = ecs.RunTaskRequest(cluster="default", task_definition="short", client_token=token)
            self.unknown.add(token)
            answer = await self.insist(client, "RunTask", request)
            self.unknown.discard(token)
            if answer.tasks:
                assert len(answer.tasks) == 1
                self.accepted[token] = answer.tasks[0].task_arn
            else:
                await asyncio.sleep(0.1)  # no room for now

    async def grow(self, by: int) -> None:
        wanted = len(self.accepted) + by
        await until(lambda: len(self.accepted) >= wanted, f"{by} more tasks accepted")

    async def service_has(self, count: int) -> None:
        """The service comes to rest at so many tasks, as every healthy replica sees it."""

        async def settled() -> bool:
            for replica in self.replicas:
                if not replica.role.running or not await replica.healthy():
                    continue
                answer = await self.insist(
                    self.one(replica), "DescribeServices", ecs.DescribeServicesRequest(services=("kept",))
                )
                if answer.services[0].running_count != count:
                    return False
            return True

        await until(settled, f"the service at {count}")

    async def scale(self, count: int) -> None:
        request = ecs.UpdateServiceRequest(service="kept", desired_count=count)
        await self.insist(self.client(), "UpdateService", request)
        await self.service_has(count)

    async def all_connected(self) -> None:
        async def connected() -> bool:
            if not all(one.connected_to for one in self.agents):
                return False
            answer = await self.insist(
                self.client(1),
                "DescribeContainerInstances",
                ecs.DescribeContainerInstancesRequest(container_instances=tuple(one.arn for one in self.agents)),
            )
            return all(one.agent_connected for one in answer.container_instances)

        await until(connected, "every agent connected")


async def leader(store: Store) -> str:
    try:
        record = await store.get("leader")
    except StoreError:
        return ""
    return record.value.decode() if record else ""


def whose(name: str, replicas: list[ReplicaProcess]) -> ReplicaProcess | None:
    pid = name.split("-")[-2] if name.count("-") >= 2 else ""
    return next((one for one in replicas if one.role.running and str(one.role.pid) == pid), None)


@asynccontextmanager
async def replicated(root: Path) -> AsyncIterator[tuple[Cluster, Store]]:
    async with AsyncExitStack() as stack:
        etcd = stack.enter_context(PrivateEtcd(root / "etcd"))
        replicas = []
        for number in range(3):
            wire = await stack.enter_async_context(Wire(etcd.members[0].port))
            replicas.append(ReplicaProcess(number, root, wire))
        for one in replicas:
            stack.callback(one.role.kill)
            one.role.start()
        for one in replicas:
            await until(one.healthy, f"a control plane to answer: {one.role.log[-2000:]}")
        http = await stack.enter_async_context(aiohttp.ClientSession())
        store = await open_store(f"{etcd.url}{PREFIX}")
        stack.push_async_callback(store.close)
        cluster = Cluster(etcd, replicas, http)
        working: list[asyncio.Task[None]] = []

        async def stop() -> None:
            for task in working:
                task.cancel()
            results = await asyncio.gather(*working, return_exceptions=True)
            assert [one for one in results if not isinstance(one, asyncio.CancelledError)] == []

        stack.push_async_callback(stop)
        for name, memory in (("short", TASK_MEMORY), ("long", 64)):
            container = ecs.ContainerDefinition(name="main", image="busybox", memory=memory)
            request = ecs.RegisterTaskDefinitionRequest(
                family=name, network_mode="none", container_definitions=(container,)
            )
            await cluster.insist(cluster.client(), "RegisterTaskDefinition", request)
        for number in range(AGENTS):
            order = replicas[number % 3 :] + replicas[: number % 3]
            endpoints, key = [one.endpoint for one in order], replicas[0].key()
            agent = FleetAgent(f"agent-{number}", endpoints, key, lifetime=0.3, kept="long", memory=HOST_MEMORY)
            cluster.agents.append(agent)
            working.append(asyncio.ensure_future(agent.run()))
        await cluster.all_connected()
        request = ecs.CreateServiceRequest(service_name="kept", task_definition="long", desired_count=2)
        await cluster.insist(cluster.client(), "CreateService", request)
        await cluster.service_has(2)
        hosts = [one.endpoint.removeprefix("http://") for one in replicas]
        follower = Follower(hosts, replicas[0].key())
        working.append(asyncio.ensure_future(follower.run()))
        loads = [asyncio.ensure_future(cluster.load(number)) for number in range(CLIENTS)]
        working += loads
        await cluster.grow(20)
        yield cluster, store
        await cluster.grow(20)
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        for task in loads:
            working.remove(task)
        await check(cluster, follower)


async def check(cluster: Cluster, follower: Follower) -> None:
    """What must be true after all harm."""
    await cluster.all_connected()
    tasks = list(cluster.accepted.values())
    assert len(set(tasks)) == len(tasks), "one task answers two requests"

    for replica in cluster.replicas:
        client = cluster.one(replica)

        async def ended(client: EcsClient = client) -> bool:
            for start in range(0, len(tasks), 100):
                request = ecs.DescribeTasksRequest(tasks=tuple(tasks[start : start + 100]))
                answer = await cluster.insist(client, "DescribeTasks", request)
                assert not answer.failures, "an accepted task is lost"
                if any(one.last_status != "STOPPED" for one in answer.tasks):
                    return False
            return True

        await until(ended, "every accepted task to have run and ended")
    finals: dict[str, int] = {}
    for start in range(0, len(tasks), 100):
        request = ecs.DescribeTasksRequest(tasks=tuple(tasks[start : start + 100]))
        answer = await cluster.insist(cluster.client(), "DescribeTasks", request)
        finals |= {one.task_arn: one.version for one in answer.tasks}
    await until(
        lambda: all(len(follower.versions.get(arn, ())) >= version for arn, version in finals.items()),
        "the stream to tell of every task's end",
    )
    follower.check(finals)
    started = [arn for agent in cluster.agents for arn in agent.started]
    assert len(set(started)) == len(started), "a task was started on two hosts"
    assert set(tasks) <= set(started)
    for agent in cluster.agents:
        assert agent.most_memory <= agent.memory, "a host was given more than it has"


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_nothing_accepted_is_lost_or_doubled_whatever_happens_to_three_control_planes(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (cluster, store):
        for _ in range(TIMES):
            # The leader dies.
            await until(lambda: whose_leads(cluster, store), "a leader")
            first = await leader(store)
            victim = whose(first, cluster.replicas)
            assert victim is not None
            victim.role.kill()

            async def another(first: str = first) -> bool:
                return await leader(store) not in ("", first)

            waited = await until(another, "another leader")
            assert waited <= LEASE_SECONDS + LATE
            await cluster.scale(3)
            await cluster.all_connected()
            victim.role.start()
            await until(victim.healthy, "the killed control plane to be back")
            await cluster.grow(10)

            # One is cut off from the store: its agents go where they are heard.
            lost = next(one for one in cluster.replicas if one is not victim)
            lost.wire.cut()
            await until(lambda lost=lost: not_healthy(lost), "the one that is cut off to say so")
            refused = await answer_of(cluster, lost)
            assert refused.status == 503
            assert "store is away" in refused.message
            await until(
                lambda lost=lost: all(
                    one.connected_to and lost.endpoint not in one.connected_to for one in cluster.agents
                ),
                "its agents elsewhere",
            )
            await cluster.grow(10)
            lost.wire.mend()
            await until(lost.healthy, "the one that was cut off to be well again")

            # The store itself is away, for everybody.
            cluster.etcd.members[0].kill()
            await asyncio.sleep(2.0)
            cluster.etcd.start()
            await cluster.grow(10)
            await cluster.scale(2)
            assert all(one.role.running for one in cluster.replicas)


async def whose_leads(cluster: Cluster, store: Store) -> bool:
    return whose(await leader(store), cluster.replicas) is not None


async def not_healthy(replica: ReplicaProcess) -> bool:
    return not await replica.healthy()


async def answer_of(cluster: Cluster, replica: ReplicaProcess) -> EcsError:
    """The refusal of a change by a control plane that has lost its store."""
    try:
        await cluster.one(replica).call("CreateCluster", ecs.CreateClusterRequest(cluster_name="refused"))
    except EcsError as error:
        return error
    raise AssertionError("a change was accepted without a store")
