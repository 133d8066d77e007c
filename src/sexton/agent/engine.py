"""All tasks of this host: takes them in, keeps a runner for each, and keeps what is known in line with the engine.

Engine events are hints: each leads to a look at its container. Whenever the event stream was broken, and once in a
while besides, everything that should be there is compared with a list from the engine, so that what was missed,
killed or removed behind our back is noticed. Tasks survive restarts through the checkpoint; containers are found
again by their recorded id or their name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from sexton.agent.admission import Admission
from sexton.agent.checkpoint import Checkpoint, Saved
from sexton.agent.payload import UNREADABLE_TASK
from sexton.agent.reporter import Reporter
from sexton.agent.runner import Acknowledged, Hooks, Look, Runner, Wish
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.look import lost
from sexton.core import sandbox
from sexton.core import task as core
from sexton.core.enginebody import INSTANCE_LABEL, LABEL, engine_name
from sexton.core.names import last_part
from sexton.core.task import ContainerStatus, DesiredTask, KnownTask, TaskStatus
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import ContainerBrief, Event, EventKind, Refused, State, Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# Events that may mean a change of a container's state; the rest are echoes of our own calls.
_TELLING = frozenset({EventKind.START, EventKind.DIE, EventKind.DESTROY, EventKind.OOM, EventKind.HEALTH})
# Nobody here asks for these: somebody else did it.
_FOREIGN = frozenset({EventKind.PAUSE, EventKind.UNPAUSE})
_ENDED = frozenset({EventKind.DIE, EventKind.DESTROY})
EVENTS_BACKOFF = Backoff(first=0.1, cap=5.0)
# Comparing costs one call however many containers there are.
COMPARE_SECONDS = 60.0
# Seeing whether running containers still hold a process costs one small file each, and the engine nothing.
PRESENCE_SECONDS = 10.0
# How often it is looked whether all tasks have stopped, when they are to.
STOPPED_SECONDS = 0.1


class Engine:
    """The tasks of one container instance."""

    def __init__(
        self, context: StepContext, checkpoint: Checkpoint, nursery: Nursery, admission: Admission | None = None
    ) -> None:
        self.admission = admission or Admission()
        self._context = context
        self._checkpoint = checkpoint
        self._nursery = nursery
        self._runners: dict[str, Runner] = {}
        self._reporter: Reporter | None = None
        self._taking = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()
        self.health_changed = asyncio.Event()  # whoever reports it clears it
        self._was_away = False
        self.on_oom: Callable[[Runner, str], None] = lambda runner, container: None
        self.on_stopped: Callable[[DesiredTask], None] = lambda desired: None
        self.answering = False  # whether the engine's event stream is up

    def runners(self) -> tuple[Runner, ...]:
        return tuple(self._runners.values())

    def find(self, arn: str) -> Runner | None:
        return self._runners.get(arn)

    def start(self, reporter: Reporter, saved: Iterable[Saved]) -> None:
        """Take up what an earlier process left, and begin to watch the engine."""
        self._reporter = reporter
        saved = list(saved)
        if self._context.files is not None:
            self._context.files.keep_only(one.desired.arn for one in saved)
        for one in saved:
            self._add(one.desired, one.known, restored=True)
        self._nursery.start("engine-events", self._follow())
        self._nursery.start("engine-compare", self._compare_sometimes())
        self._nursery.start("engine-presence", self._watch_presence())

    async def take(self, tasks: Iterable[acs_task.Task], sequence: int) -> None:
        """Take in tasks of one message; durable when it returns. A known task's wish only moves forward."""
        async with self._taking:  # one message after the other: a task that comes in two runs once
            now = self._context.clock()
            fresh: dict[str, Saved] = {}
            wishes: dict[str, Saved] = {}
            ids = {runner.task_id: arn for arn, runner in self._runners.items()}
            for task in tasks:
                arn = task.arn or ""
                if ids.setdefault(last_part(arn), arn) != arn:
                    # Rows, cgroups and containers are named after the id: two of one would be each other's end.
                    self.reject(arn, f"{UNREADABLE_TASK}its id is that of another task, {ids[last_part(arn)]}")
                    continue
                stopped = task.desired_status == "STOPPED"
                runner = self._runners.get(arn)
                if runner is not None:
                    if stopped and not runner.desired.stopped:
                        # At once, not after the write: nothing older may be saved over it meanwhile.
                        runner.want(msgspec.structs.replace(runner.desired, stopped=True, sequence=sequence))
                    if stopped and not runner.known.stop:
                        wishes[arn] = Saved(desired=runner.desired, known=runner.known)
                elif stopped or arn not in fresh:
                    desired = DesiredTask(task=task, stopped=stopped, sequence=sequence)
                    fresh[arn] = Saved(desired=desired, known=core.accept(desired, now))
            await self._checkpoint.accept([*fresh.values(), *wishes.values()], sequence)
            for saved in fresh.values():
                log.info("task accepted", extra={"task": saved.desired.arn, "stopped": saved.desired.stopped})
                self._add(saved.desired, saved.known, restored=False)
            for arn in wishes:
                if arn in self._runners:
                    self._runners[arn].post(Wish())

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

    async def stop_all(self, reason: str, deadline: float) -> bool:
        """Stop every task in its own time and have it reported; False when the deadline came first."""
        self.stop(list(self._runners), reason)
        loop = asyncio.get_running_loop()
        ends = loop.time() + deadline
        while any(one.known.sent is not TaskStatus.STOPPED for one in self._runners.values()):
            if loop.time() >= ends:
                return False
            await asyncio.sleep(STOPPED_SECONDS)
        return True

    def _add(self, desired: DesiredTask, known: KnownTask, *, restored: bool) -> None:
        assert self._reporter is not None
        hooks = Hooks(
            changed=self._changed,
            report=self._reporter.report,
            forget=self._forget,
            admission=self.admission,
            health=self.health_changed.set,
        )
        runner = Runner(self._context, hooks, self._nursery, desired, known)
        if restored:
            runner.hold()
            if self._context.files is not None:
                self._context.files.changed(desired, known)
        self._runners[desired.arn] = runner
        self._context.supplies.expect_keys(desired.task, stopped=known.status is TaskStatus.STOPPED)
        self._empty.clear()
        self._nursery.start(f"run-{runner.task_id}", self._run(runner, restored=restored))

    def _changed(self, desired: DesiredTask, known: KnownTask) -> None:
        if known.status is TaskStatus.STOPPED:
            self._context.supplies.roles.stopped(desired.arn)
            self.on_stopped(desired)
        self._checkpoint.changed(desired, known)
        if self._context.files is not None:
            self._context.files.changed(desired, known)

    async def _run(self, runner: Runner, *, restored: bool) -> None:
        await runner.run(restored=restored)
        del self._runners[runner.arn]
        if not self._runners:
            self._empty.set()

    async def _forget(self, arn: str) -> None:
        self._context.supplies.forget(arn)
        if self._reporter is not None:
            self._reporter.forget(arn)
        await self._checkpoint.forget(arn)

    async def _follow(self) -> None:
        """Events, for ever; a broken stream is opened again and what it may have missed is looked for."""
        delays = EVENTS_BACKOFF.delays()
        while True:
            try:
                async with self._context.runtime.events() as events:
                    if self._was_away:
                        log.info("engine events arrive again")
                    self.answering, self._was_away = True, False
                    await self.compare()
                    delays = EVENTS_BACKOFF.delays()
                    async for event in events:
                        if event.labels.get(INSTANCE_LABEL) == self._instance:
                            self._notice(event)
                        elif event.labels.get(sandbox.LABEL) == self._instance and event.kind in _ENDED:
                            self._notice_sandbox(event)
            except (Unavailable, Refused) as error:
                if self.answering:
                    log.warning("engine events broke off", extra={"reason": str(error)})
                    self._was_away = True
                self.answering = False
            await asyncio.sleep(next(delays))

    @property
    def _instance(self) -> str:
        return self._context.identity.instance_arn

    def _notice(self, event: Event) -> None:
        runner = self._runners.get(event.labels.get(LABEL + "task-arn", ""))
        if runner is None:
            return
        container = event.labels.get(LABEL + "container-name", "")
        if event.kind in _FOREIGN:
            log.warning(
                "container was touched by somebody else",
                extra={"task": runner.arn, "container": container, "what": str(event.kind)},
            )
        elif event.kind in _TELLING:
            if event.kind is EventKind.OOM:
                self.on_oom(runner, container)
            runner.post(Look(container, event.time if event.kind is EventKind.START else 0.0))

    def _notice_sandbox(self, event: Event) -> None:
        """What holds a task's network is gone: the task can have no restart and no new container any more."""
        if self._context.networks is None:
            return
        arn = self._context.networks.gone(event.container_id)
        if arn in self._runners:
            self._runners[arn].post(Wish("ContainerNetworkingError: what held the task's network has ended"))

    async def _watch_presence(self) -> None:
        """Look at containers whose last process is gone without a word of the engine."""
        while True:
            await asyncio.sleep(PRESENCE_SECONDS)
            for runner in self.runners():
                for one in runner.known.containers:
                    running = one.status is ContainerStatus.RUNNING and not one.restarting and one.runtime_id
                    if running and lost(self._context, runner.desired, one.runtime_id):
                        runner.post(Look(one.name))

    async def _compare_sometimes(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            try:
                await self.compare()
            except (Unavailable, Refused) as error:
                log.warning("engine cannot be compared with", extra={"reason": str(error)})

    async def compare(self) -> None:
        """Look at every container whose state in the engine is not the known one; remove those of no task."""
        listed = await self._context.runtime.list({INSTANCE_LABEL: self._instance})
        there = {(one.labels.get(LABEL + "task-arn"), one.labels.get(LABEL + "container-name")): one for one in listed}
        for runner in self._runners.values():
            for container in runner.known.containers:
                brief = there.get((runner.arn, container.name))
                if differs(container.status, brief):
                    runs = brief is not None and brief.state is State.RUNNING
                    runner.post(Look(container.name, self._context.clock() if runs else 0.0))
        for one in listed:
            if made_by_us(one) and one.labels.get(LABEL + "task-arn", "") not in self._runners:
                # An interrupted creation that the engine finished only after its task was forgotten.
                log.warning("container of no task is removed", extra={"container": one.name})
                await self._context.runtime.remove(one.id, force=True)


def differs(status: ContainerStatus, there: ContainerBrief | None) -> bool:
    """Whether a container needs a look; one that is not made yet, or is over and does not run, needs none."""
    match status:
        case ContainerStatus.CREATED:
            return there is None or there.state is not State.CREATED
        case ContainerStatus.RUNNING:
            return there is None or there.state is not State.RUNNING
        case ContainerStatus.STOPPED:
            return there is not None and there.state is State.RUNNING
        case _:
            return False


def made_by_us(container: ContainerBrief) -> bool:
    """Whether we made a container that carries our labels: images hand labels on, but names are given by us alone."""
    task = acs_task.Task(
        arn=container.labels.get(LABEL + "task-arn"),
        family=container.labels.get(LABEL + "task-definition-family"),
        version=container.labels.get(LABEL + "task-definition-version"),
    )
    return container.name == engine_name(task, container.labels.get(LABEL + "container-name", ""))
