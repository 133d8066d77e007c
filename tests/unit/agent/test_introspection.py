"""Introspection: the shapes of Amazon's agent, word for word where they are captured, and Prometheus' text beside."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sexton.agent import introspection as module
from sexton.agent.groups import Groups
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.introspection import Introspection, keep_listening
from sexton.agent.metadata.sights import Sights
from sexton.agent.metrics import Metrics
from sexton.agent.session import Session
from sexton.agent.stats import MIB, CgroupStats, Subject
from sexton.agent.telemetry import Telemetry
from sexton.agent.use import Use
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo
from unit.agent.rig import CLUSTER, INSTANCE, Host, arn, container, task
from unit.agent.test_stats import sent, v1

DATA = Path(__file__).parents[2] / "data"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Asked:
    """A host with introspection on a port."""

    def __init__(self, host: Host, port: int, stats: CgroupStats) -> None:
        self.host = host
        self.port = port
        self.stats = stats

    async def get(self, path: str, method: str = "GET") -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{self.port}{path}") as answer,
        ):
            body = await answer.read()
            is_json = answer.content_type == "application/json" and body
            return answer.status, msgspec.json.decode(body) if is_json else body.decode()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    async with Host() as host:
        info = EngineInfo(name="fake", version="1", api_version="1.41")
        health = InstanceHealth(host.runtime)
        stats = CgroupStats(tmp_path, cores=1, proc=tmp_path / "proc")
        nobody: Any = None
        session = Session(
            nobody,
            nobody,
            nobody,
            host.context.identity,
            "us-east-1",
            info,
            host.engine,
            host.checkpoint,
            host.context.supplies.roles,
        )
        telemetry = Telemetry(nobody, nobody, nobody, host.context, "r", info, host.engine, stats, health)
        groups = Groups(host.context.cgroups, info.cgroup_driver)
        use = Use(host.context.identity, host.engine, groups, stats.counters, 1, tmp_path / "proc")
        metrics = Metrics(host.context, host.engine, session, telemetry, host.reporter, stats, health, use.look)
        nursery = Nursery("introspection")
        port = free_port()
        handler = Introspection(host.context.identity, host.engine, Sights(host.runtime), metrics)
        nursery.start("listen", keep_listening(handler, "127.0.0.1", port))
        made = Asked(host, port, stats)
        try:
            async with asyncio.timeout(10):
                while not await _answers(port):
                    await asyncio.sleep(0.01)
            yield made
        finally:
            await nursery.close()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def captured(name: str) -> Any:
    return msgspec.json.decode((DATA / f"introspection_{name}.json").read_bytes())


async def test_metadata_has_the_fields_of_amazons_agent(asked: Asked) -> None:
    status, answer = await asked.get("/v1/metadata")
    assert status == 200 and answer.keys() == captured("metadata").keys()
    assert (answer["Cluster"], answer["ContainerInstanceArn"]) == (CLUSTER, INSTANCE)
    assert (await asked.get("/v1/metadata", "HEAD")) == (200, "")


async def test_tasks_have_the_fields_of_amazons_agent(asked: Asked) -> None:
    await asked.host.engine.take([task(1, container("web"), container("side", essential=False))], 1)
    await asked.host.until_running()
    _, answer = await asked.get("/v1/tasks")
    (ours,) = answer["Tasks"]
    theirs = captured("tasks")["Tasks"][0]
    assert ours.keys() == theirs.keys()
    # Theirs has a mount of the metadata file, which is not there yet.
    assert ours["Containers"][0].keys() == theirs["Containers"][0].keys() - {"Volumes"}
    assert (ours["Arn"], ours["DesiredStatus"], ours["KnownStatus"]) == (arn(), "RUNNING", "RUNNING")
    assert ours["Containers"][0]["DockerName"].startswith("ecs-web-1-web-")
    assert ours["Containers"][0]["ImageID"].startswith("sha256:")
    assert ours["Containers"][0]["CreatedAt"].endswith("Z")


async def test_one_task_by_arn_and_by_container(asked: Asked) -> None:
    await asked.host.engine.take([task(1), task(2)], 1)
    await asked.host.until_running(1)
    await asked.host.until_running(2)
    one = asked.host.known().runtime_id
    assert (await asked.get(f"/v1/tasks?taskarn={arn(1)}"))[1]["Arn"] == arn(1)
    assert (await asked.get(f"/v1/tasks?dockerid={one}"))[1]["Arn"] == arn(1)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("taskarn=nobody", 404),
        ("dockerid=ffffffffffffffff", 404),
        ("taskarn=a&dockerid=b", 400),
        (f"dockerid={'x' * 13}", 404),
    ],
)
async def test_what_is_not_there_is_an_empty_task(asked: Asked, query: str, status: int) -> None:
    empty = {"Arn": "", "KnownStatus": "", "Family": "", "Version": "", "Containers": None}
    assert await asked.get(f"/v1/tasks?{query}") == (status, empty)


async def test_a_short_id_is_a_prefix_and_must_be_enough(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    await asked.host.engine.take([task(1), task(2)], 1)
    await asked.host.until_running(1)
    await asked.host.until_running(2)
    for number in (1, 2):
        runner = asked.host.engine.find(arn(number))
        assert runner is not None
        (one,) = runner.known.containers
        named = msgspec.structs.replace(one, runtime_id=f"abc{number}" + "f" * 60)
        monkeypatch.setattr(runner, "known", msgspec.structs.replace(runner.known, containers=(named,)))
    assert (await asked.get("/v1/tasks?dockerid=abc"))[0] == 400
    assert (await asked.get("/v1/tasks?dockerid=abc2"))[1]["Arn"] == arn(2)
    assert (await asked.get("/v1/tasks?dockerid=abc2ffffffff"))[1]["Arn"] == arn(2)
    assert (await asked.get("/v1/tasks?dockerid=abc2fffffffff"))[0] == 404  # too long for a prefix


async def test_waiting_and_ending_tasks_in_the_words_of_the_control_plane(asked: Asked) -> None:
    asked.host.runtime.down()
    await asked.host.engine.take([task(1)], 1)
    await asyncio.sleep(0.1)
    _, answer = await asked.get(f"/v1/tasks?taskarn={arn(1)}")
    assert (answer["KnownStatus"], answer["DesiredStatus"]) == ("PENDING", "RUNNING")
    assert answer["Containers"][0]["DockerId"] == answer["Containers"][0]["ImageID"] == ""


async def test_everything_else_is_answered_with_what_there_is(asked: Asked) -> None:
    for path in ("/", "/v2/tasks", "/v1/tasks/"):
        _, answer = await asked.get(path)
        assert answer["AvailableCommands"][:3] == ["/v1/metadata", "/v1/tasks", "/license"]
    assert "Apache License" in (await asked.get("/license"))[1]
    assert (await asked.get("/v1/tasks", "POST"))[0] == 405


async def test_figures_of_tasks_containers_connections_and_host(asked: Asked, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    await asked.host.engine.take([task(1, container(cpu=256, memory=64), cpu=0.5)], 1)
    await asked.host.until_running()
    known = asked.host.known()
    (tmp_path / f"cpu/ecs/{1:032x}").mkdir(parents=True)
    (tmp_path / f"cpu/ecs/{1:032x}/cpu.stat").write_text("nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n")
    v1(tmp_path, f"ecs/{1:032x}/{known.runtime_id}", 3_000_000_000, 5 * MIB, MIB)
    sent(tmp_path / "proc", 1000, 10)
    asked.stats.read([Subject(known.runtime_id, f"/ecs/{1:032x}/{known.runtime_id}", network=True)], 1.0)
    _, text = await asked.get("/metrics")
    found = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    values = {name: value for (name, _), value in found.items()}
    labels = {"task": f"{1:032x}", "family": "web", "revision": "1", "container": "app"}
    assert found["sexton_container_cpu_seconds_total", tuple(sorted(labels.items()))] == 3.0
    assert values["sexton_container_memory_bytes"] == 4 * MIB
    received = tuple(sorted((labels | {"way": "received"}).items()))
    assert found["sexton_container_network_bytes_total", received] == 1000
    assert found["sexton_agent_connected", (("channel", "acs"),)] == 0
    assert found["sexton_agent_tasks", (("status", "RUNNING"),)] == 1
    assert values["sexton_engine_up"] == 1 and values["process_resident_memory_bytes"] > 1 << 20
    its = {name: value for name, value in labels.items() if name != "container"}
    assert found["sexton_task_reserved_cores", tuple(sorted((its | {"limit": "yes"}).items()))] == 0.5
    assert found["sexton_task_cpu_throttled_periods_total", tuple(sorted(its.items()))] == 4
    assert found["sexton_task_cpu_throttled_seconds_total", tuple(sorted(its.items()))] == 2.5
    promised = tuple(sorted((labels | {"limit": "no"}).items()))
    assert found["sexton_container_reserved_cores", promised] == 0.25
    assert found["sexton_container_reserved_memory_bytes", promised] == 64 * MIB
    assert values["sexton_container_memory_held_bytes"] == 4 * MIB
    assert "sexton_agent_reports_pending" in values and "sexton_agent_errors_total" in values


async def test_a_port_that_is_taken_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LISTEN_BACKOFF", Backoff(first=0.01, cap=0.02))
    nursery = Nursery("test")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        nobody: Any = None
        nursery.start("listen", keep_listening(nobody, "127.0.0.1", port))
        await asyncio.sleep(0.2)
    try:
        async with asyncio.timeout(10):
            while "introspection listens" not in caplog.text and not await _answers(port):
                await asyncio.sleep(0.02)
    finally:
        await nursery.close()
    assert caplog.text.count("introspection cannot listen yet") == 1
