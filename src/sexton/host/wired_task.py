"""A task's interface: made and wired to a router, or taken from the host and given to the task.

Plugging looks first: an interface that an earlier, interrupted order made is completed, one in another namespace is
made anew. The far end's address is known for good on both sides, so nobody can claim it, and no packet waits for an
answer to ARP. What the pair leads to goes with the task's namespace; removing it before that does no harm.
"""

from __future__ import annotations

import errno
import ipaddress
import os

from pyroute2.netlink.exceptions import NetlinkError

from sexton.core import wiring
from sexton.core.wiring import Adopt, Plug, Release, Unplug
from sexton.host import namespaces
from sexton.host.links import Links, handle_of, whole
from sexton.host.namespaces import HOST, inside, path_of, write
from sexton.host.wired_router import mtu, uplinks


def plug(order: Plug) -> None:
    if not namespaces.exists(order.router):
        raise OSError(errno.ENOENT, f"router {order.router} is not there")
    with Links(HOST) as host, Links(path_of(order.router)) as router, Links(order.namespace) as task:
        if router.index(order.device) is None or not _is_mine(task, order.mac):
            router.remove(order.device)
            task.remove(wiring.TASK_DEVICE)
            handle = handle_of(order.namespace)
            size = order.mtu or mtu(host)
            try:
                router.add(
                    ifname=order.device,
                    kind="veth",
                    address=wiring.ROUTER_MAC,
                    mtu=size,
                    peer={
                        "ifname": wiring.TASK_DEVICE,
                        "address": order.mac,
                        "mtu": size,
                        "net_ns_fd": handle,
                    },
                )
            finally:
                os.close(handle)
        near = router.index(order.device)
        far = task.index(wiring.TASK_DEVICE)
        if near is None or far is None:
            raise OSError(errno.ENODEV, f"device {order.device} went away while it was wired")
        configure(task, far, order)
        for gateway in order.gateways:
            task.neighbour(far, gateway, wiring.ROUTER_MAC)
        router.change(near, state="up")
        for address in order.addresses:
            own = address.partition("/")[0]
            router.neighbour(near, own, order.mac)
            router.route(whole(own), index=near)
        _from_host(host, order)


def _from_host(host: Links, order: Plug) -> None:
    """Programs of the host reach the task at its address as well, unless that means somebody else to them."""
    uplink = host.index(order.uplink)
    if uplink is None:
        return
    near = {":" in one: one.partition("/")[0] for one in host.addresses(uplink) if not one.startswith("fe80")}
    for address in order.addresses:
        block = whole(address)
        if (":" in block) in near:
            via = str(ipaddress.ip_address(near[":" in block]) + 1)
            try:
                host.route(block, index=uplink, via=via, replace=False)
            except NetlinkError as error:
                if error.code not in (errno.EEXIST, errno.EHOSTUNREACH, errno.ENETUNREACH):
                    raise


def _is_mine(task: Links, mac: str) -> bool:
    device = task.every().get(wiring.TASK_DEVICE)
    return device is not None and device["mac"] == mac.lower()


def configure(task: Links, index: int, order: Plug | Adopt) -> None:
    """Addresses and routes of an interface inside its task."""
    six = any(":" in one for one in order.addresses)
    # A device of the host's is in a network that has routers and neighbours of its own.
    adopted = isinstance(order, Adopt)
    asks = adopted and six and not any(":" in one for one in order.gateways)
    with inside(order.namespace):
        write(f"ipv6/conf/{wiring.TASK_DEVICE}/accept_ra", "1" if asks else "0")
        if not adopted:
            write(f"ipv6/conf/{wiring.TASK_DEVICE}/accept_dad", "0")
        if six:
            write("ipv6/conf/all/disable_ipv6", "0")
            write(f"ipv6/conf/{wiring.TASK_DEVICE}/disable_ipv6", "0")
    loopback = task.index("lo")
    if loopback is not None:
        task.change(loopback, state="up")
    for block in order.blackholes:
        if ":" not in block or six:
            task.route(block, kind="blackhole")
    for address in order.addresses:
        # Without a route of its own: neighbours are reached by the gateway too, where the groups are judged.
        task.address(index, address, prefix_route=adopted)
    task.change(index, state="up")
    for gateway in order.gateways:
        if not adopted:
            task.route(whole(gateway), index=index)
        task.route("default", index=index, via=gateway)


def unplug(order: Unplug) -> None:
    for name in namespaces.named(wiring.router_prefix(order.tag)):
        if namespaces.exists(name):
            with Links(path_of(name)) as router:
                router.remove(order.device)
    with Links(HOST) as host:
        for uplink in uplinks(host, order.tag):
            for address in order.addresses:
                host.remove_route(whole(address), uplink)


def adopt(order: Adopt) -> None:
    """Move a device of the host into a task's namespace and configure it there."""
    with Links(HOST) as host, Links(order.namespace) as task:
        if not _is_mine(task, order.mac):
            names = [name for name, one in host.every().items() if one["mac"] == order.mac.lower() and one["ethernet"]]
            if not names:
                raise OSError(errno.ENODEV, f"no device of this host has the hardware address {order.mac}")
            index = host.index(names[0])
            assert index is not None
            handle = handle_of(order.namespace)
            try:
                host.change(index, state="down")
                host.change(index, ifname=wiring.adopted_name(order.mac), net_ns_fd=handle)
            finally:
                os.close(handle)
            moved = task.index(wiring.adopted_name(order.mac))
            assert moved is not None
            task.change(moved, ifname=wiring.TASK_DEVICE)
        far = task.index(wiring.TASK_DEVICE)
        assert far is not None
        configure(task, far, order)


def release(order: Release) -> None:
    """Give a device back to the host, under a name that tells which it was."""
    with Links(order.namespace) as task:
        if not _is_mine(task, order.mac):
            return
        far = task.index(wiring.TASK_DEVICE)
        assert far is not None
        handle = handle_of(HOST)
        try:
            task.change(far, state="down")
            task.change(far, ifname=wiring.adopted_name(order.mac))
            task.change(far, net_ns_fd=handle)
        finally:
            os.close(handle)
