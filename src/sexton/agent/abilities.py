"""What this host can do for tasks: limits of their own, networks of their own, and how much memory there is to give.

Looked at once at the start, before the host registers, since it advertises only what it can do. What it cannot do is
said once in the log, unless somebody insisted on it: then there is no agent.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import NamedTuple

from sexton.agent.standdown import StandDown
from sexton.host.taskcgroup import TaskCgroups
from sexton.host.taskslice import TaskSlices
from sexton.runtime.contract import EngineInfo
from sexton.settings import Settings

log = logging.getLogger(__name__)


class Abilities(NamedTuple):
    """What this host can do for tasks' networks; without ``interfaces`` nothing."""

    interfaces: bool = False
    tunnels: bool = False


def task_cgroups(settings: Settings, info: EngineInfo) -> TaskCgroups | None:
    """A parent per task: a path where the engine makes its cgroups itself, a slice where systemd makes them for it."""
    match info.cgroup_driver:
        case "cgroupfs":
            return TaskCgroups(Path(settings.cgroup_path))
        case "systemd":
            return TaskSlices(Path(settings.cgroup_path))
        case _:
            return None


async def may_limit(settings: Settings, cgroups: TaskCgroups | None) -> bool:
    """Whether tasks are held to limits of their own. Whoever asks for that in so many words gets it or no agent."""
    if settings.task_limits is False:
        return False
    if cgroups is not None and await cgroups.writable():
        return True
    if settings.task_limits:
        raise StandDown(
            f"cannot hold tasks to limits: no cgroups can be made below {settings.cgroup_path}",
            "Give the agent writable cgroups, or leave ECS_ENABLE_TASK_CPU_MEM_LIMIT out",
        )
    log.warning("tasks have no limits of their own here", extra={"cgroups": settings.cgroup_path})
    return False


async def network_abilities(settings: Settings) -> Abilities:
    """What this host can do for tasks' own networks; said once when it cannot."""
    if not settings.task_eni:
        return Abilities()
    if not settings.docker_host.startswith("unix://"):
        return Abilities()
    from sexton.host import network_probe  # for hosts that may have such tasks

    found = await network_probe.obstacles()
    for what in (network_probe.INTERFACES, network_probe.GROUPS):
        if what in found:
            log.warning("tasks cannot have a network of their own here", extra={"reason": found[what]})
            return Abilities()
    if network_probe.TUNNELS in found:
        log.warning("tasks cannot reach those of other hosts", extra={"reason": found[network_probe.TUNNELS]})
    return Abilities(interfaces=True, tunnels=network_probe.TUNNELS not in found)


def address_of(settings: Settings, abilities: Abilities) -> str:
    """Where other hosts reach this one's tasks, and it theirs: nowhere without tunnels."""
    return (settings.network_address or own_address()) if abilities.tunnels else ""


def own_address() -> str:
    """The address this host has towards the world; nothing when it has no way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # chooses a route, sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
