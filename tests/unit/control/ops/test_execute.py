"""ExecuteCommand: what is wrong with the request comes first, then that the task was started without it."""

from __future__ import annotations

import pytest

from sexton.wire.errors import ClusterNotFoundException, InvalidParameterException


async def execute(world, task, **fields):
    await world.do("ExecuteCommand", **({"task": task, "command": "sh", "interactive": True} | fields))


async def test_the_reason_is_the_most_precise_there_is(world):
    other = {"name": "other", "image": "busybox", "memory": 10}
    main = {"name": "main", "image": "busybox", "memory": 10}
    await world.define()
    await world.do("RegisterTaskDefinition", family="two", networkMode="none", containerDefinitions=[main, other])
    await world.join()
    task, two = await world.run_one(), await world.run_one("two")

    for given, fields, said in (
        (task, {"interactive": False}, "Interactive is the only mode"),
        ("f" * 32, {}, "task was not found"),
        (two, {}, "container name must be specified"),
        (task, {"container": "other"}, "container other is not"),
        (task, {}, "execute command was not enabled"),
        (two, {"container": "other"}, "execute command was not enabled"),
    ):
        with pytest.raises(InvalidParameterException, match=said):
            await execute(world, given, **fields)
    with pytest.raises(ClusterNotFoundException):
        await execute(world, task, cluster="nowhere")
