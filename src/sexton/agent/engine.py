"""All tasks of this host: takes them in, keeps a runner for each, and keeps what is known in line with the engine.

Engine events are hints: each leads to a look at its container. Whenever the event stream was broken, and once in a
while besides, everything that should be there is compared with a list from the engine, so that what was missed,
killed or removed behind our back is noticed. Tasks survive restarts through the checkpoint; containers are found
again by their recorded id or their name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

import msgspec

from sexton.agent.checkpoint import Checkpoint, Saved
from sexton.agent.reporter import Reporter
from sexton.agent.runner import Acknowledged, Hooks, Look, Runner, Wish
from sexton.agent.steps.context import StepContext
from sexton.core import task as core
from sexton.core.enginebody import INSTANCE_LABEL, LABEL
from sexton.core.task import ContainerStatus, DesiredTask, KnownTask, TaskStatus
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import ContainerBrief, EventKind, Refused, State, Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# Events that may mean a change of a container's state; the rest are echoes of our own calls.
_TELLING = frozenset({EventKind.START, EventKind.DIE, EventKind.DESTROY, EventKind.OOM})
EVENTS_BACKOFF = Backoff(first=0.1, cap=5.0)
# Comparing costs one call however many containers there are.
COMPARE_SECONDS = 60.0


class Engine:
    """The tasks of one container instance."""

    def __init__(self, context: StepContext, checkpoint: Checkpoint, nursery: Nursery) -> None:
        self._context = context
        self._checkpoint = checkpoint
        self._nursery = nursery
        self._runners: dict[str, Runner] = {}
        self._reporter: Reporter | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.answering = False  # whether the engine's event stream is up

    def runners(self) -> tuple[Runner, ...]:
        return tuple(self._runners.values())

    def find(self, arn: str) -> Runner | None:
        return self._runners.get(arn)

    def start(self, reporter: Reporter, saved: Iterable[Saved]) -> None:
        """Take up what an earlier process left, and begin to watch the engine."""
        self._reporter = reporter
        for one in saved:
            self._add(one.desired, one.known, restored=True)
        self._nursery.start("engine-events", self._follow())
        self._nursery.start("engine-compare", self._compare_sometimes())

    async def take(self, tasks: Iterable[acs_task.Task], sequence: int) -> None:
        """Take in tasks of one message; durable when it returns. A known task's wish only moves forward."""
        now = self._context.clock()
        fresh, wishes = [], []
        for task in tasks:
            arn = task.arn or ""
            stopped = task.desired_status == "STOPPED"
            runner = self._runners.get(arn)
            if runner is None:
                desired = DesiredTask(task=task, stopped=stopped, sequence=sequence)
                fresh.append(Saved(desired=desired, known=core.accept(desired, now)))
            elif stopped and not runner.desired.stopped:
                desired = msgspec.structs.replace(runner.desired, stopped=True, sequence=sequence)
                wishes.append((runner, Saved(desired=desired, known=runner.known)))
        await self._checkpoint.accept([*fresh, *(saved for _, saved in wishes)], sequence)
        for saved in fresh:
            log.info("task accepted", extra={"task": saved.desired.arn, "stopped": saved.desired.stopped})
            self._add(saved.desired, saved.known, restored=False)
        for runner, _ in wishes:
            runner.post(Wish())

    def reject(self, arn: str, reason: str) -> None:
        """Report the end of a task that cannot be taken in."""
        log.warning("task rejected", extra={"task": arn, "reason": reason})
        if arn and arn not in self._runners and self._reporter is not None:
            now = self._context.clock()
            self._reporter.report(KnownTask(arn=arn, status=TaskStatus.STOPPED, reason=reason, stopped_at=now))

    def stop(self, arns: Iterable[str], reason: str) -> None:
        for arn in arns:
            runner = self._runners.get(arn)
            if runner is not None:
                runner.post(Wish(reason))

    def acknowledged(self, arn: str, report: KnownTask) -> None:
        runner = self._runners.get(arn)
        if runner is not None:
            runner.post(Acknowledged(report))
        elif self._reporter is not None:
            self._reporter.forget(arn)

    async def leave_nothing(self, deadline: float) -> bool:
        """Stop every task and remove what it left; False when the deadline came first."""
        for runner in self._runners.values():
            runner.hurry()
            runner.post(Wish("the agent is leaving"))
        try:
            async with asyncio.timeout(deadline):
                await self._empty.wait()
        except TimeoutError:
            log.error("tasks are left behind", extra={"tasks": len(self._runners)})
            return False
        return True

    def _add(self, desired: DesiredTask, known: KnownTask, *, restored: bool) -> None:
        assert self._reporter is not None
        hooks = Hooks(changed=self._checkpoint.changed, report=self._reporter.report, forget=self._forget)
        runner = Runner(self._context, hooks, self._nursery, desired, known)
        self._runners[desired.arn] = runner
        self._empty.clear()
        self._nursery.start(f"run-{runner.task_id}", self._run(runner, restored=restored))

    async def _run(self, runner: Runner, *, restored: bool) -> None:
        await runner.run(restored=restored)
        del self._runners[runner.arn]
        if not self._runners:
            self._empty.set()

    async def _forget(self, arn: str) -> None:
        if self._reporter is not None:
            self._reporter.forget(arn)
        await self._checkpoint.forget(arn)

    async def _follow(self) -> None:
        """Events, for ever; a broken stream is opened again and what it may have missed is looked for."""
        delays = EVENTS_BACKOFF.delays()
        while True:
            try:
                async with self._context.runtime.events() as events:
                    self.answering = True
                    delays = EVENTS_BACKOFF.delays()
                    await self.compare()
                    async for event in events:
                        if event.kind in _TELLING and event.labels.get(INSTANCE_LABEL) == self._instance:
                            self._notice(event.labels)
            except (Unavailable, Refused) as error:
                if self.answering:
                    log.warning("engine events broke off", extra={"reason": str(error)})
                self.answering = False
            await asyncio.sleep(next(delays))

    @property
    def _instance(self) -> str:
        return self._context.identity.instance_arn

    def _notice(self, labels: Mapping[str, str]) -> None:
        runner = self._runners.get(labels.get(LABEL + "task-arn", ""))
        if runner is not None:
            runner.post(Look(labels.get(LABEL + "container-name", "")))

    async def _compare_sometimes(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            try:
                await self.compare()
            except (Unavailable, Refused) as error:
                log.warning("engine cannot be compared with", extra={"reason": str(error)})

    async def compare(self) -> None:
        """Look at every container whose state in the engine is not the known one."""
        listed = await self._context.runtime.list({INSTANCE_LABEL: self._instance})
        there = {(one.labels.get(LABEL + "task-arn"), one.labels.get(LABEL + "container-name")): one for one in listed}
        for runner in self._runners.values():
            for container in runner.known.containers:
                if differs(container.status, there.get((runner.arn, container.name))):
                    runner.post(Look(container.name))


def differs(status: ContainerStatus, there: ContainerBrief | None) -> bool:
    """Whether a container needs a look; one that is not made yet or already over needs none."""
    match status:
        case ContainerStatus.CREATED:
            return there is None or there.state is not State.CREATED
        case ContainerStatus.RUNNING:
            return there is None or there.state is not State.RUNNING
        case _:
            return False
