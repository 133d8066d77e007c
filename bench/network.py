"""Tasks with a network of their own: launch beside mode none on the same engine, and the way of their packets.

Launches of both modes take turns in one run, with more and more tasks beside them, and a burst larger than the pool of
warm sandboxes at the end. Packets go between two tasks of one host through the router that judges them, with few and
with many rules, beside a plain bridge between two bare namespaces. Everything is in network namespaces of its own.
Run: ``python -m bench.network``, or only some of it: ``python -m bench.network launches bursts packets changes``
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from images import IMAGE
from nethosts import Lab, Namespace, inside
from nethosts import run as command

TURNS = 15
BESIDE = (0, 10, 50, 200)
BURST = 20
RULES = (1, 10, 500)
SECONDS = 1.0
ROUND_TRIPS = 3000
ROUNDS = 3
CHUNK = 1 << 20


class Tasks:
    """Tasks of one host in either mode."""

    def __init__(self, lab: Lab) -> None:
        self._ecs, self.ec2 = lab.client("ecs"), lab.client("ec2")
        self.subnet = self.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
        for mode in ("none", "awsvpc"):
            self._ecs.register_task_definition(
                family=mode,
                networkMode=mode,
                containerDefinitions=[
                    {"name": "main", "image": IMAGE, "memory": 6, "command": ["sleep", "100000"], "stopTimeout": 0}
                ],
            )

    def launch(self, mode: str, count: int = 1, groups: tuple[str, ...] = ()) -> tuple[float, list[dict[str, Any]]]:
        """Seconds from the first one's acceptance to the last one's RUNNING, by the control plane's clock."""
        arns: list[str] = []
        chosen = {"subnets": [self.subnet]} | ({"securityGroups": [*groups]} if groups else {})
        for start in range(0, count, 10):
            network = {"networkConfiguration": {"awsvpcConfiguration": chosen}} if mode == "awsvpc" else {}
            answer = self._ecs.run_task(taskDefinition=mode, count=min(10, count - start), **network)
            assert not answer["failures"], answer["failures"]
            arns += [one["taskArn"] for one in answer["tasks"]]
        while True:
            tasks = self._described(arns)
            if all(one["lastStatus"] == "RUNNING" for one in tasks):
                break
            assert not any(one["lastStatus"] == "STOPPED" for one in tasks), tasks
            time.sleep(0.02)
        took = max(one["startedAt"] for one in tasks) - min(one["createdAt"] for one in tasks)
        return took.total_seconds(), tasks

    def stop(self, tasks: list[dict[str, Any]]) -> None:
        arns = [one["taskArn"] for one in tasks]
        for arn in arns:
            self._ecs.stop_task(task=arn)
        while any(one["lastStatus"] != "STOPPED" for one in self._described(arns)):
            time.sleep(0.02)

    def _described(self, arns: list[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for start in range(0, len(arns), 100):
            found += self._ecs.describe_tasks(tasks=arns[start : start + 100])["tasks"]
        return found


def launches(lab: Lab, tasks: Tasks) -> list[dict[str, Any]]:
    rows = []
    beside: list[dict[str, Any]] = []
    for count in BESIDE:
        if count > len(beside):
            beside += tasks.launch("awsvpc", count - len(beside))[1]
        time.sleep(2.0)  # the pool is full again
        times: dict[str, list[float]] = {"none": [], "awsvpc": []}
        for _ in range(TURNS):
            for mode, seen in times.items():
                took, made = tasks.launch(mode)
                seen.append(took)
                tasks.stop(made)
                time.sleep(0.5)
        rows.append(_launch_row(f"one task, {count} running", times))
    tasks.stop(beside)
    return rows


def bursts(lab: Lab, tasks: Tasks) -> list[dict[str, Any]]:
    """More at once than there are warm sandboxes: each of the others costs the engine one container more."""
    seen_of: dict[str, list[float]] = {"none": [], "awsvpc": []}
    for _ in range(ROUNDS):
        for mode, seen in seen_of.items():
            took, made = tasks.launch(mode, BURST)
            seen.append(took)
            tasks.stop(made)
            time.sleep(2.0)
    return [_launch_row(f"{BURST} tasks at once, pool of 4", seen_of)]


def _launch_row(what: str, times: dict[str, list[float]]) -> dict[str, Any]:
    none, own = (statistics.median(times[mode]) for mode in ("none", "awsvpc"))
    return {
        "what": what,
        "none (ms)": round(none * 1000, 1),
        "awsvpc (ms)": round(own * 1000, 1),
        "ratio": round(own / none, 3),
    }


def throughput(client: str, server: str, address: str, port: int) -> float:
    """Bytes a second that one connection carries."""
    with inside(server):
        listening = socket.create_server((address, port))
    reader = os.fork()
    if reader == 0:
        served, _ = listening.accept()
        buffer = bytearray(CHUNK)
        while served.recv_into(buffer):
            pass
        os._exit(0)
    listening.close()
    with inside(client):
        sending = socket.create_connection((address, port), timeout=10)
    with sending:
        chunk, sent, began = bytes(CHUNK), 0, time.perf_counter()
        while (took := time.perf_counter() - began) < SECONDS:
            sending.sendall(chunk)
            sent += len(chunk)
    os.waitpid(reader, 0)
    return sent / took


def latency(client: str, server: str, address: str, port: int) -> float:
    """Seconds of a datagram's way there and back, the middle one of many."""
    with inside(server):
        echoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        echoing.bind((address, port))
    with inside(client):
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asking.connect((address, port))
    echo = os.fork()
    if echo == 0:
        while True:
            data, peer = echoing.recvfrom(100)
            if data == b"end":
                os._exit(0)
            echoing.sendto(data, peer)
    asking.settimeout(5)
    times = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        asking.send(b"x")
        asking.recv(100)
        times.append(time.perf_counter() - began)
    asking.send(b"end")
    os.waitpid(echo, 0)
    asking.close()
    echoing.close()
    return statistics.median(times)


@contextlib.contextmanager
def plain_bridge() -> Iterator[tuple[str, str, str]]:
    """Two bare namespaces on a bridge in a third: the floor."""
    name = f"sb{os.getpid() % 0xFFFF:04x}"
    spaces = [Namespace(f"{name}{letter}") for letter in "abc"]
    try:
        middle, *ends = spaces
        middle.run("ip", "link", "add", "plain", "type", "bridge")
        middle.run("ip", "link", "set", "plain", "up")
        for number, end in enumerate(ends, start=1):
            middle.run("ip", "link", "add", f"p{number}", "type", "veth", "peer", "eth0", "netns", end.name)
            middle.run("ip", "link", "set", f"p{number}", "master", "plain", "up")
            command("ip", "addr", "add", f"10.97.0.{number}/24", "dev", "eth0", within=end.within)
            command("ip", "link", "set", "eth0", "mtu", "1430", "up", within=end.within)
        yield ends[0].path, ends[1].path, "10.97.0.2"
    finally:
        for one in spaces:
            one.close()


def _rule_of_nobody(number: int) -> dict[str, Any]:
    port, block = 1024 + number, f"172.20.{number % 250}.0/24"
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": block}]}


def packets(lab: Lab, tasks: Tasks) -> list[dict[str, Any]]:
    host = lab.hosts[0]
    vpc = tasks.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    ways: dict[str, tuple[str, str, str]] = {}
    made: list[dict[str, Any]] = []
    for rules in RULES:
        group = tasks.ec2.create_security_group(GroupName=f"bench-{rules}", Description="bench", VpcId=vpc)["GroupId"]
        others = [_rule_of_nobody(number) for number in range(rules - 1)]
        allowed = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        for start in range(0, len(others), 100):
            tasks.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=others[start : start + 100])
        tasks.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[allowed])
        _, pair = tasks.launch("awsvpc", 2, (group,))
        made += pair
        spaces = [host.task_namespace(one["taskArn"]) for one in pair]
        ways[f"{rules} rules"] = (*spaces, pair[1]["containers"][0]["networkInterfaces"][0]["privateIpv4Address"])
    rows = []
    with plain_bridge() as floor:
        ways = {"plain bridge": floor, **ways}
        seen: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in ways}
        for turn in range(ROUNDS):
            for what, (client, server, address) in ways.items():
                seen[what][0].append(throughput(client, server, address, 6000 + turn))
                seen[what][1].append(latency(client, server, address, 7000 + turn))
    tasks.stop(made)
    fast, quick = (statistics.median(one) for one in seen["plain bridge"])
    for what, (rates, times) in seen.items():
        rate, way = statistics.median(rates), statistics.median(times)
        rows.append(
            {
                "what": f"packets, {what}",
                "Gbit/s": round(rate * 8 / 1e9, 2),
                "of the bridge's": round(rate / fast, 3),
                "round trip (us)": round(way * 1e6, 1),
                "times the bridge's": round(way / quick, 3),
            }
        )
    return rows


def changes(lab: Lab, tasks: Tasks, count: int = 200) -> list[dict[str, Any]]:
    """How long a change of a group takes to reach many tasks, until a packet sees it."""
    vpc = tasks.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    group = tasks.ec2.create_security_group(GroupName="bench-change", Description="bench", VpcId=vpc)["GroupId"]
    _, made = tasks.launch("awsvpc", count, (group,))
    host = lab.hosts[0]
    client, server = (host.task_namespace(made[at]["taskArn"]) for at in (0, -1))
    address = made[-1]["containers"][0]["networkInterfaces"][0]["privateIpv4Address"]
    with inside(server):
        listening = socket.create_server((address, 6500), backlog=100)
    times = []
    permission = [{"IpProtocol": "tcp", "FromPort": 6500, "ToPort": 6500, "UserIdGroupPairs": [{"GroupId": group}]}]
    for _ in range(5):
        began = time.perf_counter()
        tasks.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=permission)
        while True:
            with inside(client), socket.socket() as trying:
                trying.settimeout(0.02)
                with contextlib.suppress(OSError):
                    trying.connect((address, 6500))
                    break
        times.append(time.perf_counter() - began)
        tasks.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=permission)
        time.sleep(1.0)
    listening.close()
    tasks.stop(made)
    return [{"what": f"a rule's way to {count} tasks", "ms": round(statistics.median(times) * 1000, 1)}]


PARTS = {"launches": launches, "bursts": bursts, "packets": packets, "changes": changes}


def run(parts: Sequence[str] = tuple(PARTS)) -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    settings = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s", "ECS_RESERVED_MEMORY": "0"}
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, Lab(Path(scratch), 1, settings) as lab:
        tasks = Tasks(lab)
        tasks.stop(tasks.launch("awsvpc")[1])  # the first one of all makes the pool
        time.sleep(2.0)
        return [row for part in parts for row in PARTS[part](lab, tasks)]


if __name__ == "__main__":
    from bench.__main__ import show

    show((__doc__ or "").partition("\n")[0], run(sys.argv[1:] or tuple(PARTS)))
