"""A router: the namespace that has one VPC's tasks of this host behind it, made and kept as an order says.

In it are the tasks' ends, the gateways' addresses, routes to tasks of other hosts, the tunnels that lead there and the
way outside. Everything is compared with what is there and only the difference is changed, so the order may come at any
time and as often as it likes, also after a process that died half-way. Only ours is ever removed: routes say who made
them, devices by their names.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import shutil

from pyroute2.netlink.exceptions import NetlinkError

from sexton.core import wiring
from sexton.core.wiring import Apply, Router
from sexton.host import namespaces
from sexton.host.links import Links, blocks_overlap, handle_of, whole
from sexton.host.namespaces import HOST, inside, path_of, tool, write
from sexton.host.tools import TOOLS_PATH

log = logging.getLogger(__name__)

_UNIQUE_LOCAL = "fd53:7874:6f6e::"
_TUNNEL_PREFIX = "v"

# Of the whole namespace. Replies go by any way, since nothing here is trusted for its address alone; a connection that
# was never seen to begin is not taken up in the middle, where its direction could be mistaken.
_ROUTER_SETTINGS = {
    "ipv4/ip_forward": "1",
    "ipv6/conf/all/forwarding": "1",
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/accept_dad": "0",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    "ipv4/conf/all/accept_redirects": "0",
    "netfilter/nf_conntrack_tcp_loose": "0",
}


def apply(order: Apply) -> list[str]:
    """Bring everything in line; why other hosts are not reached, in sentences. OSError or NetlinkError when nothing is
    in force."""
    trouble: list[str] = []
    with Links(HOST) as host:
        for router in order.routers:
            _have(host, router, order)
        for router in order.routers:
            try:
                _tunnels(host, router, order)
            except (NetlinkError, OSError) as error:
                trouble.append(f"cannot reach other hosts by VXLAN: {error}")
        filter_of_host(host, order)
    forget_unwanted(order)
    return trouble


def forget_unwanted(order: Apply) -> None:
    """Remove routers that are not named and that no task is plugged into any more."""
    wanted = {one.name for one in order.routers}
    for name in namespaces.named(wiring.router_prefix(order.tag)):
        if name not in wanted and not _plugged(name):
            namespaces.remove(name)
    if not namespaces.named(wiring.router_prefix(order.tag)):
        _forget_host(order.tag)


def clear(tag: str, devices: tuple[str, ...], addresses: tuple[str, ...], *, everything: bool) -> None:
    """Remove interfaces of no task, and routers without any; or everything of an agent."""
    for name in namespaces.named(wiring.router_prefix(tag)):
        if everything or not namespaces.exists(name):
            namespaces.remove(name)
            continue
        with Links(path_of(name)) as links:
            for device in [one for one in links.every() if _is_task_device(one) and one not in devices]:
                links.remove(device)
        if not _plugged(name):
            namespaces.remove(name)
    with Links(HOST) as host:
        left = {_device_of_router(tag, name) for name in namespaces.named(wiring.router_prefix(tag))}
        for name in list(host.every()):
            if name.startswith(wiring.uplink_prefix(tag)) and name not in left:
                host.remove(name)
        mine = uplinks(host, tag)
        wanted = {whole(one) for one in addresses}
        for block, index in host.our_routes().items():
            if index in mine and block not in wanted:
                host.remove_route(block, index)
    if not namespaces.named(wiring.router_prefix(tag)):
        _forget_host(tag)


def uplinks(host: Links, tag: str) -> list[int]:
    """The host's ends of an agent's routers."""
    return [one["index"] for name, one in host.every().items() if name.startswith(wiring.uplink_prefix(tag))]


def _device_of_router(tag: str, name: str) -> str:
    return wiring.uplink_of(tag, name.removeprefix(wiring.router_prefix(tag)))


def _is_task_device(name: str) -> bool:
    return name.startswith("e") and len(name) > 4


def _plugged(name: str) -> bool:
    if not namespaces.exists(name):
        return False
    with Links(path_of(name)) as links:
        return any(_is_task_device(one) for one in links.every())


def _have(host: Links, router: Router, order: Apply) -> None:
    fresh = namespaces.make(router.name)
    path = path_of(router.name)
    if fresh:
        with inside(path):
            for key, value in _ROUTER_SETTINGS.items():
                write(key, value)
    with Links(path) as links:
        loopback = links.index("lo")
        assert loopback is not None
        links.change(loopback, state="up")
        _addresses(links, loopback, {whole(one) for one in (*router.gateways, wiring.ENDPOINT)})
        _uplink(host, links, router, path)
        _routes(links, router)
    if router.rules or fresh:
        # One transaction, and before the first packet of a new task: its device is named there already.
        with inside(path):
            tool("nft", "-f", "-", text=wiring.OUTSIDE + router.rules)


def _addresses(links: Links, index: int, wanted: set[str]) -> None:
    there = {one for one in links.addresses(index) if not one.startswith(("127.", "::1/"))}
    for one in wanted - there:
        links.address(index, one)
    for one in there - wanted:
        links.remove_address(index, one)


def _uplink(host: Links, links: Links, router: Router, path: str) -> None:
    """The way outside: a pair of devices, with addresses that nobody else on this host has."""
    inner = links.index(wiring.UPLINK_DEVICE)
    outer = host.index(router.uplink)
    if inner is None or outer is None:
        host.remove(router.uplink)
        links.remove(wiring.UPLINK_DEVICE)
        handle = handle_of(path)
        try:
            host.add(ifname=router.uplink, kind="veth", peer={"ifname": wiring.UPLINK_DEVICE, "net_ns_fd": handle})
        finally:
            os.close(handle)
        inner, outer = links.index(wiring.UPLINK_DEVICE), host.index(router.uplink)
        assert inner is not None and outer is not None
    if not any(_is_uplink(one) for one in host.addresses(outer)):
        for text in _free_pair(host):
            host.address(outer, text)
    near = {one for one in host.addresses(outer) if _is_uplink(one)}
    for text in near:
        address = ipaddress.ip_interface(text)
        links.address(inner, f"{address.ip + 1}/{address.network.prefixlen}")
    host.change(outer, state="up")
    links.change(inner, state="up")
    for text in near:
        via = text.partition("/")[0]
        if ":" not in text or namespaces.may_forward6():
            links.route("default", index=inner, via=via)
    # For these devices alone. IPv6 has that since Linux 6.17; before it there is only the host as a whole, which would
    # change how the host gets its own address.
    for name in (router.uplink, *host.default_devices()):
        write(f"ipv4/conf/{name}/forwarding", "1")
        write(f"ipv6/conf/{name}/force_forwarding", "1")


def _is_uplink(text: str) -> bool:
    address = ipaddress.ip_interface(text).ip
    if address.version == 4:
        return address in ipaddress.ip_network(wiring.UPLINKS)
    return str(address).startswith(_UNIQUE_LOCAL[:-1])


def _free_pair(host: Links) -> tuple[str, str]:
    """The host's addresses of a new way outside, IPv4 and IPv6."""
    taken = host.addresses()
    block = ipaddress.IPv4Network(wiring.UPLINKS)
    for number, pair in enumerate(block.subnets(new_prefix=31)):
        if not blocks_overlap(str(pair), taken):
            return f"{pair.network_address}/31", f"{_UNIQUE_LOCAL}{2 * number:x}/127"
    raise OSError(errno.EADDRNOTAVAIL, f"cannot find a free pair of addresses in {wiring.UPLINKS}")


def _routes(links: Links, router: Router) -> None:
    """What nobody has in a subnet leads nowhere, instead of outside."""
    for block in router.blocks:
        links.route(block, kind="unreachable")


def _tunnels(host: Links, router: Router, order: Apply) -> None:
    """The tunnels of a router, and for each task of another host who has its address."""
    with Links(path_of(router.name)) as links:
        there = {name: one for name, one in links.every().items() if one["kind"] == "vxlan"}
        wanted = {wiring.tunnel_of(one.vni): one for one in router.tunnels}
        for name in set(there) - set(wanted):
            links.remove(name)
        indexes: dict[int, int] = {}
        for name, tunnel in wanted.items():
            mac = wiring.host_mac(order.address)
            if name in there and there[name]["mac"] != mac:
                links.remove(name)
                there.pop(name)
            if name not in there:
                _make_tunnel(host, router.name, name, tunnel.vni, order, mac)
            index = links.index(name)
            assert index is not None
            indexes[tunnel.vni] = index
            links.change(index, state="up")
            forwards = {wiring.host_mac(one): one for one in tunnel.hosts}
            now = links.forwards(index)
            for one in now.keys() - forwards.keys():
                links.remove_forward(index, one, now[one])
            for one, where in forwards.items():
                if one not in now:
                    links.forward(index, one, where)
        _remotes(links, router, indexes)


def _make_tunnel(host: Links, router: str, name: str, vni: int, order: Apply, mac: str) -> None:
    handle = handle_of(path_of(router))
    local = "vxlan_local6" if ":" in order.address else "vxlan_local"
    try:
        host.add(
            ifname=name,
            kind="vxlan",
            vxlan_id=vni,
            vxlan_port=order.port,
            vxlan_learning=0,
            address=mac,
            mtu=mtu(host),
            net_ns_fd=handle,
            **{local: order.address},
        )
    except NetlinkError as error:
        if error.code == errno.EEXIST:
            raise OSError(
                errno.EEXIST, f"network {vni} has a tunnel on this host already, on port {order.port}: another agent's?"
            ) from None
        raise
    finally:
        import os

        os.close(handle)


def mtu(host: Links) -> int:
    """The largest packet of tasks: what the way between hosts carries, without what a tunnel adds."""
    every = host.every()
    sizes = [every[name]["mtu"] for name in host.default_devices() if name in every]
    return max(min(sizes, default=1500), 1280 + wiring.OVERHEAD6) - wiring.OVERHEAD6


def _remotes(links: Links, router: Router, indexes: dict[int, int]) -> None:
    wanted = {
        whole(address): (indexes[one.vni], wiring.host_mac(one.host))
        for one in router.remotes
        for address in one.addresses
        if one.vni in indexes
    }
    tunnels = set(indexes.values())
    now = {block: index for block, index in links.our_routes().items() if index in tunnels}
    for block in now.keys() - wanted.keys():
        links.remove_route(block, now[block])
    known = {index: links.neighbours(index) for index in tunnels}
    for block, (index, mac) in wanted.items():
        address = block.partition("/")[0]
        if known[index].get(address) != mac:
            links.neighbour(index, address, mac)
        if now.get(block) != index:
            links.route(block, index=index)
    for index, neighbours in known.items():
        for address in neighbours:
            if whole(address) not in wanted and not address.startswith(("ff", "224.")):
                links.remove_neighbour(index, address)


def filter_of_host(host: Links, order: Apply) -> None:
    """The host's side: who goes outside, and whom the tunnels hear."""
    if not order.routers:
        return
    indexes = [host.index(one.uplink) for one in order.routers]
    uplinks = {
        str(ipaddress.ip_interface(text).ip + 1)
        for index in indexes
        if index is not None
        for text in host.addresses(index)
        if _is_uplink(text)
    }
    tunnels = [one for router in order.routers for one in router.tunnels]
    peers = set(order.peers) or {peer for one in tunnels for peer in one.hosts}
    tool("nft", "-f", "-", text=wiring.host_rules(order.tag, uplinks, {one.vni for one in tunnels}, peers, order.port))
    past_the_engine(order.tag)


def past_the_engine(tag: str) -> None:
    """An engine that filters what is forwarded drops by default what is not its own: let through what is ours."""
    rules = tool("iptables", "-w", "5", "-S", "FORWARD", must=False) if _has_iptables() else ""
    if "-P FORWARD DROP" not in rules:
        return
    for way in ("-i", "-o"):
        rule = (way, f"{wiring.uplink_prefix(tag)}+", "-j", "ACCEPT")
        if f"{way} {wiring.uplink_prefix(tag)}+ " not in rules:
            tool("iptables", "-w", "5", "-A", "FORWARD", *rule)


def _has_iptables() -> bool:
    return shutil.which("iptables", path=TOOLS_PATH) is not None


def _forget_host(tag: str) -> None:
    with contextlib.suppress(OSError):
        tool("nft", "-f", "-", text=wiring.removal(wiring.host_table(tag)))
    rules = tool("iptables", "-w", "5", "-S", "FORWARD", must=False) if _has_iptables() else ""
    for way in ("-i", "-o"):
        if f"{way} {wiring.uplink_prefix(tag)}+ " in rules:
            tool(
                "iptables", "-w", "5", "-D", "FORWARD", way, f"{wiring.uplink_prefix(tag)}+", "-j", "ACCEPT", must=False
            )
