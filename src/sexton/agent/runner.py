"""Drives one task from its acceptance to the removal of its last trace.

One runner per task, so tasks never wait for each other. Events of the engine, wishes of the control plane and results
of its own steps arrive in one mailbox; each is applied to the known value by ``core.task``, and what may move next is
started. Per container at most one step is under way. When the task has stopped, its cgroup is drained and removed at
once, its containers when their time is over and the control plane has acknowledged the end.

A step that gets no answer is not failed: an engine that restarts must not cost a task its life. But the call may have
had its effect, so what follows is a look at the container, and then whatever is the next step by that time. After a
restart of this process a runner begins in the same way, by looking where each container is.

Containers that wait for others are looked at again every few seconds, whatever events may have been lost.

    accepted -> (look) -> steps until STOPPED -> drained -> acknowledged -> removed -> forgotten
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from sexton.agent.admission import Admission, Waiting
from sexton.agent.steps.context import Step, StepContext
from sexton.agent.steps.create import create
from sexton.agent.steps.look import look
from sexton.agent.steps.prepare import prepare
from sexton.agent.steps.remove import remove
from sexton.agent.steps.resolve import resolve
from sexton.agent.steps.start import start
from sexton.agent.steps.stop import stop
from sexton.core import ordering
from sexton.core import task as core
from sexton.core.hostpool import share_of
from sexton.core.names import last_part
from sexton.core.task import ContainerStatus, DesiredTask, Event, Happened, KnownTask, TaskStatus
from sexton.host.network import NetworkError
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import Refused, RuntimeFault, Unavailable

log = logging.getLogger(__name__)

STEPS: dict[core.Step, Step] = {
    core.Step.RESOLVE: resolve,
    core.Step.PULL: prepare,
    core.Step.CREATE: create,
    core.Step.START: start,
    core.Step.STOP: stop,
}

# While the engine is away, each container is looked for at this pace.
ENGINE_BACKOFF = Backoff(first=0.1, cap=3.0)
# An engine that answers no to a stop or an inspect has a trouble of its own, which may last.
REFUSED_BACKOFF = Backoff(first=1.0, cap=60.0)
# Removing what is left is never given up, and never urgent.
CLEAN_BACKOFF = Backoff(first=1.0, cap=60.0)
# The engine removes a container's cgroup shortly after it says that the container died.
RECLAIM_BACKOFF = Backoff(first=0.05, cap=1.0)
RECLAIM_TRIES = 12
# After so many tries, a few seconds, nothing in there is on its way out by itself.
RECLAIM_PATIENCE = 8


class Wish(NamedTuple):
    """The control plane wants the task stopped."""

    reason: str = ""


class Acknowledged(NamedTuple):
    """The control plane has taken this report."""

    report: KnownTask


class Look(NamedTuple):
    """A container may have changed: see where it is. ``started`` is when it was last said to run."""

    container: str
    started: float = 0.0


class StepDone(NamedTuple):
    """A step has ended; without an event it was called off, or nobody knows what came of it."""

    container: str
    event: Event | None
    unanswered: bool = False


class Admitted(NamedTuple):
    """The host has room for the task now."""


class Finished(NamedTuple):
    """Nothing of the task is left."""


Letter = Wish | Acknowledged | Look | StepDone | Admitted | Finished


class Work(NamedTuple):
    """A step under way."""

    step: Step
    task: asyncio.Task[None]
    since: float


class Hooks(NamedTuple):
    """Whom a runner tells: the checkpoint of each change, the reporter of what the control plane should know."""

    changed: Callable[[DesiredTask, KnownTask], None]
    report: Callable[[KnownTask], None]
    forget: Callable[[str], Awaitable[None]]
    admission: Admission
    health: Callable[[], None] = lambda: None


class Runner:
    """One task."""

    def __init__(
        self, context: StepContext, hooks: Hooks, nursery: Nursery, desired: DesiredTask, known: KnownTask
    ) -> None:
        self.desired = desired
        self.known = known
        self._context = context
        self._hooks = hooks
        self._nursery = nursery
        self._mail: asyncio.Queue[Letter] = asyncio.Queue()
        self._busy: dict[str, Work] = {}
        self._waits: dict[tuple[str, type[RuntimeFault]], Iterator[float]] = {}
        self._look_again: set[str] = set()
        self._containers = {one.name or "": one for one in desired.task.containers or ()}
        self._share = share_of(desired.task)
        self._admitted = False
        self._born: dict[str, float] = {}  # when each container was first started, by the loop's clock
        self.waits: tuple[ordering.Edge, ...] = ()  # who may not move yet, and for whom
        self._hurry = asyncio.Event()
        self._heard = asyncio.Event()  # the control plane knows of the end
        if known.sent is TaskStatus.STOPPED:
            self._heard.set()

    @property
    def arn(self) -> str:
        return self.desired.arn

    @property
    def task_id(self) -> str:
        return last_part(self.arn)

    @property
    def waiting(self) -> Waiting | None:
        """What the task waits for before it can begin, if it does."""
        return self._hooks.admission.waiting(self.arn)

    def under_way(self) -> dict[str, Work]:
        """The steps that are being taken now, by container."""
        return dict(self._busy)

    def post(self, letter: Letter) -> None:
        self._mail.put_nowait(letter)

    def want(self, desired: DesiredTask) -> None:
        """Every state that is saved from now on carries this wish; a ``Wish`` makes the runner act on it."""
        self.desired = desired

    def hurry(self) -> None:
        """Remove what is left as soon as the task has stopped, not waiting for anybody."""
        self._hurry.set()

    async def run(self, *, restored: bool) -> None:
        """The whole life; ``restored`` when this process did not see it from the start."""
        if restored:
            await self._find_out()
        self._enter()
        if core.unreported(self.known):
            self._hooks.report(self.known)
        finishing = False
        while True:
            if self.known.status is not TaskStatus.STOPPED:
                self._move()
            elif not self._busy and not finishing:
                finishing = True
                self._nursery.start(f"finish-{self.task_id}", self._finish())
            letter = await self._next_letter()
            if isinstance(letter, Finished):
                return
            if letter is None:
                for name in {edge.on for edge in self.waits} - set(self._busy):
                    if self.known.container(name).status in (ContainerStatus.CREATED, ContainerStatus.RUNNING):
                        self._look(name)
            else:
                self._apply(letter)

    def hold(self) -> None:
        """Take the task's share of the host again, without asking: an earlier process had let it begin."""
        live = any(one.status not in (ContainerStatus.NONE, ContainerStatus.STOPPED) for one in self.known.containers)
        if live and self.known.status is not TaskStatus.STOPPED:
            self._admitted = True
            self._hooks.admission.claim(self.arn, self._share)

    def _enter(self) -> None:
        """Ask for the task's share of the host, unless it has it or needs none."""
        if self._admitted or self.known.status is TaskStatus.STOPPED or core.ends(self.desired, self.known):
            self._admitted = True
        elif any(one.status.rank >= ContainerStatus.CREATED.rank for one in self.known.containers):
            self.hold()  # it had begun, which was written down nowhere but in the engine
        elif missing := self._hooks.admission.unknown(self._share):
            reason = f"ResourceInitializationError: this host has no GPU {', '.join(sorted(missing))}"
            self._set(core.end(self.desired, self.known, self._context.clock(), reason))
        else:
            self._admitted = self._hooks.admission.ask(self.arn, self._share, lambda: self.post(Admitted()))

    async def _find_out(self) -> None:
        """See where every container is before anything is done to it."""
        if self.known.status is not TaskStatus.STOPPED:
            for one in self.known.containers:
                if one.status is not ContainerStatus.STOPPED:
                    self._begin(one.name, look)
        while self._busy:
            self._apply(await self._mail.get())

    async def _next_letter(self) -> Letter | None:
        """None when somebody has waited for another container long enough to look whether an event was lost."""
        if not self.waits:
            return await self._mail.get()
        try:
            async with asyncio.timeout(ordering.LOOK_SECONDS):
                return await self._mail.get()
        except TimeoutError:
            return None

    def _move(self) -> None:
        if not self._admitted and not core.ends(self.desired, self.known):
            return
        view = self._outlook()
        while view.ends:  # each may be the reason of another
            for event in view.ends:
                self._observe(event)
            view = self._outlook()
        self._say_waits(view.waits)
        for move in view.moves:
            if move.container not in self._busy:
                if move.step is core.Step.PULL:
                    self._set(core.pulling(self.known, started=self._context.clock()))
                self._begin(move.container, STEPS[move.step])

    def _outlook(self) -> ordering.Outlook:
        now, steady = self._context.clock(), asyncio.get_running_loop().time()
        for one in self.known.containers:
            if one.started_at and one.name not in self._born:
                self._born[one.name] = steady - max(0.0, now - one.started_at)
        ages = {name: steady - born for name, born in self._born.items()}
        return ordering.outlook(self.desired, self.known, ages, now, upfront=self._context.settings.pull_upfront)

    def _say_waits(self, waits: tuple[ordering.Edge, ...]) -> None:
        for edge in set(waits) - set(self.waits):
            log.info(
                "container waits",
                extra={"task": self.arn, "container": edge.container, "for": edge.on, "until": str(edge.condition)},
            )
        self.waits = waits

    def _begin(self, container: str, step: Step) -> None:
        name = f"{step.__name__}-{self.task_id}-{container}"
        attempt = self._nursery.start(name, self._attempt(container, step))
        self._busy[container] = Work(step, attempt, self._context.clock())

    async def _attempt(self, container: str, step: Step) -> None:
        """One step, and the wait after one that got no answer."""
        event: Event | None = None
        unanswered = False
        try:
            event = await step(
                self._context, self.desired, self._containers[container], self.known.container(container)
            )
        except (Unavailable, Refused) as error:
            unanswered = True
            await asyncio.sleep(self._pause(container, step, error))
        except Exception as error:
            # The edge of one task: a fault of ours ends this task with a reason instead of the whole agent.
            log.exception("step failed", extra={"task": self.arn, "container": container, "step": step.__name__})
            event = Event(
                container=container,
                happened=Happened.GAVE_UP,
                time=self._context.clock(),
                error=f"UnknownError: {type(error).__name__}: {error}",
            )
        finally:
            self.post(StepDone(container, event, unanswered))

    def _pause(self, container: str, step: Step, error: RuntimeFault) -> float:
        """How long to wait before this container is looked at again; said once per trouble."""
        kind, backoff = (Unavailable, ENGINE_BACKOFF) if isinstance(error, Unavailable) else (Refused, REFUSED_BACKOFF)
        if (container, kind) not in self._waits:
            self._waits[container, kind] = backoff.delays()
            log.warning(
                "step waits for the engine",
                extra={"task": self.arn, "container": container, "step": step.__name__, "reason": str(error)},
            )
        return next(self._waits[container, kind])

    def _apply(self, letter: Letter) -> None:
        match letter:
            case StepDone(container, event, unanswered):
                done = self._busy.pop(container, None)
                if event is not None:
                    self._answered(container, done)
                    self._observe(event)
                if unanswered:
                    self._look_again.add(container)
                if container in self._look_again:
                    self._look_again.discard(container)
                    self._look(container)
            case Look(container, started):
                self._stop_again(container, started)
                if not self._own_echo(container, started):
                    self._look(container)
            case Wish(reason):
                self.want(msgspec.structs.replace(self.desired, stopped=True))
                if not self.known.stop:
                    log.info("task is to stop", extra={"task": self.arn, "reason": reason})
                self._set(core.end(self.desired, self.known, self._context.clock(), reason), force=True)
                self._call_off()
            case Admitted():
                self._admitted = True
            case Acknowledged(report):
                self._set(core.acknowledged(self.known, report))
        if self.known.sent is TaskStatus.STOPPED:
            self._heard.set()

    def _answered(self, container: str, done: Work | None) -> None:
        """The engine is there; only more than a look shows that it does what it is asked again."""
        self._waits.pop((container, Unavailable), None)
        if done is not None and done.step is not look:
            self._waits.pop((container, Refused), None)

    def _look(self, container: str) -> None:
        if self.known.status is TaskStatus.STOPPED or container not in self._containers:
            return
        if self.known.container(container).status is ContainerStatus.STOPPED:
            return
        if container in self._busy:
            self._look_again.add(container)  # what is under way may have begun before the change
        else:
            self._begin(container, look)

    def _own_echo(self, container: str, started: float) -> bool:
        """Whether a start that the engine tells of is our own. With fifty at once, a look at each is a good part of
        what they cost the engine; one with a health check is looked at, since its engine has more to say."""
        one = self._containers.get(container)
        if not started or one is None or one.health_check_type:
            return False
        work = self._busy.get(container)
        if work is not None:
            return work.step is start
        known = self.known.container(container)
        return known.status is ContainerStatus.RUNNING and not known.restarting and started <= known.running_since

    def _stop_again(self, container: str, started: float) -> None:
        """One that was over and runs is stopped once; whoever starts it a second time after that means it."""
        if container not in self._containers or container in self._busy:
            return
        one = self.known.container(container)
        if one.status is not ContainerStatus.STOPPED or one.stopped_again or started <= one.finished_at:
            return
        log.warning("container runs after its end and is stopped", extra={"task": self.arn, "container": container})
        self._set(self.known.change(container, stopped_again=True))
        self._begin(container, stop)

    def _observe(self, event: Event) -> None:
        verdict = core.restart_verdict(self.desired, self.known, event)
        policy = self._containers[event.container].restart_policy
        if policy is not None and policy.enabled and (verdict.again or verdict.why):
            log.info(
                "container ended and is started again" if verdict.again else "container ended and stays so",
                extra={
                    "task": self.arn,
                    "container": event.container,
                    "exit_code": str(event.exit_code),
                    "restarts": self.known.container(event.container).restarts,
                    "reason": verdict.why,
                },
            )
        known = core.observe(self.desired, self.known, event)
        if event.happened is Happened.PULLED:
            known = core.pulling(known, stopped=event.time)
        self._set(known)
        self._call_off()

    def _call_off(self) -> None:
        """A container that will never be made needs no image any more. A creation is left to end: a request that
        is on its way cannot be called back, and what it makes must be found when the task is cleaned up."""
        for one in self.known.containers:
            work = self._busy.get(one.name)
            if one.status is ContainerStatus.STOPPED and work is not None and work.step is prepare:
                work.task.cancel()

    def _set(self, known: KnownTask, *, force: bool = False) -> None:
        if known == self.known and not force:
            return
        before, self.known = self.known, known
        if known.status is TaskStatus.STOPPED:
            self._hooks.admission.leave(self.arn)  # before anybody is told: what it held is free
        self._say(before)
        self._hooks.changed(self.desired, known)
        if core.unreported(known):
            self._hooks.report(known)

    def _say(self, before: KnownTask) -> None:
        """One line per state change, with its cause."""
        for old, new in zip(before.containers, self.known.containers, strict=True):
            if new.health is not None and (old.health is None or old.health.status != new.health.status):
                # Without what the check wrote: nobody knows what is in it.
                facts = {"task": self.arn, "container": new.name, "is": new.health.status}
                log.info("container health changed", extra=facts)
                self._hooks.health()
            if old.status is not new.status:
                facts = {"task": self.arn, "container": new.name, "was": str(old.status), "is": str(new.status)}
                if new.status is ContainerStatus.STOPPED:
                    facts |= {"exit_code": str(new.exit_code), "reason": new.reason}
                log.info("container changed", extra=facts)
        if before.status is not self.known.status:
            log.info(
                "task changed",
                extra={
                    "task": self.arn,
                    "was": str(before.status),
                    "is": str(self.known.status),
                    "reason": self.known.reason,
                },
            )

    async def _finish(self) -> None:
        """From the end of the last container to the end of everything."""
        await self._release_network()
        await self._reclaim()
        waits = [asyncio.ensure_future(self._hurry.wait()), asyncio.ensure_future(self._rest())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        for delay in CLEAN_BACKOFF.delays():
            try:
                await remove(self._context, self.desired, self.known)
                break
            except (Unavailable, Refused) as error:
                log.warning("task cannot be removed yet", extra={"task": self.arn, "reason": str(error)})
            await asyncio.sleep(delay)
        await self._reclaim()  # what was in the way before may be gone with the containers
        await self._hooks.forget(self.arn)
        log.info("task removed", extra={"task": self.arn})
        self.post(Finished())

    async def _release_network(self) -> None:
        """The task's own network goes once nothing runs in it any more; where it is ours, the task ends with that."""
        networks = self._context.networks
        if networks is not None and self.desired.task.network_mode == "awsvpc":
            for delay in CLEAN_BACKOFF.delays():
                try:
                    await networks.release(self.desired)
                    break
                except (RuntimeFault, NetworkError) as error:
                    log.warning("network cannot be removed yet", extra={"task": self.arn, "reason": str(error)})
                await asyncio.sleep(delay)
        if self.known.wired:
            self._set(msgspec.structs.replace(self.known, wired=False))

    async def _reclaim(self) -> None:
        """Drain and remove the task's cgroup; the engine may still be removing what is below it."""
        cgroups = self._context.cgroups
        if cgroups is None or self.known.reclaimed:
            return
        for attempt, delay in enumerate(islice(RECLAIM_BACKOFF.delays(), RECLAIM_TRIES), start=1):
            if await cgroups.reclaim(self.task_id):
                self._set(msgspec.structs.replace(self.known, reclaimed=True))
                return
            if attempt == RECLAIM_PATIENCE:
                # Every container of the task has stopped: what still runs here is what an engine lost sight of.
                lost = cgroups.kill(self.task_id)
                if lost:
                    log.warning("lost processes killed", extra={"task": self.arn, "processes": lost})
            await asyncio.sleep(delay)
        log.warning("task cgroup is still in use", extra={"task": self.arn})

    async def _rest(self) -> None:
        """The time a stopped task's containers are kept, and until its end has been acknowledged."""
        await self._heard.wait()
        settings = self._context.settings
        wait = settings.cleanup_wait + random.uniform(0.0, settings.cleanup_jitter)  # noqa: S311 - guards nothing
        left = self.known.stopped_at + wait - self._context.clock()
        await asyncio.sleep(max(left, 0.0))
