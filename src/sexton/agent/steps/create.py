"""Create the container, or find the one that an interrupted creation made.

The name follows from the task, so asking twice ends in a conflict instead of a second container; one of that name that
carries our labels is then taken as it is, and one that does not is left alone.
"""

from __future__ import annotations

from typing import Any

from sexton.agent.logs.driver import NoWay, options_of
from sexton.agent.networkfault import FAILED, NetworkFault
from sexton.agent.ports import NoPort
from sexton.agent.rolekeys import MissingRole
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.prepare import gave_up
from sexton.agent.steps.resolve import local_image
from sexton.agent.steps.values import NotFetched, fetch_values
from sexton.core import enginebody, portmap, reasons
from sexton.core.enginebody import INSTANCE_LABEL, LABEL, BadPayload, Sourced
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.host.taskcgroup import Limits
from sexton.runtime.contract import Conflict, ContainerInfo, Refused, TimedOut
from sexton.wire import acs_task

MIB = 1024 * 1024


async def create(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    task = desired.task
    name = enginebody.engine_name(task, known.name)
    labels = enginebody.labels(task, known.name, context.identity.cluster, context.identity.instance_arn)
    try:
        bindings = portmap.choose(task, container, context.ports.take)
        parent = await _cgroup(context, task)
        joins = await _network(context, desired)
        body = enginebody.create_body(
            task,
            container,
            labels=labels,
            bindings=bindings,
            cgroup_parent=parent,
            nvidia_runtime=context.settings.nvidia_runtime,
            inherited_memory=_inherited_memory(context, task),
            sourced=await _sourced(context, desired, container),
            told=context.variables(task, known.name),
            more_binds=context.files.prepare(desired, known) if context.files is not None else (),
            joins=joins,
        )
        await _log_ways(context, desired, container, body)
    except (BadPayload, portmap.BadMapping) as error:
        return _failed(context, known, str(error))
    except (NotFetched, NetworkFault) as error:
        return gave_up(context, known, str(error))
    except NoWay as error:
        return _failed(context, known, f"CannotStartContainerError: failed to initialize logging driver: {error}")
    except NoPort as error:
        return _failed(context, known, f"CannotCreateContainerError: {error}")
    except OSError as error:
        return _failed(context, known, f"CgroupError: Agent could not create task's platform resources: {error}")
    try:
        runtime_id = await context.runtime.create(name, body)
    except Conflict:
        info = await context.runtime.inspect(name)
        if not _ours(info, labels):
            return _failed(context, known, f"CannotCreateContainerError: the name {name} is taken by another container")
        runtime_id = info.id
        bindings = ()  # not those chosen just now; the engine tells the others once it runs
    except TimedOut as error:  # what it still makes is found by its name when the task is cleaned up
        return _failed(context, known, reasons.timed_out(reasons.CREATED, error.after))
    except Refused as error:
        return _failed(context, known, f"CannotCreateContainerError: {error}")
    context.supplies.handed_over(desired.arn, known.name)
    return Event(
        container=known.name,
        happened=Happened.CREATED,
        time=context.clock(),
        runtime_id=runtime_id,
        bindings=bindings,
        created_at=context.clock(),
    )


async def _sourced(context: StepContext, desired: DesiredTask, container: acs_task.Container) -> Sourced:
    """What comes from elsewhere; fetched here only when whoever fetched it before did not live to hand it over."""
    values = context.supplies.values(desired.arn, container.name or "")
    if values is None:
        values = await fetch_values(context, desired, container)
    variables = context.supplies.variables(container.image or "")
    if variables is None:
        image = await local_image(context, container.image or "")
        variables = image.variables if image else ()  # not here: the creation says so in the engine's words
    return Sourced(values, context.settings.region, variables)


async def _network(context: StepContext, desired: DesiredTask) -> str:
    """The container whose network a task with one of its own shares."""
    if desired.task.network_mode != "awsvpc":
        return ""
    if context.networks is None:
        raise NetworkFault(FAILED + "this host cannot give tasks a network of their own")
    try:
        return await context.networks.join(desired)
    except Refused as error:
        raise NetworkFault(FAILED + str(error)) from None


async def _log_ways(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, body: dict[str, Any]
) -> None:
    """What the container writes by the driver awslogs goes through this host's relay."""
    log = options_of(body)
    if log is None or context.logs is None:
        return
    if container.logs_auth_strategy:
        try:
            await context.supplies.roles.execution(desired.task)
        except MissingRole as error:
            raise NoWay(str(error)) from None
    options = {str(name): str(value) for name, value in (log.get("Config") or {}).items()}
    log["Config"] = await context.logs.prepare(desired.arn, container.name or "", options, container.logs_auth_strategy)


async def _cgroup(context: StepContext, task: acs_task.Task) -> str:
    """The task's own cgroup with its limits, made before the first container needs it."""
    if context.cgroups is None:
        return ""
    task_id = (task.arn or "").rpartition("/")[2]
    if context.settings.task_limits:
        shares = sum(max(one.cpu or 0, enginebody.LEAST_SHARES) for one in task.containers or ())
        limits = Limits(
            cpu_shares=None if task.cpu else min(shares, enginebody.MOST_SHARES),
            cpu_quota=task.cpu,
            cpu_period=context.settings.cpu_period,
            memory=task.memory * MIB if task.memory else None,
            pids=context.settings.pids_limit or None,
        )
        await context.cgroups.prepare(task_id, limits)
    return context.cgroups.parent(task_id)


def _inherited_memory(context: StepContext, task: acs_task.Task) -> int:
    """What a container that names no limit is held to, in MiB, so that what runs in it sees its task's limit."""
    settings = context.settings
    told = settings.propagate_memory_limit and settings.task_limits and context.cgroups is not None
    return task.memory or 0 if told and context.cgroups is not None and context.cgroups.unified else 0


def _ours(info: ContainerInfo, labels: dict[str, str]) -> bool:
    return all(info.labels.get(key) == labels[key] for key in (LABEL + "task-arn", INSTANCE_LABEL))


def _failed(context: StepContext, known: KnownContainer, error: str) -> Event:
    return Event(container=known.name, happened=Happened.GAVE_UP, time=context.clock(), error=error)
