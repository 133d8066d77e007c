"""Tasks with a network of their own, on a real engine: what they see, what they reach, and what is left of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nethosts import inside, run
from node import until
from sexton.wire.network import Group, Rule
from vpcagent import CLOSED, OPEN, VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

FAR_MAC = "0a:99:00:00:00:01"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpcAgent]:
    settings = {"ECS_AWSVPC_BLOCK_IMDS": "true", "SEXTON_BRIDGE_BLOCK_IMDS": "true"}
    with VpcAgent(tmp_path_factory.mktemp("vpc"), environment=settings) as agent:
        yield agent


@pytest.fixture
def clean(host: VpcAgent) -> Iterator[VpcAgent]:
    """The host without tasks, before and after."""
    yield host
    running = sorted(
        {int(one.body["task"][-24:], 16) for one in host.plane.reports if one.body.get("status") == "RUNNING"}
        | {int(one.task_arn[-24:], 16) for one in host.interfaces}
    )
    host.stop(*running)
    host.until_told("STOPPED", *running)
    host.networks()
    until(lambda: not host.devices() and not host.routers(), "no task's network is left")


def listens(namespace: str, port: int) -> socket.socket:
    with inside(namespace):
        return socket.create_server(("0.0.0.0", port))


def reaches(namespace: str, address: str, port: int, seconds: float = 1.0) -> bool:
    with inside(namespace), socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.settimeout(seconds)
        try:
            client.connect((address, port))
        except OSError:
            return False
        return True


def test_a_task_has_its_own_network_and_is_judged_by_its_groups(clean):
    host = clean
    one, two = host.interface(5, ipv6=True), host.interface(6, ipv6=True, groups=("sg-closed",))
    host.networks(one, two)
    both = host.task(5, "sleep 3600 & wait", "sleep 3600 & wait")
    host.plane.payload(both, host.task(6))
    host.until_told("RUNNING", 5, 6)

    link = json.loads(host.in_task(5, "ip", "-json", "addr", "show", "eth0"))[0]
    addresses = {one["local"] for one in link["addr_info"] if one["scope"] == "global"}
    assert (addresses, link["address"]) == ({"10.77.0.5", "fd77::5"}, "0a:77:00:00:00:05")
    assert host.space_of(5) != host.space_of(6)
    assert "10.77.0.5\tip-10-77-0-5.ec2.internal" in host.exec(5, "cat", "/etc/hosts")
    assert "10.77.0.5" in host.exec(5, "sh", "-c", "ping -c1 -W2 $(hostname)")
    servers = [line.split()[1] for line in host.exec(5, "cat", "/etc/resolv.conf").splitlines() if "nameserver" in line]
    assert not any(one.startswith(("127.", "::1")) for one in servers)
    assert "blackhole 169.254.169.254" in host.in_task(5, "ip", "route")
    # Both containers of the task share it; nothing but the task's own containers looks like one.
    spaces = {os.stat(host.space_of(5, name)).st_ino for name in ("main", "main1")}
    assert len(spaces) == 1
    assert len(host.containers()) == 3

    servers = [listens(host.space_of(number), 8080) for number in (5, 6)]
    assert reaches(host.space_of(6), "10.77.0.5", 8080)
    assert not reaches(host.space_of(5), "10.77.0.6", 8080, 0.3)
    assert not reaches(host.space_of(6), "10.77.0.77", 8080, 0.3)
    assert host.exec(5, "ping", "-6", "-c1", "-W2", "fd77::5")

    # A change of the groups reaches both within a second.
    host.groups = (
        OPEN,
        Group(
            id="sg-closed",
            vpc="vpc-1",
            ingress=(Rule(id="web", protocol="tcp", from_port=8080, to_port=8080, group="sg-open"),),
        ),
    )
    host.networks(*host.interfaces, wait=False)
    until(lambda: reaches(host.space_of(5), "10.77.0.6", 8080, 0.1), "the new rule is in force", 5.0)
    assert not reaches(host.space_of(6), "10.77.0.5", 8080, 0.3)  # nothing out any more
    host.groups = (OPEN, CLOSED)
    for one in servers:
        one.close()


def test_what_holds_a_tasks_network_has_no_rights_and_is_no_container_of_it(clean):
    host = clean
    host.run(26)
    name = next(one for one in host.sandboxes() if "-task-" in one)
    shown = json.loads(host.engine.call("GET", f"/containers/{name}/json"))
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{shown['State']['Pid']}/status").read_text().splitlines()
    )
    rights = [int(status[one], 16) for one in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    assert rights == [0] * 5 and status["NoNewPrivs"] == "1" and status["Uid"].split()[0] != "0"
    assert not any(one.startswith("com.amazonaws.ecs") for one in shown["Config"]["Labels"])

    url = host.exec(26, "sh", "-c", "echo $ECS_CONTAINER_METADATA_URI_V4").strip()
    assert [one["Name"] for one in asks(host, 26, f"{url}/task")[1]["Containers"]] == ["main"]
    (running,) = [
        one.body
        for one in host.plane.reports
        if (one.body["task"], one.body.get("status")) == (host.arn(26), "RUNNING")
    ]
    assert [one["containerName"] for one in running["containers"]] == ["main"]


def test_a_task_reaches_outside_as_its_host_and_the_host_its_task(clean):
    host = clean
    host.run(7)
    outside = listens(host.namespace.path, 9090)
    with inside(host.space_of(7)):
        client = socket.create_connection(("10.98.0.2", 9090), timeout=5)
    served, peer = outside.accept()
    for one in (client, served, outside):
        one.close()
    assert peer[0].startswith("169.254.")

    server = listens(host.space_of(7), 8080)
    assert reaches(host.namespace.path, "10.77.0.7", 8080, 3.0)
    server.close()


def test_a_restarted_agent_takes_up_networks_and_the_helper_may_die_at_any_time(clean):
    host = clean
    host.run(8)
    device = host.devices()
    host.agent.kill()
    server = listens(host.space_of(8), 8080)
    assert reaches(host.namespace.path, "10.77.0.8", 8080)  # in force while no agent runs
    server.close()
    host.start_agent()
    until(lambda: host.plane.told(host.arn(8)), "it is known again")
    assert host.devices() == device
    host.networks(*host.interfaces)
    for number in (9, 10, 11):
        for pid in helpers(host):
            os.kill(pid, signal.SIGKILL)
        host.run(number)
    assert len(host.devices()) == 4
    assert host.plane.told(host.arn(8)).count("RUNNING") >= 1 and "STOPPED" not in host.plane.told(host.arn(8))


def asks(host: VpcAgent, number: int, url: str) -> tuple[int, dict]:
    """What a program in a task's network gets from its endpoint; (0, {}) when nobody is there."""
    address, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address, 80, timeout=5)
    with contextlib.closing(connection):
        try:
            with inside(host.space_of(number)):
                connection.connect()
        except OSError:
            return 0, {}
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if answer.status == 200 else {}


def test_a_task_reaches_its_endpoint_by_its_own_door_and_no_other(clean):
    host = clean
    host.run(17, 18)
    url = host.exec(17, "sh", "-c", "echo $ECS_CONTAINER_METADATA_URI_V4").strip()
    status, body = asks(host, 17, f"{url}/task")

    assert (status, body["TaskARN"]) == (200, host.arn(17))
    assert body["Containers"][0]["Networks"][0]["IPv4Addresses"] == ["10.77.0.17"]
    assert asks(host, 18, f"{url}/task") == (404, {})  # with a name that got out
    assert asks(host, 18, "http://169.254.170.2/v2/metadata")[1]["TaskARN"] == host.arn(18)
    host.agent.kill()
    host.start_agent()
    until(lambda: asks(host, 17, f"{url}/task")[0] == 200, "its door is open again")


def test_the_metadata_service_is_closed_to_bridged_tasks_where_that_is_wanted(clean):
    host = clean
    with inside(host.namespace.path):
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    host.plane.payload(host.task(23, mode="bridge"))
    host.until_told("RUNNING", 23)

    assert not reaches(host.space_of(23), "169.254.169.254", 80, 0.3)
    rules = host.namespace.run("nft", "list", "table", "inet", f"sexton-{host.tag}-metadata")
    counted = next(line for line in rules.splitlines() if "ip daddr 169.254.169.254" in line)
    assert "packets 0 " not in counted and "drop" in counted


def helpers(host: VpcAgent) -> list[int]:
    """Helper processes of this agent."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == host.agent.pid and b"network_worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_a_sandbox_that_somebody_removes_ends_its_task_with_that_reason(clean):
    host = clean
    host.run(12)
    name = next(one for one in host.sandboxes() if host.arn(12).rpartition("/")[2] in one)
    host.engine.call("DELETE", f"/containers/{name}?force=1")
    host.until_told("STOPPED", 12)

    assert "what held the task's network has ended" in host.reason(12)


def test_what_cannot_be_wired_says_why_and_leaves_nothing(clean):
    host = clean
    other = host.task(13)
    other["elasticNetworkInterfaces"][0]["interfaceAssociationProtocol"] = "vlan"
    host.plane.payload(other, host.task(14))  # nobody ever described the network of 14
    host.until_told("STOPPED", 13, 14)

    assert "serves no trunk or branch interfaces" in host.reason(13)
    assert host.reason(14).startswith("ContainerNetworkingError: ")
    assert "did not describe interface" in host.reason(14)
    until(lambda: not [one for one in host.sandboxes() if "-task-" in one], "no sandbox is left")


def test_tasks_run_where_other_hosts_are_not_reached_until_they_are(clean):
    """Here because somebody else has a tunnel of that number."""
    host = clean
    host.namespace.run("ip", "link", "add", "stranger", "type", "vxlan", "id", "77", "dstport", "4789", "nolearning")
    elsewhere = msgspec.structs.replace(host.interface(28), host="10.98.0.9")
    host.networks(host.interface(27), elsewhere)
    host.plane.payload(host.task(27))
    host.until_told("RUNNING", 27)
    assert "tasks of other hosts are not reached" in host.agent.log
    assert "network 77 has a tunnel on this host already" in host.agent.log
    (router,) = host.routers()

    def tunnels() -> list[str]:
        shown = json.loads(run("ip", "-json", "link", within=("nsenter", f"--net=/run/netns/{router}")))
        return [one["ifname"] for one in shown if one["ifname"].startswith("v")]

    assert tunnels() == []
    host.namespace.run("ip", "link", "delete", "stranger")
    until(lambda: tunnels() == ["v77"], "the tunnel is made when it can be")

    # What is known to be there is not looked at for every change; that it is gone does no harm either.
    run("ip", "link", "delete", "v77", within=("nsenter", f"--net=/run/netns/{router}"))
    host.networks(host.interface(27), elsewhere, msgspec.structs.replace(host.interface(29), host="10.98.0.9"))
    assert tunnels() == ["v77"] and "networks cannot be brought in line" not in host.agent.log
    host.networks(host.interface(27))


def announced(host: VpcAgent, number: int, mac: str, wait_ms: int) -> None:
    host.plane.say(
        "AttachTaskNetworkInterfacesMessage",
        messageId=f"attach-{number}",
        clusterArn="default",
        containerInstanceArn=host.instance,
        taskArn=host.arn(number),
        taskClusterArn="default",
        waitTimeoutMs=wait_ms,
        elasticNetworkInterfaces=[{"macAddress": mac, "ec2Id": "eni-a", "attachmentArn": f"arn:attachment/{number}"}],
    )
    until(lambda: host.plane.acknowledged(f"attach-{number}"), "it is acknowledged")


def test_a_device_of_the_host_is_found_confirmed_and_given_to_its_task(clean):
    """As on Amazon ECS; the device is one end of a pair whose other end plays the VPC."""
    host = clean
    announced(host, 20, FAR_MAC, 60_000)
    host.namespace.run("ip", "link", "add", "ens9", "address", FAR_MAC, "type", "veth", "peer", "vpc9")
    host.namespace.run("ip", "addr", "add", "10.66.0.1/24", "dev", "vpc9")
    host.namespace.run("ip", "link", "set", "vpc9", "up")
    confirmed = until(
        lambda: [
            one.body for one in host.plane.reports if one.body.get("attachments") and one.body["task"] == host.arn(20)
        ],
        "the device is confirmed",
    )
    assert confirmed[0]["attachments"] == [{"attachmentArn": "arn:attachment/20", "status": "ATTACHED"}]
    assert "status" not in confirmed[0] and confirmed[0]["task"] == host.arn(20)

    task = host.task(20)
    task["elasticNetworkInterfaces"] = [
        {
            "ec2Id": "eni-0123456789abcdef0",
            "macAddress": FAR_MAC,
            "attachmentArn": "arn:attachment/20",
            "ipv4Addresses": [{"privateAddress": "10.66.0.5", "primary": True}],
            "subnetGatewayIpv4Address": "10.66.0.1/24",
            "privateDnsName": "ip-10-66-0-5.ec2.internal",
            "domainNameServers": ["10.66.0.2"],
        }
    ]
    host.plane.payload(task)
    host.until_told("RUNNING", 20)
    assert host.exec(20, "ping", "-c1", "-W2", "10.66.0.1")
    url = host.exec(20, "sh", "-c", "echo $ECS_CONTAINER_METADATA_URI_V4").strip()
    assert asks(host, 20, f"{url}/task")[1]["TaskARN"] == host.arn(20)
    assert host.exec(20, "hostname").strip() == "ip-10-66-0-5.ec2.internal"
    assert host.exec(20, "cat", "/etc/resolv.conf") == "nameserver 10.66.0.2\n"

    host.plane.payload(task | {"desiredStatus": "STOPPED"})
    host.until_told("STOPPED", 20)
    until(lambda: FAR_MAC in host.namespace.run("ip", "link"), "the device is back on the host")
    host.namespace.run("ip", "link", "delete", "vpc9")


def test_a_device_that_never_comes_ends_in_a_clear_reason(clean):
    host = clean
    announced(host, 21, "0a:99:00:00:00:02", 300)
    until(lambda: "interface did not appear in time" in host.agent.log, "it is given up")
    task = host.task(22)
    task["elasticNetworkInterfaces"][0] |= {
        "interfaceAssociationProtocol": "default",
        "macAddress": "0a:99:00:00:00:03",
    }
    host.plane.payload(task)
    host.until_told("STOPPED", 22)

    assert "no device of this host has the hardware address 0a:99:00:00:00:03" in host.reason(22)
    assert not [one for one in host.plane.reports if one.body.get("task") == host.arn(21)]
