"""The metadata file of a container: there before it starts, true after each start, gone with its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sexton.agent.metadata.file import MetadataFiles, Sources
from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.sights import Sights
from sexton.core.enginebody import engine_name
from sexton.core.sight import Place
from sexton.runtime.contract import Unavailable
from sexton.wire import acs_task
from unit.agent.rig import CLUSTER, IMAGE, INSTANCE, Host, arn, container, task, until

NAMES = Names(b"k" * 32)


class Filed(Host):
    """A host whose containers get files below a directory."""

    def __init__(self, root: Path, *, selinux: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.root = root
        self._selinux = selinux

    def files(self) -> MetadataFiles:
        place = Place(CLUSTER, zone="rack-7", private_ipv4="192.0.2.1")
        sources = Sources(INSTANCE, NAMES.of_file, Sights(self.runtime).of, lambda: place)
        return MetadataFiles(self.root, sources, self.work, selinux=self._selinux)

    def file(self, container: str = "app", number: int = 1) -> Path:
        return self.root / "metadata" / f"{number:032x}" / container / "ecs-container-metadata.json"

    def read(self, container: str = "app") -> dict[str, Any]:
        return json.loads(self.file(container).read_text()) if self.file(container).exists() else {}

    def ready(self, container: str = "app") -> bool:
        return self.read(container).get("MetadataFileStatus") == "READY"


FIRST = {
    "Cluster": CLUSTER,
    "ContainerInstanceARN": INSTANCE,
    "TaskARN": arn(),
    "TaskDefinitionFamily": "web",
    "TaskDefinitionRevision": "1",
    "ContainerName": "app",
    "AvailabilityZone": "rack-7",
    "HostPrivateIPv4Address": "192.0.2.1",
}


async def test_the_file_is_there_before_the_start_and_whole_after_it(tmp_path: Path) -> None:
    async with Filed(tmp_path) as host:
        gate = host.runtime.hold("start")
        mapping = acs_task.PortMapping(container_port=80, protocol="tcp")
        ranged = acs_task.PortMapping(container_port_range="90-92", protocol="udp")
        await host.engine.take([task(1, container(port_mappings=(mapping, ranged)))], 1)
        await until(lambda: host.known().runtime_id != "")
        assert host.read() == FIRST
        gate.open()
        await until(host.ready)
        info = host.only()
        assert host.read() == FIRST | {
            "ContainerID": info.id,
            "DockerContainerName": engine_name(task(), "app"),
            "ImageID": info.image_id,
            "ImageName": IMAGE,
            "PortMappings": [
                {"ContainerPort": 80, "HostPort": 23000, "BindIp": "0.0.0.0", "Protocol": "tcp"},
                {"ContainerPortRange": "90-92", "HostPort": 23001, "BindIp": "0.0.0.0", "Protocol": "udp"},
            ],
            "Networks": [{"NetworkMode": "bridge", "IPv4Addresses": ["172.17.0.3"]}],
            "MetadataFileStatus": "READY",
        }
        assert '{\n\t"Cluster": "default",\n' in host.file().read_text()
        assert (host.file().stat().st_mode & 0o777, host.file().parent.stat().st_mode & 0o777) == (0o644, 0o755)


@pytest.mark.parametrize(("selinux", "suffix"), [(False, ":ro"), (True, ":ro,Z")])
async def test_only_its_own_directory_is_mounted(tmp_path: Path, selinux: bool, suffix: str) -> None:
    async with Filed(tmp_path, selinux=selinux) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        inside = f"/opt/ecs/metadata/{NAMES.of_file(arn(), 'app')}"
        binds = host.runtime.body(host.only().id)["HostConfig"]["Binds"]
        assert binds == [f"{host.file().parent}:{inside}{suffix}"]


async def test_a_restart_of_the_agent_between_start_and_file_is_made_good(tmp_path: Path) -> None:
    async with Filed(tmp_path) as host:
        host.runtime.fail("inspect", Unavailable("away"), times=3)
        await host.engine.take([task()], 1)
        await host.until_running()
        assert not host.ready()
        await host.restart()
        await until(host.ready)


async def test_a_container_that_is_started_again_has_its_new_address(tmp_path: Path) -> None:
    async with Filed(tmp_path) as host:
        policy = acs_task.RestartPolicy(enabled=True, restart_attempt_period=0)
        await host.engine.take([task(1, container(restart_policy=policy))], 1)
        await until(host.ready)
        host.file().write_text("{}")
        host.runtime.exit(host.only().id, 1)
        await until(host.ready)


async def test_files_go_with_their_task(tmp_path: Path) -> None:
    async with Filed(tmp_path, cleanup_wait=1.0) as host:
        await host.engine.take([task(1), task(2)], 1)
        await until(host.ready)
        host.engine.stop([arn(1)], "over")
        await until(lambda: not host.file().parent.parent.exists())
        assert host.file(number=2).exists()


async def test_what_a_killed_agent_left_is_removed_at_start(tmp_path: Path) -> None:
    left = tmp_path / "metadata" / ("f" * 32) / "app"
    left.mkdir(parents=True)
    (left / "ecs-container-metadata.json").write_text("{}")
    async with Filed(tmp_path) as host:
        assert not left.parent.exists()
        await host.engine.take([task()], 1)
        await until(host.ready)
        await host.restart()
        assert host.ready()


async def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    async with Filed(tmp_path / "data") as host:
        names = ("..", "../../x", "a/b")
        await host.engine.take([task(1, *(container(name) for name in names))], 1)
        await host.until_running()
        made = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
        assert len(made) == 3 and all(path.startswith(f"data/metadata/{1:032x}/") for path in made)


async def test_a_file_that_cannot_be_written_costs_the_task_nothing(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("in the way")
    async with Filed(tmp_path) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        assert host.runtime.body(host.only().id)["HostConfig"]["Binds"] == []
