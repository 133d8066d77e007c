"""Many hosts of one VPC: how long until each of them knows of a new rule, and of a task that starts on one of them.

Every host is an agent's connection without an engine; each has one task with an interface in the same subnet and group.
All agents share one process and take their time from the same cores as the control plane. A row is from the request to
the last host's message. Run: ``python -m bench.vpc``, with other sizes ``python -m bench.vpc 10 1000``
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import boto3

from bench.fleet import CPU, MEMORY, PATIENCE, Fleet, _open_many_files, _say, process
from bench.subject import REGION, Client, Subject, free_port, running
from sexton.cloud.credentials import Credentials
from sexton.wire import network

SIZES = (100, 1000)
AT_ONCE = 10
TURNS = 5
QUIET_SECONDS = 1.0
BUDGET = 1000  # ms, in which a change is in force


class Hosts(Fleet):
    """Agents that make interfaces themselves. Remembers which hosts have heard of what is waited for."""

    def __init__(self, endpoint: str, key: Credentials, cluster: str) -> None:
        super().__init__(endpoint, key, cluster)
        self.arns: list[str] = []
        self._heard: set[str] = set()
        self._all_heard = asyncio.Event()
        self._bytes = 0
        self._heard_at = 0.0

    async def serve(self, count: int, said: Connection) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as self._session:
            lives = [asyncio.ensure_future(self._member(number)) for number in range(count)]
            while self.connected < count:
                await asyncio.sleep(0.02)
                for one in lives:
                    if one.done():
                        one.result()
            await self._settled()
            said.send(self.arns)
            loop = asyncio.get_running_loop()
            while (order := await loop.run_in_executor(None, said.recv)) != "end":
                await self._settled()
                self._bytes = 0
                self._heard.clear()
                self._all_heard.clear()
                said.send("listening")
                if order == "listen":
                    async with asyncio.timeout(PATIENCE):
                        await self._all_heard.wait()
                    said.send((time.perf_counter(), self._bytes))
            for one in lives:
                one.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    async def _member(self, number: int) -> None:
        attributes = [
            {"name": "com.amazonaws.ecs.capability.docker-remote-api.1.18"},
            {"name": "ecs.capability.task-eni"},
            {"name": network.CAPABILITY, "value": network.VERSION},
            {"name": network.ADDRESS, "value": f"192.0.{number // 250}.{number % 250 + 1}"},
        ]
        resources = [
            {"name": "CPU", "type": "INTEGER", "integerValue": CPU},
            {"name": "MEMORY", "type": "INTEGER", "integerValue": MEMORY},
            {"name": "PORTS", "type": "STRINGSET", "stringSetValue": []},
            {"name": "PORTS_UDP", "type": "STRINGSET", "stringSetValue": []},
        ]
        answer = await self.call(
            "RegisterContainerInstance", cluster=self._cluster, attributes=attributes, totalResources=resources
        )
        arn = answer["containerInstance"]["containerInstanceArn"]
        where = await self.call("DiscoverPollEndpoint", cluster=self._cluster, containerInstance=arn)
        acs = {"clusterArn": self._cluster, "containerInstanceArn": arn, "sendCredentials": "true", "seqNum": "1"}
        async with self._socket(where["endpoint"], acs) as socket:
            self.arns.append(arn)
            self.connected += 1
            async for frame in socket:
                message = json.loads(frame.data)
                if message["type"] == "SextonNetworkMessage":
                    self._hear(arn, len(frame.data))
                if message["type"] in ("SextonNetworkMessage", "PayloadMessage"):
                    sent = message["message"]["messageId"]
                    await _say(socket, "AckRequest", cluster=self._cluster, containerInstance=arn, messageId=sent)
                    for task in message["message"].get("tasks", ()):
                        await self._report(task["arn"])

    def _hear(self, arn: str, size: int) -> None:
        self._bytes += size
        self._heard.add(arn)
        self._heard_at = time.perf_counter()
        if len(self._heard) == self.connected:
            self._all_heard.set()

    async def _settled(self) -> None:
        """Wait until nobody has heard anything for a while."""
        while time.perf_counter() - self._heard_at < QUIET_SECONDS:
            await asyncio.sleep(0.05)


def hosts(endpoint: str, key: Credentials, cluster: str, count: int, said: Connection) -> None:
    """The agents' process."""
    _open_many_files()

    async def serve() -> None:
        await Hosts(endpoint, key, cluster).serve(count, said)

    asyncio.run(serve())


def measure(port: int, key: Credentials, count: int, subject: Subject) -> list[dict[str, Any]]:
    client = Client(port, key)
    ec2 = boto3.client(
        "ec2",
        region_name=REGION,
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
    )
    client.call("CreateCluster", clusterName="vpc")
    container = {"name": "main", "image": "none", "cpu": 10, "memory": 16}
    client.call("RegisterTaskDefinition", family="vpc", networkMode="awsvpc", containerDefinitions=[container])
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]

    def start(arns: list[str]) -> list[dict[str, Any]]:
        where = {"awsvpcConfiguration": {"subnets": [subnet]}}
        answer = client.call(
            "StartTask", cluster="vpc", taskDefinition="vpc", containerInstances=arns, networkConfiguration=where
        )
        assert not answer["failures"], answer["failures"]
        return list(answer["tasks"])

    def open_port(turn: int) -> None:
        port = 5000 + turn
        permission = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])

    with process(hosts, f"http://127.0.0.1:{port}", key, "vpc", count) as fleet:
        arns = fleet.recv()
        for at in range(0, count, AT_ONCE):
            start(arns[at : at + AT_ONCE])
        rows = []
        for what, change in (("a rule", open_port), ("a task that starts", lambda turn: start([arns[turn]]))):
            taken, cost, sent = [], 0.0, 0
            for turn in range(TURNS):
                fleet.send("listen")
                fleet.recv()
                cost -= subject.cpu_seconds()
                began = time.perf_counter()
                change(turn)
                at, size = fleet.recv()
                taken.append(at - began)
                sent += size
                fleet.send("settle")
                fleet.recv()
                cost += subject.cpu_seconds()
            taken.sort()
            rows.append(
                {
                    "hosts": count,
                    "what": what,
                    "middle (ms)": round(taken[TURNS // 2] * 1000),
                    "longest (ms)": round(taken[-1] * 1000),
                    "control plane CPU (ms)": round(cost / TURNS * 1000),
                    "sent (KB)": round(sent / TURNS / 1000),
                }
            )
    return rows


def run(sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """The rows of this benchmark, each size with a control plane of its own."""
    rows = []
    _open_many_files()
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
            port = free_port()
            with running("control", Path(scratch), "--listen", f"127.0.0.1:{port}") as subject:
                subject.wait_port(port)
                rows += measure(port, subject.key(), count, subject)
    rows.append({"what": "budget", "longest (ms)": f"< {BUDGET}"})
    return rows


def main() -> int:
    from bench.__main__ import show

    show((__doc__ or "").partition("\n")[0], run([int(one) for one in sys.argv[1:]] or SIZES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
