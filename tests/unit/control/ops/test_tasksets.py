"""Task sets: somebody else's deployments, kept at their share, labelled and drained as asked."""

from __future__ import annotations

import pytest

from sexton.wire.errors import (
    InvalidParameterException,
    LimitExceededException,
    ServiceNotFoundException,
    TaskSetNotFoundException,
    UnsupportedFeatureException,
)
from unit.control.serviceworld import Services
from unit.control.world import world_over

HOME = {"cluster": "default", "service": "web"}
EXTERNAL = {"deploymentController": {"type": "EXTERNAL"}}


@pytest.fixture
async def services(world):
    await world.define()
    await world.define()
    await world.join(cpu=4000, memory=4000)
    made = Services(world)
    await world.do("CreateService", serviceName="web", desiredCount=4, **EXTERNAL)
    await made.decide()
    return made


async def create(world, definition="web:1", percent=50.0, **fields):
    wanted = HOME | {"taskDefinition": definition, "scale": {"unit": "PERCENT", "value": percent}} | fields
    return (await world.do("CreateTaskSet", **wanted))["taskSet"]


async def sets(world, **fields):
    return (await world.do("DescribeTaskSets", **HOME, **fields))["taskSets"]


async def test_a_service_of_task_sets_runs_nothing_by_itself(services, world):
    shown = await services.service()
    assert (shown["deployments"], shown.get("taskDefinition"), shown["desiredCount"]) == ([], None, 4)
    assert shown["deploymentController"] == {"type": "EXTERNAL"}
    await services.settle()
    assert await services.tasks() == []


async def test_every_task_set_is_kept_at_its_share(services, world):
    one = await create(world, percent=25.0, externalId="blue", tags=[{"key": "colour", "value": "blue"}])
    assert one["taskSetArn"].startswith("arn:aws:ecs:us-east-1:123456789012:task-set/default/web/ecs-svc/")
    assert (one["status"], one["stabilityStatus"], one["computedDesiredCount"]) == ("ACTIVE", "STABILIZING", 1)
    assert (one["externalId"], one["tags"]) == ("blue", [{"key": "colour", "value": "blue"}])
    two = await create(world, "web:2", 100.0)
    await services.settle()

    shown = {found["id"]: found for found in await sets(world)}
    assert {found["stabilityStatus"] for found in shown.values()} == {"STEADY_STATE"}
    assert (shown[one["id"]]["runningCount"], shown[two["id"]]["runningCount"]) == (1, 4)
    tasks = await services.tasks()
    assert {task["startedBy"] for task in tasks} == {one["id"], two["id"]}
    assert [len([t for t in tasks if t["taskDefinitionArn"].endswith(f"web:{n}")]) for n in (1, 2)] == [1, 4]
    assert (await services.service())["runningCount"] == 5

    await world.do("UpdateTaskSet", **HOME, taskSet=one["id"], scale={"value": 75, "unit": "PERCENT"})
    await services.update(desiredCount=8)
    await services.settle()
    after = {found["id"]: found["runningCount"] for found in await sets(world)}
    assert after == {one["id"]: 6, two["id"]: 8}
    assert any("updated computedDesiredCount for taskSet" in line for line in await services.said())


async def test_the_primary_task_set_speaks_for_the_service(services, world):
    one, two = await create(world), await create(world, "web:2")
    for chosen, other in ((one, two), (two, one)):
        answer = await world.do("UpdateServicePrimaryTaskSet", **HOME, primaryTaskSet=chosen["taskSetArn"])
        assert answer["taskSet"]["status"] == "PRIMARY"
        shown = await services.service()
        assert shown["taskDefinition"] == chosen["taskDefinition"]
        assert {found["id"]: found["status"] for found in shown["taskSets"]} == {
            chosen["id"]: "PRIMARY",
            other["id"]: "ACTIVE",
        }


async def test_a_task_set_drains_and_is_gone_with_its_last_task(services, world):
    one = await create(world)
    await services.settle()
    with pytest.raises(InvalidParameterException, match="scaled above 0"):
        await world.do("DeleteTaskSet", **HOME, taskSet=one["id"])
    answer = await world.do("DeleteTaskSet", **HOME, taskSet=one["id"], force=True)
    assert answer["taskSet"]["status"] == "DRAINING"
    await services.settle()
    assert await sets(world) == []
    missing = (await world.do("DescribeTaskSets", **HOME, taskSets=[one["taskSetArn"]]))["failures"]
    assert missing == [{"arn": one["taskSetArn"], "reason": "MISSING"}]
    assert await services.tasks() == []


async def test_a_service_with_task_sets_is_deleted_by_force_alone(services, world):
    await create(world)
    await services.settle()
    await services.update(desiredCount=0)
    with pytest.raises(InvalidParameterException, match="has task sets"):
        await world.do("DeleteService", **HOME)
    await world.do("DeleteService", **HOME, force=True)
    await services.settle()
    assert (await services.service())["status"] == "INACTIVE"


async def test_the_same_request_makes_one_task_set(services, world):
    made = await create(world, clientToken="t")
    assert (await create(world, clientToken="t"))["id"] == made["id"]
    with pytest.raises(InvalidParameterException, match="not idempotent"):
        await create(world, "web:2", clientToken="t")
    for number in range(4):
        await create(world, clientToken=str(number))
    with pytest.raises(LimitExceededException, match="at most 5"):
        await create(world)


async def test_tags_of_a_task_set(services, world):
    made = await create(world)
    await world.do("TagResource", resourceArn=made["taskSetArn"], tags=[{"key": "a", "value": "b"}])
    assert (await sets(world))[0].get("tags") is None
    assert (await sets(world, include=["TAGS"]))[0]["tags"] == [{"key": "a", "value": "b"}]


@pytest.mark.parametrize(
    ("operation", "fields", "error", "says"),
    [
        ("CreateTaskSet", {"taskDefinition": "web", "loadBalancers": [{}]}, UnsupportedFeatureException, "loadBalanc"),
        ("CreateTaskSet", {"taskDefinition": "web", "scale": {"value": 101}}, InvalidParameterException, "0 and 100"),
        ("CreateTaskSet", {"taskDefinition": "web", "service": "no"}, ServiceNotFoundException, "not found"),
        ("UpdateTaskSet", {"taskSet": "x", "scale": {"value": 1}}, TaskSetNotFoundException, "not found"),
        ("DeleteTaskSet", {"taskSet": "ecs-svc/1"}, TaskSetNotFoundException, "not found"),
        ("UpdateServicePrimaryTaskSet", {"primaryTaskSet": "ecs-svc/1"}, TaskSetNotFoundException, "not found"),
        ("UpdateService", {"taskDefinition": "web"}, InvalidParameterException, "task definition cannot be specified"),
        ("UpdateService", {"forceNewDeployment": True}, InvalidParameterException, "EXTERNAL"),
        ("UpdateService", {"deploymentController": {"type": "ECS"}}, InvalidParameterException, "cannot be changed"),
        (
            "CreateService",
            {"serviceName": "x", "taskDefinition": "web"} | EXTERNAL,
            InvalidParameterException,
            "task d",
        ),
        (
            "CreateService",
            {"serviceName": "x", "schedulingStrategy": "DAEMON"} | EXTERNAL,
            InvalidParameterException,
            "D",
        ),
    ],
)
async def test_what_cannot_be_is_refused(services, world, operation, fields, error, says):
    home = {} if operation == "CreateService" else HOME
    with pytest.raises(error, match=says):
        await world.do(operation, **(home | fields))


async def test_only_external_services_have_task_sets(services, world):
    await services.create("own", 1)
    with pytest.raises(InvalidParameterException, match="EXTERNAL"):
        await world.do("CreateTaskSet", cluster="default", service="own", taskDefinition="web")


async def test_task_sets_outlive_a_restart(services, world):
    made = await create(world)
    await services.settle()
    async with world_over(world.store) as again:
        again.now = world.now
        assert (await sets(again))[0]["id"] == made["id"]
        other = Services(again)
        await other.settle()
        assert (await sets(again))[0]["runningCount"] == 2
