"""From a payload message to tasks: each read by itself, so that a bad one costs only itself.

A task that cannot be read or cannot be done here is answered with its end and the reason, and keeps its message from
being acknowledged, as the control plane expects.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from sexton.agent.rolekeys import Sent
from sexton.core import enginebody, gpus, names, ordering, portmap
from sexton.core.enginebody import BadPayload
from sexton.core.taskroles import EXECUTION, TASK
from sexton.wire import acs_task
from sexton.wire.errors import UNREADABLE, WireError
from sexton.wire.network import PROTOCOL

log = logging.getLogger(__name__)

# The misspelling is the word on the wire.
UNREADABLE_TASK = "UnrecogniedTaskError: Error loading task - "

_MODES = ("bridge", "host", "none", "awsvpc", "")
# How an interface comes to a task: as a device of the host, or made here.
_PROTOCOLS = (None, "", "default", PROTOCOL)


class BadTask(NamedTuple):
    """A task that is not for this agent to run; its ARN, when it could be read, and why."""

    arn: str
    reason: str


class Payload(NamedTuple):
    """A payload message, taken apart."""

    message_id: str
    sequence: int
    tasks: tuple[acs_task.Task, ...]  # without the keys of their roles, since tasks are written down
    bad: tuple[BadTask, ...]
    roles: tuple[Sent, ...] = ()


class _Head(msgspec.Struct, rename="camel"):
    message_id: str
    cluster_arn: str
    container_instance_arn: str
    seq_num: int = -1
    tasks: tuple[msgspec.Raw, ...] = ()


class _Frame(msgspec.Struct):
    message: _Head


class _Named(msgspec.Struct):
    arn: str = ""


def read(frame: bytes) -> Payload:
    """Take a payload's frame apart. WireError when it lacks what every payload has."""
    try:
        head = msgspec.json.decode(frame, type=_Frame).message
    except UNREADABLE as error:
        raise WireError(f"cannot read payload: {error}") from None
    tasks, bad, roles = [], [], []
    for raw in head.tasks:
        try:
            task = msgspec.json.decode(raw, type=acs_task.Task)
            problem = wrong_with(task)
        except UNREADABLE as error:
            bad.append(BadTask(_arn_of(raw), f"{UNREADABLE_TASK}{error}"))
            continue
        if problem and task.arn:
            bad.append(BadTask(task.arn, problem))
        elif problem:
            bad.append(BadTask("", problem))
        else:
            roles += sent_roles(task)
            tasks.append(without_keys(task))
    return Payload(head.message_id, head.seq_num, tuple(tasks), tuple(bad), tuple(roles))


def sent_roles(task: acs_task.Task) -> list[Sent]:
    """The keys of a task's roles, as its payload brought them."""
    given = ((TASK, task.role_credentials), (EXECUTION, task.execution_role_credentials))
    return [Sent(task.arn or "", role, keys) for role, keys in given if keys is not None]


def without_keys(task: acs_task.Task) -> acs_task.Task:
    """A task as it may be written down: which roles it has, and nothing that could act as one."""
    return msgspec.structs.replace(
        task,
        role_credentials=_named_only(task.role_credentials),
        execution_role_credentials=_named_only(task.execution_role_credentials),
    )


def _named_only(keys: acs_task.IAMRoleCredentials | None) -> acs_task.IAMRoleCredentials | None:
    if keys is None:
        return None
    return acs_task.IAMRoleCredentials(credentials_id=keys.credentials_id, role_arn=keys.role_arn)


def _arn_of(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=_Named).arn
    except UNREADABLE:
        return ""


def wrong_with(task: acs_task.Task) -> str:
    """Why a task cannot be run here, or nothing. A task that is only to be stopped needs no more than its name."""
    if not task.arn:
        return UNREADABLE_TASK + "it has no ARN"
    if not task.arn.startswith("arn:") or names.parse_task(task.arn) is None:
        return UNREADABLE_TASK + "its ARN is not that of a task"  # files and cgroups are named after it
    if task.desired_status == "STOPPED":
        return ""
    called = [one.name or "" for one in task.containers or ()]
    if not called or not all(called) or len(set(called)) != len(called):
        return UNREADABLE_TASK + "its containers must have names, each its own"
    if not all(one.image for one in task.containers or ()):
        return UNREADABLE_TASK + "a container has no image"
    if (task.network_mode or "") not in _MODES:
        return f"ResourceInitializationError: network mode {task.network_mode} is not served by this agent yet"
    if not ordering.resolvable(task):
        return f"Task dependencies cannot be resolved, taskArn: {task.arn}"
    if "task" in (task.pid_mode, task.ipc_mode):
        return "ResourceInitializationError: pidMode and ipcMode task are not served by this agent yet"
    if text := gpus.problem(task):
        return f"ResourceInitializationError: resource cannot be initialized for task {task.arn}: {text}"
    return _unwirable(task) or _unserved(task) or _unbuildable(task)


def _unwirable(task: acs_task.Task) -> str:
    """Why a task with a network of its own cannot have it."""
    if task.network_mode != "awsvpc":
        return ""
    given = task.elastic_network_interfaces or ()
    if not given:
        return UNREADABLE_TASK + "it has network mode awsvpc and no interface"
    for one in given:
        if one.interface_association_protocol not in _PROTOCOLS:
            return (
                f"ResourceInitializationError: interface {one.ec2_id} is a {one.interface_association_protocol} "
                "interface, and this agent serves no trunk or branch interfaces"
            )
        if not one.mac_address or not one.ec2_id or not (one.ipv4_addresses or one.ipv6_addresses):
            return UNREADABLE_TASK + "an interface lacks its id, its hardware address or its addresses"
    if len(given) > 1:
        return "ResourceInitializationError: this agent gives a task one interface"
    return ""


def _unserved(task: acs_task.Task) -> str:
    """What a task asks for beyond what this agent advertises; it can only arrive here by mistake."""
    for container in task.containers or ():
        asked = {
            "firelensConfiguration": container.firelens_configuration,
        }
        for what, value in asked.items():
            if value:
                return (
                    f"ResourceInitializationError: {what} of container {container.name} is not served by this agent yet"
                )
    return ""


def _unbuildable(task: acs_task.Task) -> str:
    """Problems that would show when the containers are created; found before anything is started."""
    for container in task.containers or ():
        try:
            portmap.check(task, container)
            enginebody.create_body(task, container, labels={}, bindings=(), cgroup_parent="")
        except (BadPayload, portmap.BadMapping) as error:
            return str(error)
        except Exception as error:
            # The edge of one task: what nobody thought of costs this task, not the agent and all others.
            log.exception("task cannot be prepared", extra={"task": task.arn, "container": container.name})
            return f"{UNREADABLE_TASK}{type(error).__name__}: {error}"
    return ""
