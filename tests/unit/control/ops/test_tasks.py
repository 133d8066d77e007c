"""Tasks: run, place, start, stop, describe and list, as clients see it."""

from __future__ import annotations

import asyncio

import pytest

from sexton.wire.errors import (
    ClientException,
    InvalidParameterException,
    ServiceNotFoundException,
    UnsupportedFeatureException,
)
from unit.control.world import Gate, world_over


async def test_a_task_is_accepted_with_its_place(world):
    definition = await world.define()
    instance = await world.join()

    answer = await world.run(group="g", startedBy="me", tags=[{"key": "a", "value": "b"}], enableECSManagedTags=True)

    task = answer["tasks"][0]
    assert answer["failures"] == []
    assert task["containerInstanceArn"] == instance
    assert task["taskDefinitionArn"] == definition
    assert (task["lastStatus"], task["desiredStatus"]) == ("PENDING", "RUNNING")
    assert (task["group"], task["startedBy"], task["launchType"], task["version"]) == ("g", "me", "EC2", 1)
    assert task["availabilityZone"] == "us-east-1a"
    assert task["tags"] == [{"key": "a", "value": "b"}, {"key": "aws:ecs:clusterName", "value": "default"}]
    container = task["containers"][0]
    assert (container["name"], container["lastStatus"], container["taskArn"]) == ("main", "PENDING", task["taskArn"])


async def test_what_does_not_fit_is_a_failure_with_its_reason(world):
    await world.define(container={"memory": 400})
    instance = await world.join(memory=1000)

    answer = await world.run(count=3)

    assert len(answer["tasks"]) == 2
    assert [(one["arn"], one["reason"]) for one in answer["failures"]] == [(instance, "RESOURCE:MEMORY")]


@pytest.mark.parametrize(
    ("host", "definition", "reason"),
    [
        ({"connected": False}, {}, "AGENT"),
        ({"cpu": 50}, {}, "RESOURCE:CPU"),
        (
            {},
            {"networkMode": "bridge", "container": {"portMappings": [{"containerPort": 80, "hostPort": 22}]}},
            "RESOURCE:PORTS",
        ),
        ({}, {"container": {"healthCheck": {"command": ["CMD", "true"]}}}, "ATTRIBUTE"),
    ],
)
async def test_why_no_host_takes_it(world, host, definition, reason):
    await world.define(**definition)
    instance = await world.join(**host)

    failures = (await world.run())["failures"]

    assert [(one["arn"], one["reason"]) for one in failures] == [(instance, reason)]


async def test_a_task_with_a_role_of_its_own_needs_a_host_that_serves_it(world):
    role = "arn:aws:iam::123456789012:role/r"
    await world.define()
    await world.define("own", taskRoleArn=role)
    await world.join()

    for answer in (await world.run(overrides={"taskRoleArn": role}), await world.run("own")):
        (failure,) = answer["failures"]
        assert failure["reason"] == "ATTRIBUTE"
        assert "com.amazonaws.ecs.capability.task-iam-role" in failure["detail"]


async def test_constraints_and_strategies_say_where_a_task_goes(world):
    await world.define(container={"memory": 100})
    small, large = await world.join(memory=1000), await world.join(memory=2000)

    packed = await world.run(count=3, placementStrategy=[{"type": "binpack", "field": "memory"}])
    assert [task["containerInstanceArn"] for task in packed["tasks"]] == [small] * 3

    alone = await world.run(count=3, group="alone", placementConstraints=[{"type": "distinctInstance"}])
    assert {task["containerInstanceArn"] for task in alone["tasks"]} == {small, large}
    assert [one["reason"] for one in alone["failures"]] == ["DistinctInstance placement constraint unsatisfied."] * 2

    zone = {"type": "memberOf", "expression": "attribute:ecs.availability-zone == nowhere"}
    nowhere = await world.run(placementConstraints=[zone])
    assert nowhere["tasks"] == []
    assert "nowhere" in nowhere["failures"][0]["detail"]
    with pytest.raises(InvalidParameterException, match="placementConstraints"):
        await world.run(placementConstraints=[{"type": "memberOf", "expression": "attribute:a =="}])


async def test_a_draining_host_gets_nothing_new(world):
    await world.define()
    instance = await world.join()
    await world.do("UpdateContainerInstancesState", containerInstances=[instance], status="DRAINING")

    assert [one["reason"] for one in (await world.run())["failures"]] == ["INACTIVE"]


async def test_requests_that_arrive_together_never_share_memory(world):
    await world.define(container={"memory": 100, "cpu": 0})
    await world.join(memory=1000)

    answers = await asyncio.gather(*(world.run() for _ in range(30)))

    placed = [task for one in answers for task in one["tasks"]]
    assert len(placed) == 10
    assert all(one["failures"][0]["reason"] == "RESOURCE:MEMORY" for one in answers if not one["tasks"])


async def test_a_full_host_is_filled_to_the_last_byte_while_tasks_come_and_go(world):
    """A task on its way to the store must not count twice in the moment in which its record appears."""
    await world.define(container={"memory": 500, "cpu": 0})
    await world.join(memory=1000)

    async def turn():
        for _ in range(10):
            answer = await world.run()
            assert answer["failures"] == []
            await world.ended(answer["tasks"][0]["taskArn"])

    await asyncio.gather(turn(), turn())


async def test_spread_is_by_tasks_then_memory(world):
    await world.define()
    hosts = [await world.join() for _ in range(3)]

    answer = await world.run(count=6)

    where = [task["containerInstanceArn"] for task in answer["tasks"]]
    assert sorted(where) == sorted(hosts * 2)


async def test_a_host_that_leaves_while_a_task_is_written_takes_no_task_with_it(world):
    """Whoever deregisters the host cannot see the task yet, so it must not be written any more."""
    await world.define()
    instance = await world.join()
    gate = Gate(world.store, "tasks/")
    running = asyncio.ensure_future(world.run())
    await gate.reached.wait()

    await world.do("DeregisterContainerInstance", containerInstance=instance)
    gate.opened.set()

    with pytest.raises(InvalidParameterException, match="No Container Instances"):
        await running
    assert len(world.records.tasks) == 0


async def test_a_task_is_placed_again_when_its_host_changed_meanwhile(world):
    await world.define()
    first, second = sorted([await world.join(), await world.join()])
    gate = Gate(world.store, "tasks/")
    running = asyncio.ensure_future(world.run())
    await gate.reached.wait()
    for host in (first, second):
        await world.connect(host, connected=host == second)
    gate.opened.set()

    assert [task["containerInstanceArn"] for task in (await running)["tasks"]] == [second]


async def test_a_negative_override_frees_nothing(world):
    await world.define()
    await world.join()
    for wrong in ({"memory": -500}, {"cpu": -1}, {"memoryReservation": 1}):
        with pytest.raises(ClientException, match="main"):
            await world.run(overrides={"containerOverrides": [{"name": "main", **wrong}]})
    for wrong in ({"cpu": "lots"}, {"memory": "-1"}, {"cpu": "inf vcpu"}):
        with pytest.raises(ClientException, match="Invalid"):
            await world.run(overrides=wrong)


async def test_what_is_not_served_is_said_by_name(world):
    await world.define()
    await world.join()
    for field, value in {
        "enableExecuteCommand": True,
    }.items():
        with pytest.raises(UnsupportedFeatureException, match=field):
            await world.run(**{field: value})
    with pytest.raises(InvalidParameterException, match="does not support launch_type FARGATE"):
        await world.run(launchType="FARGATE", platformVersion="LATEST")
    with pytest.raises(InvalidParameterException, match="platform version"):
        await world.run(platformVersion="LATEST")
    with pytest.raises(InvalidParameterException, match="Network Configuration is not valid"):
        await world.run(networkConfiguration={"awsvpcConfiguration": {"subnets": ["subnet-1"]}})
    with pytest.raises(ServiceNotFoundException):
        await world.do("ListTasks", serviceName="x")


async def test_requests_that_make_no_sense(world):
    await world.define()
    with pytest.raises(InvalidParameterException, match=r"No Container Instances were found in your cluster\."):
        await world.run()
    await world.join()
    for count in (0, 11, -1):
        with pytest.raises(InvalidParameterException, match="Count"):
            await world.run(count=count)
    with pytest.raises(ClientException, match="Override for container named other"):
        await world.run(overrides={"containerOverrides": [{"name": "other"}]})
    with pytest.raises(ClientException, match=r"TaskDefinition not found\."):
        await world.run("nothing")
    await world.define("vpc", networkMode="awsvpc")
    with pytest.raises(InvalidParameterException, match="Network Configuration must be provided"):
        await world.run("vpc")


async def test_start_task_goes_where_it_is_told(world):
    await world.define(container={"memory": 600})
    first, second = await world.join(), await world.join()

    answer = await world.do("StartTask", taskDefinition="web", containerInstances=[second, first, second, "f" * 32])

    assert [task["containerInstanceArn"] for task in answer["tasks"]] == [second, first]
    assert [(one["arn"].rpartition("/")[2], one["reason"]) for one in answer["failures"]] == [
        (second.rpartition("/")[2], "RESOURCE:MEMORY"),
        ("f" * 32, "MISSING"),
    ]


async def test_stopping_says_who_and_why_and_the_first_word_stands(world):
    await world.define()
    await world.join()
    task = await world.run_one()

    stopped = (await world.do("StopTask", task=task, reason="enough"))["task"]
    again = (await world.do("StopTask", task=task, reason="more"))["task"]

    assert (stopped["desiredStatus"], stopped["lastStatus"]) == ("STOPPED", "PENDING")
    assert (stopped["stopCode"], stopped["stoppedReason"]) == ("UserInitiated", "enough")
    assert again == stopped
    await world.ended(task, 137)
    shown = await world.task(task)
    assert (shown["lastStatus"], shown["stopCode"], shown["stoppedReason"]) == ("STOPPED", "UserInitiated", "enough")
    assert shown["containers"][0]["exitCode"] == 137
    with pytest.raises(InvalidParameterException, match=r"The referenced task was not found\."):
        await world.do("StopTask", task="f" * 32)


async def test_the_end_of_a_task_has_the_code_of_what_ended_it(world):
    await world.define()
    await world.join()
    exited, failed = await world.run_one(), await world.run_one()

    await world.report(exited, "RUNNING", containers=[{"containerName": "main", "status": "RUNNING"}])
    await world.ended(exited, 3)
    reason = "CannotPullContainerError: no such image"
    await world.report(failed, "STOPPED", containers=[{"containerName": "main", "status": "STOPPED", "reason": reason}])

    exited, failed = await world.task(exited), await world.task(failed)
    assert (exited["stopCode"], exited["stoppedReason"]) == (
        "EssentialContainerExited",
        "Essential container in task exited",
    )
    assert exited["containers"][0]["exitCode"] == 3
    assert (failed["stopCode"], failed["stoppedReason"]) == ("TaskFailedToStart", reason)


async def test_describing_knows_ids_arns_and_the_missing_and_refuses_other_clusters(world):
    await world.do("CreateCluster", clusterName="blue")
    await world.define()
    await world.join()
    task = await world.run_one(tags=[{"key": "a", "value": "b"}])

    answer = await world.do("DescribeTasks", tasks=[task, task.rpartition("/")[2], "f" * 32])

    assert [one["taskArn"] for one in answer["tasks"]] == [task, task]
    assert [one["reason"] for one in answer["failures"]] == ["MISSING"]
    assert answer["tasks"][0]["tags"] == []
    tagged = await world.do("DescribeTasks", tasks=[task], include=["TAGS"])
    assert tagged["tasks"][0]["tags"] == [{"key": "a", "value": "b"}]
    with pytest.raises(InvalidParameterException, match=r"Identifier is for cluster default\. Your cluster is blue"):
        await world.do("DescribeTasks", cluster="blue", tasks=[task])
    with pytest.raises(InvalidParameterException, match="empty"):
        await world.do("DescribeTasks", tasks=[])
    with pytest.raises(InvalidParameterException, match="100"):
        await world.do("DescribeTasks", tasks=["f" * 32] * 101)


async def test_listing_filters(world):
    await world.define()
    await world.define("api")
    first, second = await world.join(), await world.join()
    web = [await world.run_one(startedBy="me") for _ in range(2)]
    api = await world.run_one("api")
    await world.do("StopTask", task=api)

    async def listed(**fields):
        return (await world.do("ListTasks", **fields))["taskArns"]

    assert await listed() == sorted(web)
    assert await listed(desiredStatus="STOPPED") == [api]
    assert await listed(family="api") == []
    assert await listed(startedBy="me") == sorted(web)
    assert await listed(launchType="EXTERNAL") == []
    on_first = await listed(containerInstance=first)
    assert sorted(on_first + await listed(containerInstance=second)) == sorted(web)
    page = await world.do("ListTasks", maxResults=1)
    assert page["taskArns"] == sorted(web)[:1]
    assert await listed(nextToken=page["nextToken"]) == sorted(web)[1:]


async def test_changes_from_two_control_planes_at_once_are_all_kept(world):
    """Stop and report race for one record; whoever loses decides again on what the other wrote."""
    await world.define()
    await world.join()
    async with world_over(world.store) as other:
        for _ in range(10):
            task = await world.run_one()
            await asyncio.gather(
                world.do("StopTask", task=task, reason="enough"),
                other.do(
                    "SubmitTaskStateChange",
                    task=task,
                    status="RUNNING",
                    containers=[{"containerName": "main", "status": "RUNNING", "runtimeId": "r1"}],
                ),
            )
            shown = (await other.do("DescribeTasks", tasks=[task]))["tasks"][0]
            shown = await world.task(task) if shown["version"] < 3 else shown
            assert (shown["desiredStatus"], shown["lastStatus"]) == ("STOPPED", "RUNNING")
            assert shown["containers"][0]["runtimeId"] == "r1"
            await world.ended(task)


async def test_a_task_that_runs_is_connected_and_its_health_unknown(world):
    await world.define()
    await world.join()
    task = await world.run_one()
    assert (await world.task(task))["healthStatus"] == "UNKNOWN"
    world.now += 1
    await world.report(task, "RUNNING")
    shown = await world.task(task)
    assert (shown["connectivity"], shown["connectivityAt"]) == ("CONNECTED", world.now)


async def test_environment_files_of_a_request_ask_for_an_agent_that_reads_them(world):
    await world.define()
    await world.join()
    files = [{"value": "arn:aws:s3:::b/a.env", "type": "s3"}]
    answer = await world.run(overrides={"containerOverrides": [{"name": "main", "environmentFiles": files}]})
    (failure,) = answer["failures"]
    assert (failure["reason"], "env-files.s3" in failure["detail"]) == ("ATTRIBUTE", True)


async def test_who_started_a_task_is_said_in_few_words(world):
    await world.define()
    await world.join()
    assert (await world.task(await world.run_one(startedBy="x" * 128)))["startedBy"] == "x" * 128
    with pytest.raises(InvalidParameterException, match="128 characters"):
        await world.run(startedBy="x" * 129)
