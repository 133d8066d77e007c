"""What has changed of other hosts and their tasks, brought into routers that are otherwise as they were.

Costs what the change is large, not what the VPC is. Whatever is not found as it should be is an error: the whole comes
then. May be repeated, since a helper that dies in the middle leaves the same order to the next one.
"""

from __future__ import annotations

import errno

from pyroute2.netlink.exceptions import NetlinkError

from sexton.core import wiring
from sexton.core.wiring import Apply, Router
from sexton.host import namespaces
from sexton.host.links import Links, whole
from sexton.host.namespaces import HOST, inside, path_of, tool
from sexton.host.wired_router import filter_of_host, forget_unwanted, past_the_engine


def change(order: Apply) -> None:
    """OSError or NetlinkError when it cannot be."""
    for router in order.routers:
        if not namespaces.exists(router.name):
            raise OSError(errno.ENOENT, f"router {router.name} is not there any more")
        if router.remotes or router.gone or any(one.hosts or one.gone for one in router.tunnels):
            with Links(path_of(router.name)) as links:
                _others(links, router)
        if router.rules:
            with inside(path_of(router.name)):
                tool("nft", "-f", "-", text=router.rules)
    if order.peers:
        with Links(HOST) as host:
            filter_of_host(host, order)
    elif order.routers:
        past_the_engine(order.tag)  # which may have been restarted, and filters anew
    forget_unwanted(order)


def _others(links: Links, router: Router) -> None:
    """Tunnels' ends first: a route leads somewhere from its first packet on."""
    indexes: dict[int, int] = {}
    for tunnel in router.tunnels:
        name = wiring.tunnel_of(tunnel.vni)
        index = links.index(name)
        if index is None:
            raise OSError(errno.ENODEV, f"tunnel {name} of {router.name} is not there any more")
        indexes[tunnel.vni] = index
        for host in tunnel.hosts:
            try:
                links.forward(index, wiring.host_mac(host), host)
            except NetlinkError as error:
                if error.code != errno.EEXIST:
                    raise
    for one in router.gone:
        for address in one.addresses if one.vni in indexes else ():
            links.remove_route(whole(address), indexes[one.vni])
            links.remove_neighbour(indexes[one.vni], address)
    for one in router.remotes:
        for address in one.addresses if one.vni in indexes else ():
            links.neighbour(indexes[one.vni], address, wiring.host_mac(one.host))
            links.route(whole(address), index=indexes[one.vni])
    for tunnel in router.tunnels:
        for host in tunnel.gone:
            links.remove_forward(indexes[tunnel.vni], wiring.host_mac(host), host)
