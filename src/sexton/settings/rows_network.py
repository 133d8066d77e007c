"""Settings of tasks' own networks, network mode awsvpc, and of what tasks may reach on the way outside."""

from __future__ import annotations

import ipaddress
from functools import partial

from sexton.core import values
from sexton.core.values import BadValue
from sexton.settings.row import Setting


def _address(raw: str) -> str:
    try:
        return str(ipaddress.ip_address(raw))
    except ValueError:
        raise BadValue("must be an address, such as 192.0.2.10") from None


ROWS: tuple[Setting, ...] = (
    Setting(
        "ECS_ENABLE_TASK_ENI",
        "task_eni",
        values.boolean,
        "offer tasks a network of their own where this host can",
        key="TaskENIEnabled",
    ),
    Setting(
        "ECS_AWSVPC_BLOCK_IMDS",
        "awsvpc_block_imds",
        values.boolean,
        "tasks with a network of their own do not reach the instance metadata service",
        key="AWSVPCBlockInstanceMetdata",
    ),
    Setting(
        "SEXTON_BRIDGE_BLOCK_IMDS",
        "bridge_block_imds",
        values.boolean,
        "tasks in network mode bridge do not reach it either, nor does anything else that this host forwards for",
    ),
    Setting(
        "SEXTON_NETWORK_ADDRESS",
        "network_address",
        _address,
        "address at which other hosts reach this one for traffic between tasks; unset means that of the default route",
    ),
    Setting(
        "SEXTON_TUNNEL_PORT",
        "tunnel_port",
        partial(values.integer, lowest=1, highest=65535),
        "UDP port of traffic between tasks of different hosts, the same on all of them",
    ),
    Setting(
        "SEXTON_SANDBOX_POOL",
        "sandbox_pool",
        partial(values.integer, lowest=0, highest=64),
        "warm network namespaces that wait for a task, once tasks with a network of their own come here; one costs "
        "a process of 12 KiB and what the engine keeps for a container",
        "sandboxes",
    ),
    Setting(
        "SEXTON_SANDBOX_REFILL",
        "sandbox_refill",
        values.duration,
        "the pool is filled again once no such task has begun for this long; where they never stop coming, by one "
        "after six times as long",
        "seconds",
        minimum=0.01,
    ),
    Setting(
        "SEXTON_SANDBOX_IDLE",
        "sandbox_idle",
        values.duration,
        "how long they are kept after the last such task came or went",
        "seconds",
        minimum=1.0,
    ),
)
