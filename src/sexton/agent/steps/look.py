"""See where a container really is, and say it as an event.

Used whenever events may have been missed: after a restart of this process or of the engine, after a "die" whose
details matter, and in the periodic comparison.

An engine whose containerd died can miss an end for ever and call a container running whose last process is gone. The
container's cgroup knows better; asked to stop such a container, the engine finds out as well, and knows its exit code.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from sexton.agent.steps.context import StepContext
from sexton.core import enginebody, portmap
from sexton.core.names import last_part
from sexton.core.task import Binding, ContainerStatus, DesiredTask, Event, Happened, Health, KnownContainer
from sexton.runtime.contract import ContainerInfo, NotFound, Refused, State, TimedOut
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# An end is noticed within milliseconds; a busy engine takes longer.
NOTICE_SECONDS = (0.5, 1.5)
# Asked to stop what is gone, the engine waits ten seconds for an event that never comes, and then finds out. It must
# have no reason to signal a second time meanwhile: it would find out twice, and the second finding, which has no exit
# code any more and says 255, overwrites the first.
FIND_OUT_SECONDS = 30.0
# As much as is kept of what a health check said.
HEALTH_OUTPUT = 1024


async def look(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    """What the engine knows of the container now."""
    ref = known.runtime_id or enginebody.engine_name(desired.task, known.name)
    try:
        info = await context.runtime.inspect(ref)
        # Asked once: one that ends between two looks at its cgroup is not missed, its event is on the way.
        missed = info.state is State.RUNNING and lost(context, desired, info.id)
        if missed:
            info, missed = await _found_out(context, desired, info)
    except NotFound:
        return _missing(context, known)
    if missed:
        return Event(
            container=known.name,
            happened=Happened.EXITED,
            time=context.clock(),
            runtime_id=info.id,
            error="DockerStateError: its process is gone, which the engine does not see",
            started_at=info.started_at,
        )
    seen = event_of(known.name, info, context.clock())
    # Whoever created it may have died before it could say which ports it gave; the engine knows. And nobody else knows
    # where it is published for the other family.
    known_all = known.bindings and context.settings.exclude_ipv6_bindings
    if known_all or seen.happened is not Happened.STARTED:
        return seen
    bindings = bindings_of(info, container, ipv6=not context.settings.exclude_ipv6_bindings)
    return msgspec.structs.replace(seen, bindings=bindings)


def lost(context: StepContext, desired: DesiredTask, runtime_id: str) -> bool:
    """Whether no process of a container is left on this host, whatever its engine believes."""
    if context.cgroups is None or not context.settings.docker_host.startswith("unix://"):
        return False  # nothing is known of its cgroup, or it is on another host
    return context.cgroups.empty(last_part(desired.arn), runtime_id)


async def _found_out(context: StepContext, desired: DesiredTask, info: ContainerInfo) -> tuple[ContainerInfo, bool]:
    """Give the engine a moment to notice an end by itself, and then a reason to look; whether it missed it for good."""
    for wait in NOTICE_SECONDS:
        await asyncio.sleep(wait)
        info = await context.runtime.inspect(info.id)
        if info.state is not State.RUNNING or not lost(context, desired, info.id):
            return info, False
    log.warning("engine calls a container running that has ended", extra={"task": desired.arn, "container": info.name})
    try:
        await context.runtime.stop(info.id, FIND_OUT_SECONDS)
    except (Refused, TimedOut) as error:
        log.warning("engine does not find out", extra={"task": desired.arn, "reason": str(error)})
    info = await context.runtime.inspect(info.id)
    return info, info.state is State.RUNNING and lost(context, desired, info.id)


def bindings_of(info: ContainerInfo, container: acs_task.Container, *, ipv6: bool = False) -> tuple[Binding, ...]:
    """Where a running container is published, as the engine says; the API speaks of IPv4 unless told otherwise."""
    ports = [(one.container_port, one.host_port, one.protocol, one.bind_ip) for one in info.ports]
    return portmap.seen(container, [port for port in ports if ipv6 or ":" not in port[3]])


def _missing(context: StepContext, known: KnownContainer) -> Event:
    if known.status.rank < ContainerStatus.CREATED.rank:
        # It was never made, which is no news: an event that changes nothing.
        return Event(container=known.name, happened=Happened.UNSEEN, time=context.clock())
    return Event(
        container=known.name,
        happened=Happened.VANISHED,
        time=context.clock(),
        error="ContainerVanishedError: No container matching saved ID found",
    )


def event_of(name: str, info: ContainerInfo, now: float) -> Event:
    """A container's state as an event."""
    if info.state is State.RUNNING:
        happened = Happened.STARTED
    elif info.state is State.EXITED and info.started_at:
        happened = Happened.EXITED
    else:
        happened = Happened.CREATED
    error = ""
    if info.oom_killed and happened is Happened.EXITED:
        error = "OutOfMemoryError: Container killed due to memory usage"
    elif info.error and happened is Happened.EXITED:
        error = f"DockerStateError: {info.error}"
    return Event(
        container=name,
        happened=happened,
        time=now,
        runtime_id=info.id,
        exit_code=info.exit_code if happened is Happened.EXITED else None,
        error=error,
        created_at=info.created_at,
        started_at=info.started_at,
        finished_at=info.finished_at if happened is Happened.EXITED else 0.0,
        health=_health(info),
    )


def _health(info: ContainerInfo) -> Health | None:
    """A check that has not come to a verdict yet knows nothing."""
    if not info.health:
        return None
    words = {"healthy": "HEALTHY", "unhealthy": "UNHEALTHY"}
    return Health(
        status=words.get(info.health, "UNKNOWN"),
        exit_code=info.health_exit_code,
        output=info.health_output[:HEALTH_OUTPUT],
    )
