"""A host's networks as a change of what it was told before: what is new or different, and the ids of what is gone.

A host of a large VPC hears of every task that comes or goes on any other. The whole each time would be a message as
long as the VPC is large, to as many hosts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from sexton.wire.network import Group, Interface, SextonNetworkMessage, Subnet

Row = TypeVar("Row", Subnet, Group, Interface)


def applied(before: SextonNetworkMessage, change: SextonNetworkMessage) -> SextonNetworkMessage:
    """The whole that a change makes of the state which it was made for."""
    gone = set(change.gone)
    return msgspec.structs.replace(
        change,
        since="",
        gone=(),
        subnets=_merged(before.subnets, change.subnets, gone),
        groups=_merged(before.groups, change.groups, gone),
        interfaces=_merged(before.interfaces, change.interfaces, gone),
    )


def _merged(before: tuple[Row, ...], fresh: tuple[Row, ...], gone: Collection[str]) -> tuple[Row, ...]:
    if not fresh and not gone:
        return before
    rows = {one.id: one for one in before if one.id not in gone}
    rows |= {one.id: one for one in fresh}
    return tuple(rows.values())
