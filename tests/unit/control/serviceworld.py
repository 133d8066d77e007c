"""A world with its service scheduler: time moves when a test says so, and tasks do what an agent would report."""

from __future__ import annotations

import itertools
from typing import Any

from sexton.control.services import Reconciler, alone
from sexton.core.pace import ECS, Pace
from unit.control.world import Json, World

SETTLED = ECS.settle + 1.0


class Services:
    """The reconciler of a world, driven by hand."""

    def __init__(self, world: World, pace: Pace = ECS, fence: Any = alone) -> None:
        self.world = world
        self._numbers = itertools.count(1)
        context = world.context._replace(clock=lambda: world.now)
        self.reconciler = Reconciler(context, fence, pace)

    async def decide(self) -> None:
        """Every decision that is due."""
        await self.reconciler.reconcile_due()

    async def create(self, name: str = "web", count: int | None = 2, **fields: Any) -> Json:
        wanted = {"serviceName": name, "taskDefinition": "web"} | ({} if count is None else {"desiredCount": count})
        answer = await self.world.do("CreateService", **(wanted | fields))
        await self.decide()
        return answer["service"]

    async def update(self, name: str = "web", **fields: Any) -> Json:
        answer = await self.world.do("UpdateService", service=name, **fields)
        await self.decide()
        return answer["service"]

    async def service(self, name: str = "web", **fields: Any) -> Json:
        answer = await self.world.do("DescribeServices", services=[name], **fields)
        assert answer["failures"] == []
        return answer["services"][0]

    async def tasks(self, name: str = "web", status: str = "RUNNING") -> list[Json]:
        """The service's tasks with this desired status, the oldest first."""
        arns = (await self.world.do("ListTasks", serviceName=name, desiredStatus=status))["taskArns"]
        found = (await self.world.do("DescribeTasks", tasks=arns, include=["TAGS"]))["tasks"] if arns else []
        return sorted(found, key=lambda one: one["createdAt"])

    async def obey(self, *, broken: tuple[str, ...] = ()) -> int:
        """What agents do: start what is to run, end what is to stop; tasks of ``broken`` definitions fail to start."""
        await self.decide()
        done = 0
        for entry in list(self.world.records.tasks.all()):
            task = entry.value.task
            if entry.value.stopped:
                continue
            done += 1
            if task.desired_status == "STOPPED":
                await self.world.ended(entry.value.arn, 0)
            elif (task.task_definition_arn or "").rsplit("/", 1)[-1] in broken:
                await self.world.ended(entry.value.arn, 1)
            elif task.last_status != "RUNNING":
                await self.world.report(entry.value.arn, "RUNNING")
            else:
                done -= 1
        await self.decide()
        return done

    async def settle(self, rounds: int = 30, **fields: Any) -> None:
        """Let agents obey and time pass until nobody has anything left to do."""
        idle = 0
        for _ in range(rounds):
            idle = 0 if await self.obey(**fields) else idle + 1
            self.world.now += SETTLED
            await self.decide()
            if idle == 2:  # what settled in the first may have had consequences
                return

    async def said(self, name: str = "web") -> list[str]:
        """The service's events, the oldest first."""
        return [one["message"] for one in reversed((await self.service(name))["events"])]
