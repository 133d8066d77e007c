"""What has ended is forgotten, and nothing else is."""

from __future__ import annotations

from sexton.control import retention


async def test_stopped_tasks_go_after_an_hour_and_running_ones_stay(world):
    await world.define(container={"memory": 6, "cpu": 0})
    await world.join()
    stopped, running = await world.run_one(), await world.run_one()
    await world.ended(stopped)

    assert await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS - 1) == 0
    assert await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS) == 1

    answer = await world.do("DescribeTasks", tasks=[stopped, running])
    assert [one["taskArn"] for one in answer["tasks"]] == [running]
    assert [one["arn"] for one in answer["failures"]] == [stopped]


async def test_stopped_tasks_stay_as_long_as_is_set(world):
    await world.define()
    await world.join()
    task = await world.run_one()
    await world.ended(task)

    assert await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS, 7200.0) == 0
    assert await retention.sweep(world.context, world.now + 10.0, 10.0) == 1


async def test_many_go_in_several_transactions(world, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 3)
    await world.define(container={"memory": 6, "cpu": 0})
    await world.join(cpu=10**6, memory=10**6)
    tasks = [task["taskArn"] for task in (await world.run(count=10))["tasks"]]
    for task in tasks:
        await world.ended(task)

    assert await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS) == 10
    assert len(world.records.tasks) == 0


async def test_a_deleted_cluster_goes_too_unless_it_came_back(world):
    for name in ("gone", "back"):
        await world.do("CreateCluster", clusterName=name)
        await world.do("DeleteCluster", cluster=name)
    await world.do("CreateCluster", clusterName="back")

    await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS)

    answer = await world.do("DescribeClusters", clusters=["gone", "back", "default"])
    assert [one["clusterName"] for one in answer["clusters"]] == ["back", "default"]
