"""What has to be done to a host's networks, once it is known how they are: the difference of two orders.

A host of a large VPC has a route, a neighbour and a tunnel's end for every task and host of it. Looking at all of them
for each task that comes or goes anywhere is most of the work; so between two orders that are carried out whole, there
are some that name only what is different. They can be repeated, and they say so when something is not as expected.
"""

from __future__ import annotations

import msgspec

from sexton.core.wiring import Apply, Router, Tunnel


def since(before: Apply, after: Apply) -> Apply:
    """An order that leads from one to the other: the whole of the latter, where more than others' tasks has changed."""
    same_host = (before.tag, before.address, before.port) == (after.tag, after.address, after.port)
    pairs = list(zip(before.routers, after.routers, strict=False))
    if not same_host or len(before.routers) != len(after.routers) or any(_frame(a) != _frame(b) for a, b in pairs):
        return after
    routers = tuple(_router(a, b) for a, b in pairs)
    peers: set[str] = set()
    if any(tunnel.hosts or tunnel.gone for one in routers for tunnel in one.tunnels):
        peers = {host for one in after.routers for tunnel in one.tunnels for host in tunnel.hosts}
    return msgspec.structs.replace(after, whole=False, routers=routers, peers=tuple(sorted(peers)))


def kept(order: Apply) -> Apply:
    """An order without what is applied once."""
    return msgspec.structs.replace(
        order, routers=tuple(msgspec.structs.replace(one, rules="") for one in order.routers)
    )


def _frame(one: Router) -> tuple[object, ...]:
    return one.name, one.uplink, one.gateways, one.blocks, tuple(tunnel.vni for tunnel in one.tunnels)


def _router(before: Router, after: Router) -> Router:
    known, wanted = set(before.remotes), {address for one in after.remotes for address in one.addresses}
    moved = tuple(one for one in after.remotes if one not in known)
    gone = tuple(
        msgspec.structs.replace(one, addresses=left)
        for one in before.remotes
        if (left := tuple(address for address in one.addresses if address not in wanted))
    )
    tunnels = tuple(_tunnel(a, b) for a, b in zip(before.tunnels, after.tunnels, strict=True))
    return msgspec.structs.replace(after, remotes=moved, gone=gone, tunnels=tunnels)


def _tunnel(before: Tunnel, after: Tunnel) -> Tunnel:
    old, new = set(before.hosts), set(after.hosts)
    return Tunnel(
        vni=after.vni,
        hosts=tuple(one for one in after.hosts if one not in old),
        gone=tuple(one for one in before.hosts if one not in new),
    )
