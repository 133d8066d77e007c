"""GPUs from a host's registration to a task's containers: counted, given by id, never twice, and given back."""

from __future__ import annotations

import asyncio

import pytest

from sexton.core import render
from sexton.wire.errors import ClientException, UnsupportedFeatureException

TWO = [{"id": "GPU-a", "type": "GPU"}, {"id": "GPU-b", "type": "GPU"}]


def asks(count, **more):
    return {"resourceRequirements": [{"type": "GPU", "value": str(count)}]} | more


def ids(task):
    return [one.get("gpuIds") for one in task["containers"]]


async def left(world, instance):
    remaining = (await world.instance(instance))["remainingResources"]
    return next(one["stringSetValue"] for one in remaining if one["name"] == "GPU")


async def test_a_host_shows_its_devices_and_what_is_left_of_them(world):
    await world.define(container=asks(1))
    instance = await world.join(platformDevices=[*TWO, {"id": "GPU-a", "type": "GPU"}])
    shown = (await world.instance(instance))["registeredResources"]
    assert shown[-1] == {"name": "GPU", "type": "STRINGSET", "stringSetValue": ["GPU-a", "GPU-b"]}

    arn = await world.run_one()

    assert ids(await world.task(arn)) == [["GPU-a"]]
    assert await left(world, instance) == ["GPU-b"]
    await world.ended(arn)
    assert await left(world, instance) == ["GPU-a", "GPU-b"]


async def test_tasks_of_one_request_and_of_several_at_once_never_share(world):
    await world.define(container=asks(1))
    await world.join(platformDevices=[{"id": f"GPU-{n}", "type": "GPU"} for n in range(7)], cpu=9999, memory=9999)

    answers = await asyncio.gather(*(world.run(count=2) for _ in range(4)))

    given = [one for answer in answers for task in answer["tasks"] for one in ids(task)[0]]
    assert sorted(given) == [f"GPU-{n}" for n in range(7)]
    (failed,) = [one for answer in answers for one in answer["failures"]]
    assert (failed["reason"], failed["detail"]) == ("RESOURCE:GPU", "needs 1 GPUs, 0 left")


async def test_the_payload_names_each_device_with_its_container(world):
    containers = [
        {"name": "train", "image": "i", "memory": 10, **asks(2)},
        {"name": "log", "image": "i", "memory": 10},
        {"name": "infer", "image": "i", "memory": 10, **asks(1)},
    ]
    await world.do("RegisterTaskDefinition", family="ml", networkMode="none", containerDefinitions=containers)
    await world.join(platformDevices=[*TWO, {"id": "GPU-c", "type": "GPU"}])

    arn = await world.run_one("ml")

    assert ids(await world.task(arn)) == [["GPU-a", "GPU-b"], None, ["GPU-c"]]
    (record,) = [one.value for one in world.records.tasks.all()]
    sent = render.payload(record.task, world.records.definition_of(record).definition, "1").associations
    assert [(one.type, one.name, one.containers) for one in sent] == [
        ("gpu", "GPU-a", ("train",)),
        ("gpu", "GPU-b", ("train",)),
        ("gpu", "GPU-c", ("infer",)),
    ]


async def test_what_is_asked_for_at_launch_stands_instead(world):
    await world.define(container=asks(2))
    await world.join(platformDevices=TWO)

    answer = await world.run(overrides={"containerOverrides": [{"name": "main", **asks(1)}]})

    assert ids(answer["tasks"][0]) == [["GPU-a"]]


async def test_a_named_host_and_a_service_give_them_too(world):
    await world.define(container=asks(1))
    instance = await world.join(platformDevices=TWO)

    started = await world.do("StartTask", taskDefinition="web", containerInstances=[instance])
    refused = await world.do("StartTask", taskDefinition="web", containerInstances=[instance] * 2)

    assert ids(started["tasks"][0]) == [["GPU-a"]]
    assert [ids(one) for one in refused["tasks"]] == [[["GPU-b"]]]
    assert [one["reason"] for one in refused["failures"]] == ["RESOURCE:GPU"]


async def test_a_host_without_any_takes_no_such_task(world):
    await world.define(container=asks(1))
    await world.join()

    answer = await world.run()

    assert [one["reason"] for one in answer["failures"]] == ["RESOURCE:GPU"]


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1 GB", "many"])
async def test_a_count_that_is_none_is_refused(world, value):
    with pytest.raises(ClientException, match="the value of GPU must be a whole number"):
        await world.define(container=asks(value))
    await world.define()
    with pytest.raises(ClientException, match="the value of GPU must be a whole number"):
        await world.run(overrides={"containerOverrides": [{"name": "main", **asks(value)}]})


async def test_one_container_asks_once(world):
    both = {"resourceRequirements": [{"type": "GPU", "value": "1"}, {"type": "GPU", "value": "2"}]}
    with pytest.raises(ClientException, match="more than once"):
        await world.define(container=both)


async def test_sharing_a_device_and_accelerators_are_refused_by_name(world):
    shared = {"type": "GPU", "value": "1", "sharingStrategy": {"nvidiaMps": {"memory": 512}}}
    with pytest.raises(UnsupportedFeatureException, match="sharingStrategy"):
        await world.define(container={"resourceRequirements": [shared]})
    await world.define(container={"resourceRequirements": [{"type": "InferenceAccelerator", "value": "d1"}]})
    await world.join()
    with pytest.raises(UnsupportedFeatureException, match="InferenceAccelerator"):
        await world.run()
