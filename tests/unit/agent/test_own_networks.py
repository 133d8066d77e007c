"""Tasks with a network of their own, as runners take them: joined, wired before they start, released at the end."""

from __future__ import annotations

import msgspec
import pytest

from sexton.agent.networkfault import FAILED, NetworkFault
from sexton.core.sandbox import LABEL
from sexton.core.task import TaskStatus
from sexton.runtime.contract import Unavailable
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, INSTANCE, Host, arn, container, task, until

pytestmark = pytest.mark.looptime

ENI = acs_task.ElasticNetworkInterface(
    ec2_id="eni-1",
    mac_address="0a:00:00:00:00:01",
    interface_association_protocol="sexton",
    ipv4_addresses=(acs_task.IPv4Address(private_address="10.7.0.9", primary=True),),
)
OWN = {"network_mode": "awsvpc", "elastic_network_interfaces": (ENI,)}


async def test_all_containers_of_a_task_join_one_network_and_it_goes_with_the_task():
    async with Host() as host:
        await host.engine.take([task(1, container("app"), container("side"), **OWN)], 1)
        await host.until_running()
        modes = {host.runtime.body(one.id)["HostConfig"]["NetworkMode"] for one in host.runtime.containers}
        assert modes == {"container:sandbox-0"}
        await host.engine.take([task(1, desired_status="STOPPED")], 2)
        await until(lambda: host.status() in (None, TaskStatus.STOPPED))
        await until(lambda: host.wires.joined == {})


async def test_the_task_has_ended_once_its_network_is_gone():
    """Until then its address is not free, so nobody may hear that it is."""
    async with Host() as host:
        host.wires.kept = Unavailable("restarting")
        await host.engine.take([task(1, **OWN)], 1)
        await host.until_running()
        await host.engine.take([task(1, desired_status="STOPPED")], 2)
        await until(lambda: host.desk.told()[-1:] == ["DEPROVISIONING"])
        await host.restart()
        await until(lambda: host.wires.releases > 3)
        assert "STOPPED" not in host.desk.told()
        host.wires.kept = None
        await until(lambda: host.desk.told()[-1:] == ["STOPPED"])
        assert host.wires.joined == {}


async def test_amazons_control_plane_hears_its_own_words_alone():
    announced = {
        **OWN,
        "elastic_network_interfaces": (msgspec.structs.replace(ENI, interface_association_protocol=""),),
    }
    async with Host() as host:
        await host.engine.take([task(1, **announced)], 1)
        await host.until_running()
        await host.engine.take([task(1, desired_status="STOPPED")], 2)
        await until(lambda: "STOPPED" in host.desk.told())
        assert "DEPROVISIONING" not in host.desk.told()


async def test_a_network_that_cannot_be_had_ends_the_task_with_its_reason():
    async with Host() as host:
        host.wires.trouble = NetworkFault(FAILED + "there is no such subnet")
        await host.engine.take([task(1, **OWN)], 1)
        await until(lambda: host.status() is TaskStatus.STOPPED)
        known = host.engine.find(arn(1)).known
        assert known.reason.startswith("ContainerNetworkingError: ") and "no such subnet" in known.reason
        assert host.runtime.containers == ()


async def test_a_host_that_cannot_says_so():
    host = Host()
    host.wires = None
    async with host:
        await host.engine.take([task(1, **OWN)], 1)
        await until(lambda: host.status() is TaskStatus.STOPPED)
        assert "cannot give tasks a network of their own" in host.engine.find(arn(1)).known.reason


async def test_an_engine_that_is_away_fails_no_task():
    async with Host() as host:
        host.wires.trouble = Unavailable("restarting")
        await host.engine.take([task(1, **OWN)], 1)
        await until(lambda: host.wires.asked > 2)
        assert host.status() is not TaskStatus.STOPPED
        host.wires.trouble = None
        await host.until_running()


async def test_a_sandbox_that_ends_takes_its_task_along():
    async with Host() as host:
        await host.engine.take([task(1, **OWN)], 1)
        await host.until_running()
        made = await host.runtime.create("held", {"Image": IMAGE, "Labels": {LABEL: INSTANCE}})
        host.wires.joined[arn(1)] = made
        await host.runtime.start(made)
        host.runtime.exit(made, 137)
        await until(lambda: host.engine.find(arn(1)).known.stop)
        assert "what held the task's network has ended" in host.engine.find(arn(1)).known.reason
