"""What ``sexton net`` is told: networks as the control plane knows them, and as they are in force on one host."""

from __future__ import annotations

from msgspec import Struct

from sexton.wire.network import SextonNetworkMessage


class Count(Struct, frozen=True, omit_defaults=True):
    packets: int = 0
    bytes: int = 0


class HostNetworks(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A host's networks. ``counts`` are by what has counted, which is a rule's id, or an interface's id with a word
    for what was dropped there. Without ``on_host`` it is the control plane that answers, for all hosts."""

    on_host: bool = False
    address: str = ""
    trouble: str = ""  # why the state is not in force, if it is not
    routers: tuple[str, ...] = ()
    devices: dict[str, str] = {}  # of interfaces, in their routers
    state: SextonNetworkMessage = SextonNetworkMessage()
    counts: dict[str, Count] = {}
