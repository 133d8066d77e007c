"""Everything a container definition can say arrives in the engine: registered by a stock client, run for real, read
back from the engine's own description or from inside the container.

A few tasks carry all fields together, so that the table below costs lookups and no tasks of its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import PrivateEngine
from images import build_busybox
from node import CGROUPS, Node, until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]

Json = dict[str, Any]
MIB = 1024 * 1024

# Writes what only the inside knows, as KEY=VALUE lines, and then serves until it is told to end.
INSIDE = r"""
trap 'exit 9' TERM
{
  echo "uid=$(id -u):$(id -g)"; echo "pwd=$(pwd)"; echo "hostname=$(hostname)"; echo "env=$COLOUR"
  echo "nofile=$(ulimit -Sn):$(ulimit -Hn)"; echo "argument=$1"; echo "pid1=$(cat /proc/1/comm)"
  echo "caps=$(sed -n 's/^CapBnd:[^0-9a-f]*//p' /proc/self/status)"
  echo "nnp=$(sed -n 's/^NoNewPrivs:[^0-9]*//p' /proc/self/status)"
  echo "scratch=$(grep ' /scratch ' /proc/mounts)"; echo "shm=$(df -k /dev/shm | tail -1 | awk '{print $2}')"
  echo "somaxconn=$(cat /proc/sys/net/core/somaxconn)"; echo "resolv=$(tr '\n' ' ' < /etc/resolv.conf)"
  echo "hosts=$(tr '\n' ' ' < /etc/hosts)"; test -c /dev/nothing && echo "device=yes"
  touch /root-is-writable 2>/dev/null || echo "root=read-only"; test -t 0 && echo "stdin=tty"
} > /out/inside.part
mv /out/inside.part /out/inside
while :; do sleep 1 & wait; done
"""


# Every engine has this one beside its default, so it can stand for the vendor's.
NVIDIA = "io.containerd.runc.v2"
GPUS = ("GPU-0af51ba4", "GPU-1bf51ba4", "GPU-2cf51ba4")


class Ran:
    """What became of the tasks: the engine's description by container, what was said inside, and the API's view."""

    def __init__(self) -> None:
        self.inspected: dict[str, Json] = {}
        self.inside: dict[str, str] = {}
        self.tasks: dict[str, Json] = {}
        self.ecs: Any = None

    def at(self, container: str, path: str) -> Any:
        found: Any = self.inspected[container]
        for part in path.split("."):
            found = found[part]
        return found


def _everything(image: str, folder: Path) -> Json:
    app = {
        "name": "app",
        "image": image,
        "cpu": 64,
        "memory": 64,
        "memoryReservation": 32,
        "user": "1000:1001",
        "entryPoint": ["sh", "-c", INSIDE, "inside"],
        "command": ["an argument"],
        "workingDirectory": "/tmp",
        "hostname": "seven",
        "environment": [{"name": "COLOUR", "value": "blue = green"}],
        "dockerLabels": {"team": "graves"},
        "ulimits": [{"name": "nofile", "softLimit": 100, "hardLimit": 200}],
        "linuxParameters": {
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["MKNOD"]},
            "devices": [{"hostPath": "/dev/zero", "containerPath": "/dev/nothing", "permissions": ["read", "mknod"]}],
            "initProcessEnabled": os.path.exists("/usr/bin/docker-init")
            or os.path.exists("/usr/libexec/docker/docker-init"),
            "sharedMemorySize": 16,
            "tmpfs": [{"containerPath": "/scratch", "size": 8, "mountOptions": ["noexec", "mode=1777"]}],
            "maxSwap": 16,
            "swappiness": 20,
        },
        "systemControls": [{"namespace": "net.core.somaxconn", "value": "77"}],
        "dockerSecurityOptions": ["no-new-privileges"],
        "readonlyRootFilesystem": True,
        "dnsServers": ["192.0.2.53"],
        "dnsSearchDomains": ["grave.example"],
        "extraHosts": [{"hostname": "elsewhere", "ipAddress": "192.0.2.7"}],
        "logConfiguration": {"logDriver": "json-file", "options": {"max-size": "1m", "max-file": "2"}},
        "pseudoTerminal": True,
        "interactive": True,
        "stopTimeout": 3,
        "startTimeout": 60,
        "healthCheck": {"command": ["CMD-SHELL", "test -e /out/inside"], "interval": 5, "timeout": 4, "retries": 2},
        "portMappings": [
            {"containerPort": 80},
            {"containerPort": 53, "protocol": "udp"},
            {"containerPortRange": "7000-7003"},
        ],
        "mountPoints": [
            {"sourceVolume": "out", "containerPath": "/out"},
            {"sourceVolume": "out", "containerPath": "/ro", "readOnly": True},
        ],
    }
    other = {
        "name": "other",
        "image": image,
        "memoryReservation": 16,
        "stopTimeout": 1,
        "links": ["app:peer"],
        "volumesFrom": [{"sourceContainer": "app", "readOnly": True}],
        "dependsOn": [{"containerName": "app", "condition": "HEALTHY"}],
        "command": ["sh", "-c", "cat /etc/hosts > /dev/console; sleep 1000"],
    }
    return {
        "family": "everything",
        "networkMode": "bridge",
        "cpu": "512",
        "memory": "256",
        "volumes": [{"name": "out", "host": {"sourcePath": str(folder)}}],
        "containerDefinitions": [other, app],
    }


def _on_host(image: str) -> Json:
    plain = {"image": image, "memory": 16, "stopTimeout": 1, "command": ["sleep", "1000"]}
    return {
        "family": "on-host",
        "networkMode": "host",
        "pidMode": "host",
        "ipcMode": "host",
        "containerDefinitions": [plain | {"name": "host", "portMappings": [{"containerPort": 7999}]}],
    }


def _alone(image: str) -> Json:
    plain = {"image": image, "memory": 16, "stopTimeout": 1, "command": ["sleep", "1000"], "disableNetworking": True}
    return {
        "family": "alone",
        "networkMode": "none",
        "ipcMode": "none",
        "containerDefinitions": [plain | {"name": "alone"}],
    }


def _privileged(image: str) -> Json:
    plain = {"image": image, "memory": 16, "stopTimeout": 1, "command": ["sleep", "1000"]}
    return {
        "family": "privileged",
        "networkMode": "none",
        "containerDefinitions": [plain | {"name": "privileged", "privileged": True}],
    }


def _on_gpus(image: str) -> Json:
    plain = {"image": image, "memory": 16, "stopTimeout": 1, "command": ["sleep", "1000"]}
    two = {"resourceRequirements": [{"type": "GPU", "value": "2"}]}
    return {
        "family": "on-gpus",
        "networkMode": "none",
        "containerDefinitions": [plain | two | {"name": "train"}, plain | {"name": "beside"}],
    }


@pytest.fixture(scope="module")
def ran(engine_session: PrivateEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    image = build_busybox(engine_session.url, "sexton/fields:1")
    folder = tmp_path_factory.mktemp("fields")
    folder.chmod(0o777)
    inventory = tmp_path_factory.mktemp("gpus") / "gpus.json"
    inventory.write_text(json.dumps({"DriverVersion": "535.183.01", "GPUIDs": GPUS}))
    settings = {
        "ECS_CGROUP_CPU_PERIOD": "50ms",
        "ECS_TASK_PIDS_LIMIT": "321",
        "ECS_ENABLE_GPU_SUPPORT": "true",
        "ECS_NVIDIA_RUNTIME": NVIDIA,
        "SEXTON_GPU_INFO": str(inventory),
    }
    root = tmp_path_factory.mktemp("node")
    with Node(root, engine_session.url, leave_nothing=True, environment=settings) as node:
        ecs, ran = node.ecs(), Ran()
        arns = {}
        everything = _everything(image, folder)
        for definition in (everything, _on_host(image), _alone(image), _privileged(image), _on_gpus(image)):
            ecs.register_task_definition(**definition)
            answer = ecs.run_task(taskDefinition=definition["family"])
            assert answer["tasks"], answer["failures"]
            arns[answer["tasks"][0]["taskArn"]] = definition["family"]

        def up() -> bool:
            found = ecs.describe_tasks(tasks=list(arns))["tasks"]
            ran.tasks = {arns[one["taskArn"]]: one for one in found}
            # Where the machine itself may not do everything, neither may a container: made is enough there.
            runs = [one for one in found if arns[one["taskArn"]] != "privileged"]
            assert all(one["lastStatus"] != "STOPPED" for one in runs), [one["containers"] for one in runs]
            return all(one["lastStatus"] == "RUNNING" for one in runs) and all(
                one["lastStatus"] != "PENDING" for one in found
            )

        until(up, "every task runs", 60.0)
        for row in node.containers():
            name = row["Labels"]["com.amazonaws.ecs.container-name"]
            ran.inspected[name] = json.loads(engine_session.call("GET", f"/containers/{row['Id']}/json"))
        pairs = (line.split("=", 1) for line in (folder / "inside").read_text().splitlines() if "=" in line)
        ran.inside = dict(pairs)
        ran.inside["cgroup"] = _limits(ran.tasks["everything"]["taskArn"].rpartition("/")[2])
        ran.ecs = ecs
        yield ran
        assert node.terminate() == [0]
        assert node.containers() == []


def _limits(task_id: str) -> str:
    """What the kernel holds the task's own cgroup to: cores, bytes, the quota's period, processes."""
    quota, limit = CGROUPS / "cpu/ecs" / task_id, CGROUPS / "memory/ecs" / task_id
    if quota.exists():
        cores = int((quota / "cpu.cfs_quota_us").read_text()) / int((quota / "cpu.cfs_period_us").read_text())
        period = (quota / "cpu.cfs_period_us").read_text().strip()
        memory = (limit / "memory.limit_in_bytes").read_text().strip()
        return f"{cores:g} {memory} {period} {_pids(CGROUPS / 'pids/ecs' / task_id)}"
    wide, period = (CGROUPS / "ecs" / task_id / "cpu.max").read_text().split()
    below = CGROUPS / "ecs" / task_id
    return f"{int(wide) / int(period):g} {(below / 'memory.max').read_text().strip()} {period} {_pids(below)}"


def test_gpus_are_given_by_id_shown_and_counted(ran: Ran) -> None:
    train, beside = sorted(ran.tasks["on-gpus"]["containers"], key=lambda one: str(one["name"]), reverse=True)
    assert (train["gpuIds"], "gpuIds" in beside) == (list(GPUS[:2]), False)
    visible = f"NVIDIA_VISIBLE_DEVICES={GPUS[0]},{GPUS[1]}"
    assert visible in ran.at("train", "Config.Env") and visible not in ran.at("beside", "Config.Env")
    (instance,) = ran.ecs.describe_container_instances(
        containerInstances=[ran.tasks["on-gpus"]["containerInstanceArn"]]
    )["containerInstances"]
    left = next(one for one in instance["remainingResources"] if one["name"] == "GPU")
    assert (left["type"], left["stringSetValue"]) == ("STRINGSET", [GPUS[2]])
    assert {"name": "ecs.capability.gpu-driver-version", "value": "535.183.01"} in instance["attributes"]
    (failure,) = ran.ecs.run_task(taskDefinition="on-gpus")["failures"]
    assert failure["reason"] == "RESOURCE:GPU"


def _pids(place: Path) -> str:
    return (place / "pids.max").read_text().strip()


def test_health_is_seen_by_clients(ran: Ran) -> None:
    def healthy() -> bool:
        (task,) = ran.ecs.describe_tasks(tasks=[ran.tasks["everything"]["taskArn"]])["tasks"]
        by_name = {one["name"]: one.get("healthStatus") for one in task["containers"]}
        return (task["healthStatus"], by_name["app"]) == ("HEALTHY", "HEALTHY")

    until(healthy, "the task is healthy", 15.0)


INSPECTED = [
    ("app", "Config.User", "1000:1001"),
    ("app", "Config.Entrypoint", ["sh", "-c", INSIDE, "inside"]),
    ("app", "Config.Cmd", ["an argument"]),
    ("app", "Config.WorkingDir", "/tmp"),
    ("app", "Config.Hostname", "seven"),
    ("app", "Config.Labels.team", "graves"),
    ("app", "Config.Tty", True),
    ("app", "Config.OpenStdin", True),
    ("app", "Config.Healthcheck.Test", ["CMD-SHELL", "test -e /out/inside"]),
    ("app", "Config.Healthcheck.Interval", 5_000_000_000),
    ("app", "Config.Healthcheck.Timeout", 4_000_000_000),
    ("app", "Config.Healthcheck.Retries", 2),
    ("app", "HostConfig.Ulimits", [{"Name": "nofile", "Hard": 200, "Soft": 100}]),
    ("app", "HostConfig.CapAdd", ["NET_ADMIN"]),
    ("app", "HostConfig.CapDrop", ["MKNOD"]),
    (
        "app",
        "HostConfig.Devices",
        [{"PathOnHost": "/dev/zero", "PathInContainer": "/dev/nothing", "CgroupPermissions": "rm"}],
    ),
    ("app", "HostConfig.ShmSize", 16 * MIB),
    ("app", "HostConfig.Tmpfs", {"/scratch": "size=8m,noexec,mode=1777"}),
    ("app", "HostConfig.Memory", 64 * MIB),
    ("app", "HostConfig.MemoryReservation", 32 * MIB),
    ("app", "HostConfig.CpuShares", 64),
    ("app", "HostConfig.Sysctls", {"net.core.somaxconn": "77"}),
    ("app", "HostConfig.SecurityOpt", ["no-new-privileges"]),
    ("app", "HostConfig.ReadonlyRootfs", True),
    ("app", "HostConfig.Dns", ["192.0.2.53"]),
    ("app", "HostConfig.DnsSearch", ["grave.example"]),
    ("app", "HostConfig.ExtraHosts", ["elsewhere:192.0.2.7"]),
    ("app", "HostConfig.LogConfig", {"Type": "json-file", "Config": {"max-file": "2", "max-size": "1m"}}),
    ("app", "HostConfig.NetworkMode", "bridge"),
    ("app", "HostConfig.Privileged", False),
    ("app", "State.Health.Status", "healthy"),
    ("privileged", "HostConfig.Privileged", True),
    ("other", "HostConfig.Memory", 0),
    ("other", "HostConfig.MemoryReservation", 16 * MIB),
    ("other", "HostConfig.CpuShares", 2),
    ("host", "HostConfig.NetworkMode", "host"),
    ("host", "HostConfig.PidMode", "host"),
    ("host", "HostConfig.IpcMode", "host"),
    ("alone", "HostConfig.NetworkMode", "none"),
    ("alone", "HostConfig.IpcMode", "none"),
    ("alone", "Config.NetworkDisabled", True),
    ("train", "HostConfig.Runtime", NVIDIA),
    ("beside", "HostConfig.Runtime", "runc"),
]


@pytest.mark.parametrize(("container", "path", "value"), INSPECTED)
def test_engine_was_told(ran: Ran, container: str, path: str, value: Any) -> None:
    assert ran.at(container, path) == value


SEEN = [
    ("uid", r"1000:1001"),
    ("pwd", r"/tmp"),
    ("hostname", r"seven"),
    ("env", r"blue = green"),
    ("argument", r"an argument"),
    ("nofile", r"100:200"),
    ("nnp", r"1"),
    ("scratch", r".*tmpfs.*noexec.*size=8192k.*"),
    ("shm", r"16384"),
    ("somaxconn", r"77"),
    ("resolv", r".*search grave\.example.*nameserver 192\.0\.2\.53.*"),
    ("hosts", r".*192\.0\.2\.7\s+elsewhere.*"),
    ("device", r"yes"),
    ("root", r"read-only"),
    ("cgroup", rf"0\.5 {256 * MIB} 50000 321"),
]


@pytest.mark.parametrize(("what", "pattern"), SEEN)
def test_inside_it_is_so(ran: Ran, what: str, pattern: str) -> None:
    assert re.fullmatch(pattern, ran.inside.get(what, "")), ran.inside


def test_capabilities_are_added_and_dropped(ran: Ran) -> None:
    net_admin, mknod, net_raw = 12, 27, 13
    held = int(ran.inside["caps"], 16)
    assert held >> net_admin & 1 and held >> net_raw & 1 and not held >> mknod & 1


def test_first_process_is_the_engines_own_when_it_is_asked_for(ran: Ran) -> None:
    if ran.at("app", "HostConfig.Init"):
        assert ran.inside["pid1"] in ("docker-init", "tini")


def test_swap_is_limited_where_the_kernel_can(ran: Ran) -> None:
    if (CGROUPS / "memory/memory.memsw.limit_in_bytes").exists():
        assert ran.at("app", "HostConfig.MemorySwap") == (64 + 16) * MIB
    assert ran.at("app", "HostConfig.MemorySwappiness") in (20, None)  # v2 and some kernels have no such thing


def test_container_is_below_its_tasks_cgroup(ran: Ran) -> None:
    task_id = ran.tasks["everything"]["taskArn"].rpartition("/")[2]
    assert ran.at("app", "HostConfig.CgroupParent") == f"/ecs/{task_id}"


def test_other_containers_are_known_by_link_and_give_their_volumes(ran: Ran) -> None:
    name = ran.at("app", "Name")
    assert ran.at("other", "HostConfig.Links") == [f"{name}:{ran.at('other', 'Name')}/peer"]
    assert ran.at("other", "HostConfig.VolumesFrom") == [f"{name[1:]}:ro"]
    assert {one["Destination"]: one["RW"] for one in ran.at("other", "Mounts")} == {"/out": False, "/ro": False}
    assert ran.at("app", "State.StartedAt") < ran.at("other", "Created")


def test_volumes_are_mounted_as_they_are_asked_for(ran: Ran) -> None:
    assert {one["Destination"]: one["RW"] for one in ran.at("app", "Mounts")} == {"/out": True, "/ro": False}


def test_ports_are_published_and_reported(ran: Ran) -> None:
    bound = next(one for one in ran.tasks["everything"]["containers"] if one["name"] == "app")["networkBindings"]
    tcp = next(one for one in bound if one.get("containerPort") == 80)
    udp = next(one for one in bound if one.get("containerPort") == 53)
    row = next(one for one in bound if "containerPortRange" in one)
    assert (tcp["protocol"], udp["protocol"], row["containerPortRange"]) == ("tcp", "udp", "7000-7003")
    first, last = (int(port) for port in row["hostPortRange"].split("-"))
    assert last - first == 3
    published = ran.at("app", "NetworkSettings.Ports")
    assert published["80/tcp"][0]["HostPort"] == str(tcp["hostPort"])
    assert published["53/udp"][0]["HostPort"] == str(udp["hostPort"])
    assert [published[f"{7000 + n}/tcp"][0]["HostPort"] for n in range(4)] == [str(first + n) for n in range(4)]
    with socket.create_connection(("127.0.0.1", first + 3), timeout=5):
        pass  # the engine listens there


def test_in_host_mode_no_port_is_bound_and_none_reported(ran: Ran) -> None:
    assert ran.tasks["on-host"]["containers"][0].get("networkBindings", []) == []
