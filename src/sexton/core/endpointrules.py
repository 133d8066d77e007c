"""The packet filter that leads tasks to their endpoint: which table, and what is in it.

Tasks call 169.254.170.2, an address that nobody has. What comes from the engine's bridge for it, and what this host's
own network sends to it, is redirected to the ports where the agent listens; nothing else is touched, and no kernel
setting is changed. Each agent has a table of its own, named after its data directory, so that agents beside each other
do not meet and one that was killed finds its own again. Every rule says whose it is: of processes, only one can serve
what the host itself sends.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

ADDRESS = "169.254.170.2"
PORT = 80
PREFIX = "sexton-tasks-"
# Before whatever the engine, or another tool, does with addresses: theirs is at -100.
_PRIORITY = -110

_NAME = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")
_OWNER = re.compile(r'comment "([0-9]+) ([0-9]+)( host)?"')


class Owner(NamedTuple):
    """A process that cannot be mistaken for a later one of the same number."""

    pid: int
    started: int  # in the kernel's ticks, field 22 of its stat


def table_name(data_dir: str) -> str:
    """The table of the agent whose state is there."""
    return PREFIX + hashlib.sha256(data_dir.encode()).hexdigest()[:12]


def is_interface(name: str) -> bool:
    """Whether a name can stand in a rule; the engine's own word for its bridge is not trusted that far."""
    return _NAME.fullmatch(name) is not None


def ruleset(table: str, owner: Owner, bridges: Mapping[str, int], host_port: int = 0) -> str:
    """One transaction that makes the table anew: ports by bridge, and the port for the host's own network if any."""
    whose = f"{owner.pid} {owner.started}"
    match = f"ip daddr {ADDRESS} tcp dport {PORT}"
    lines = [f"table ip {table}", f"delete table ip {table}", f"table ip {table} {{"]
    lines.append(f"chain arriving {{\ntype nat hook prerouting priority {_PRIORITY}; policy accept;")
    for bridge, port in sorted(bridges.items()):
        if not is_interface(bridge):
            raise ValueError(f"cannot use {bridge!r} as an interface's name")
        lines.append(f'iifname "{bridge}" {match} redirect to :{port} comment "{whose}"')
    lines.append("}")
    if host_port:
        lines.append(f"chain leaving {{\ntype nat hook output priority {_PRIORITY}; policy accept;")
        lines.append(f'{match} redirect to :{host_port} comment "{whose} host"\n}}')
    return "\n".join([*lines, "}", ""])


def removal(table: str) -> str:
    """One transaction after which the table is gone, whether or not it was there."""
    return f"table ip {table}\ndelete table ip {table}\n"


def owners(listing: str) -> frozenset[Owner]:
    """Whose rules these are, as the packet filter lists a table."""
    return frozenset(Owner(int(pid), int(started)) for pid, started, _ in _OWNER.findall(listing))


def serves_host(listing: str) -> bool:
    """Whether a table leads what the host's own network sends."""
    return any(host for _, _, host in _OWNER.findall(listing))
