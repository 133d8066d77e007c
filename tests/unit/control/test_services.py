"""The service scheduler over real records: services reach what is asked for, and stay there whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from sexton.control.context import Call
from sexton.control.ops import agentcalls
from sexton.wire.errors import ClusterContainsServicesException
from unit.control.serviceworld import SETTLED, Services
from unit.control.world import REGION, Gate, open_world, world_over


@pytest.fixture
async def services(world):
    await world.define()
    await world.join(cpu=4000, memory=4000)
    return Services(world)


def running(tasks):
    return [one for one in tasks if one["lastStatus"] == "RUNNING"]


async def test_a_service_starts_its_tasks_and_reaches_a_steady_state(services):
    await services.create(count=3, tags=[{"key": "team", "value": "a"}], enableECSManagedTags=True)
    started = await services.tasks()
    await services.settle()
    service = await services.service()

    assert len(started) == 3
    assert {one["group"] for one in started} == {"service:web"}
    assert {one["startedBy"] for one in started} == {service["deployments"][0]["id"]}
    assert {tag["key"]: tag["value"] for tag in started[0]["tags"]} == {
        "aws:ecs:clusterName": "default",
        "aws:ecs:serviceName": "web",
    }
    assert (service["runningCount"], service["pendingCount"], service["desiredCount"]) == (3, 0, 3)
    assert [one["rolloutState"] for one in service["deployments"]] == ["COMPLETED"]
    assert (await services.said())[-1] == "(service web) has reached a steady state."


async def test_a_task_that_ends_is_replaced_also_when_a_person_stopped_it(services, world):
    await services.create(count=2)
    await services.settle()
    first, second = await services.tasks()

    await world.do("StopTask", task=first["taskArn"])
    await services.settle()
    await world.ended(second["taskArn"], 137)
    await services.settle()
    now = await services.tasks()

    assert len(running(now)) == 2
    assert not {first["taskArn"], second["taskArn"]} & {one["taskArn"] for one in now}


async def test_scaling_starts_and_stops(services):
    await services.create(count=2)
    await services.settle()
    await services.update(desiredCount=5)
    await services.settle()
    many = await services.tasks()
    await services.update(desiredCount=1)
    await services.settle()

    assert len(running(many)) == 5
    assert len(await services.tasks()) == 1
    stopped = await services.tasks(status="STOPPED")
    assert {one["stopCode"] for one in stopped} == {"ServiceSchedulerInitiated"}
    assert all("Scaling activity initiated by (deployment ecs-svc/" in one["stoppedReason"] for one in stopped)


async def test_a_new_revision_takes_over_within_the_bounds(services, world):
    await services.create(count=4, deploymentConfiguration={"minimumHealthyPercent": 50, "maximumPercent": 150})
    await services.settle()
    second = await world.define()
    await services.update(taskDefinition="web")
    most, least = 0, 9
    for _ in range(20):
        live = await services.tasks()
        most, least = max(most, len(live)), min(least, len(running(live)))
        await services.obey()
        world.now += SETTLED
        await services.decide()
    after = await services.service()

    assert {one["taskDefinitionArn"] for one in await services.tasks()} == {second}
    assert (most, least >= 2) == (6, True)
    assert [one["taskDefinition"] for one in after["deployments"]] == [second]
    assert after["taskDefinition"] == second


async def test_a_revision_that_fails_is_rolled_back(services, world):
    first = await world.define("stable")
    await services.create(
        taskDefinition="stable",
        count=2,
        deploymentConfiguration={"deploymentCircuitBreaker": {"enable": True, "rollback": True}},
    )
    await services.settle()
    await world.define("broken")
    await services.update(taskDefinition="broken")
    await services.settle(rounds=40, broken=("broken:1",))
    service = await services.service()

    assert service["taskDefinition"] == first
    assert [(one["taskDefinition"], one["rolloutState"]) for one in service["deployments"]] == [(first, "COMPLETED")]
    assert {one["taskDefinitionArn"] for one in await services.tasks()} == {first}
    assert any("rolling back to deployment" in one for one in await services.said())


async def test_a_service_without_room_says_so_and_goes_on_once_there_is_some(services, world):
    await services.create(count=50)
    await services.settle(rounds=4)
    full = await services.service()
    world.now += 1.0
    await world.join(cpu=2000, memory=2000)
    await services.settle()
    after = await services.service()

    assert full["runningCount"] == 40
    assert any("unable to place a task" in one and "insufficient CPU" in one for one in await services.said())
    assert after["runningCount"] == 50


async def test_a_deleted_service_ends_its_tasks_and_becomes_inactive(services, world):
    await services.create(count=2)
    await services.settle()
    with pytest.raises(ClusterContainsServicesException):
        await world.do("DeleteCluster", cluster="default")
    deleted = (await world.do("DeleteService", service="web", force=True))["service"]
    await services.decide()
    during = await services.service()
    await services.settle()

    assert (deleted["status"], during["status"]) == ("DRAINING", "DRAINING")
    assert await services.tasks() == []
    assert (await services.service())["status"] == "INACTIVE"
    assert (await world.do("ListServices"))["serviceArns"] == []
    await services.create(count=1)
    assert (await services.service())["status"] == "ACTIVE"


async def test_tasks_leave_a_draining_host(services, world):
    other = await world.join(cpu=4000, memory=4000)
    await services.create(count=4)
    await services.settle()
    await world.do("UpdateContainerInstancesState", containerInstances=[other], status="DRAINING")
    await services.settle()
    hosts = {one["containerInstanceArn"] for one in await services.tasks()}

    assert len(await services.tasks()) == 4
    assert other not in hosts


async def test_the_tasks_of_a_host_that_is_gone_are_replaced(services, world):
    other = await world.join(cpu=4000, memory=4000)
    await services.create(count=4)
    await services.settle()
    await world.do("DeregisterContainerInstance", containerInstance=other, force=True)
    await services.settle()

    assert len(running(await services.tasks())) == 4


async def test_a_restart_goes_on_where_it_was(tmp_path):
    async with open_world(tmp_path) as world:
        await world.define()
        host = await world.join(cpu=4000, memory=4000)
        services = Services(world)
        await services.create(count=2)
        await services.settle()
        now, before = world.now, await services.service()
        await world.do("UpdateService", service="web", desiredCount=3)  # and dies before it is acted upon
    async with open_world(tmp_path, cluster=False) as world:
        world.now = now
        services = Services(world)
        await services.decide()
        await world.connect(host)
        await services.settle()
        after = await services.service()

    assert after["runningCount"] == 3
    assert after["deployments"][0]["id"] == before["deployments"][0]["id"]


async def test_a_service_deleted_while_its_tasks_are_started_gets_none(services, world):
    gate = Gate(world.store, "tasks/")
    creating = asyncio.ensure_future(services.create(count=2))
    await gate.reached.wait()
    await world.do("DeleteService", service="web", force=True)
    gate.opened.set()
    await creating
    await services.decide()

    assert await services.tasks() == []
    assert (await services.service())["status"] == "INACTIVE"


async def test_two_control_planes_together_start_no_task_twice(services, world):
    async with world_over(world.store) as other:
        rival = Services(other)
        await world.do("CreateService", serviceName="web", taskDefinition="web", desiredCount=5)
        await asyncio.gather(services.decide(), rival.decide())
        for _ in range(10):
            other.now = world.now
            await asyncio.gather(services.obey(), rival.decide())
            world.now += SETTLED
            await asyncio.gather(services.decide(), rival.decide())

    assert len(world.records.tasks) == 5


async def test_only_the_control_plane_that_may_schedule_does(world):
    await world.define()
    await world.join(cpu=4000, memory=4000)
    allowed = []
    services = Services(world, fence=lambda: () if allowed else None)
    await services.create(count=2)
    before = await services.tasks()
    allowed.append(True)
    await services.decide()

    assert (len(before), len(await services.tasks())) == (0, 2)


async def test_a_protected_task_is_not_scaled_in(services, world):
    await services.create(count=2)
    await services.settle()
    kept, _ = await services.tasks()
    await world.do("UpdateTaskProtection", cluster="default", tasks=[kept["taskArn"]], protectionEnabled=True)
    await services.update(desiredCount=0)
    await services.settle(rounds=5)

    assert [one["taskArn"] for one in await services.tasks()] == [kept["taskArn"]]
    assert any("1 tasks under protection" in one for one in await services.said())


async def test_a_failing_service_waits_longer_each_time(services, world):
    await services.create(count=1)
    for _ in range(30):
        await services.obey(broken=("web:1",))
        world.now += 1.0
    made = len(world.records.tasks)

    assert 2 <= made <= 5, "as many would be started as there are seconds"
    assert any("unable to consistently start tasks" in one for one in await services.said()) or made < 4


async def test_a_daemon_service_has_one_task_on_every_host(services, world):
    await services.create(count=None, schedulingStrategy="DAEMON")
    await services.settle()
    one = await services.service()
    other = await world.join(cpu=4000, memory=4000)
    await services.settle()
    both = await services.service()
    await world.do("UpdateContainerInstancesState", containerInstances=[other], status="DRAINING")
    await services.settle()

    assert [(found["desiredCount"], found["runningCount"]) for found in (one, both)] == [(1, 1), (2, 2)]
    assert other not in {task["containerInstanceArn"] for task in await services.tasks()}
    assert (await services.service())["runningCount"] == 1


async def test_a_daemon_service_exchanges_its_tasks_even_where_two_do_not_fit(world):
    await world.define()
    await world.join(cpu=100, memory=100)
    services = Services(world)
    await services.create(count=None, schedulingStrategy="DAEMON")
    await services.settle()
    second = await world.define()
    await services.update(taskDefinition=second)
    await services.settle()

    assert [one["taskDefinitionArn"] for one in running(await services.tasks())] == [second]


async def test_a_task_with_a_health_check_counts_only_once_it_is_healthy(services, world):
    check = {"healthCheck": {"command": ["CMD", "true"]}}
    await world.define("checked", container=check)
    host = (await world.do("ListContainerInstances"))["containerInstanceArns"][0]
    known = await world.instance(host)
    able = [
        {"name": "ecs.capability.container-health-check"},
        {"name": "com.amazonaws.ecs.capability.docker-remote-api.1.24"},
    ]
    await world.do(
        "RegisterContainerInstance",
        containerInstanceArn=host,
        attributes=able,
        totalResources=known["registeredResources"],
    )
    await services.create("checked", 1, taskDefinition="checked")
    await services.settle()
    (task,) = await services.tasks("checked")
    assert (task["lastStatus"], task["healthStatus"]) == ("RUNNING", "UNKNOWN")
    assert (await services.service("checked"))["deployments"][0]["rolloutState"] == "IN_PROGRESS"

    async def says(arn: str, word: str) -> None:
        call = Call(REGION, "", world.now)
        await agentcalls.keep_health(world.context, call, "default", host, arn, {"main": word})
        await services.settle()

    await says(task["taskArn"], "HEALTHY")
    assert (await services.service("checked"))["deployments"][0]["rolloutState"] == "COMPLETED"
    assert (await world.task(task["taskArn"]))["healthStatus"] == "HEALTHY"

    await says(task["taskArn"], "UNHEALTHY")
    (other,) = {one["taskArn"] for one in await services.tasks("checked")} - {task["taskArn"]}
    await says(other, "HEALTHY")
    assert [one["taskArn"] for one in await services.tasks("checked")] == [other]
    assert any("failed container health checks" in line for line in await services.said("checked"))
