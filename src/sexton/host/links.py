"""Links, addresses, routes and neighbours of one network namespace, by netlink.

Every change says how a thing shall be: what is so already is left alone, and what is in the way is replaced. Loads
pyroute2, so only the helper process that wires imports it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from sexton.host.namespaces import inside

# What we route says so: another hand's routes are never removed.
OURS = 0x53
_NO_PREFIX_ROUTE, _NO_DUPLICATE_CHECK = 0x200, 0x02
_BLACKHOLE, _UNREACHABLE = 6, 7
_PERMANENT = 0x80
_LINK_SCOPE, _ANY_SCOPE = 253, 255
_GONE = frozenset({errno.ENODEV, errno.ESRCH, errno.ENOENT, errno.EADDRNOTAVAIL})


def family_of(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def whole(address: str) -> str:
    """An address as a block of its own."""
    return f"{address.partition('/')[0]}/{128 if ':' in address else 32}"


class Links:
    """One namespace. A context manager: the netlink socket is made inside it and stays there."""

    def __init__(self, path: str) -> None:
        self.path = path
        with inside(path):
            self._ip = IPRoute()

    def __enter__(self) -> Links:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ip.close()

    def index(self, name: str) -> int | None:
        found = self._ip.link_lookup(ifname=name)
        return int(found[0]) if found else None

    def every(self) -> dict[str, Any]:
        """Every link by name: its index, hardware address, kind and whether it is up."""
        found = {}
        for one in self._ip.get_links():
            info = one.get_attr("IFLA_LINKINFO")
            found[str(one.get_attr("IFLA_IFNAME"))] = {
                "index": int(one["index"]),
                "mac": str(one.get_attr("IFLA_ADDRESS") or "").lower(),
                "kind": str(info.get_attr("IFLA_INFO_KIND") or "") if info else "",
                "up": bool(one["flags"] & 1),
                "mtu": int(one.get_attr("IFLA_MTU") or 0),
                "ethernet": one["ifi_type"] == 1,
            }
        return found

    def add(self, **fields: Any) -> None:
        self._ip.link("add", **fields)

    def change(self, index: int, **fields: Any) -> None:
        self._ip.link("set", index=index, **fields)

    def remove(self, name: str) -> bool:
        """Whether there was one."""
        index = self.index(name)
        if index is None:
            return False
        try:
            self._ip.link("del", index=index)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise
            return False
        return True

    def address(self, index: int, text: str, *, prefix_route: bool = True) -> None:
        """Have an address, such as 10.0.0.5/24."""
        address, _, length = text.partition("/")
        flags = (0 if prefix_route else _NO_PREFIX_ROUTE) | (_NO_DUPLICATE_CHECK if ":" in text else 0)
        try:
            self._ip.addr(
                "add", index=index, address=address, prefixlen=int(length), family=family_of(address), flags=flags
            )
        except NetlinkError as error:
            if error.code != errno.EEXIST:
                raise

    def addresses(self, index: int | None = None) -> set[str]:
        return {
            f"{one.get_attr('IFA_LOCAL') or one.get_attr('IFA_ADDRESS')}/{one['prefixlen']}"
            for one in self._ip.get_addr()
            if index in (None, one["index"])
        }

    def remove_address(self, index: int, text: str) -> None:
        address, _, length = text.partition("/")
        try:
            self._ip.addr("del", index=index, address=address, prefixlen=int(length), family=family_of(address))
        except NetlinkError as error:
            if error.code not in _GONE:
                raise

    def route(
        self, block: str, *, index: int | None = None, via: str = "", kind: str = "", replace: bool = True
    ) -> None:
        """Have a route to a block ("default" with ``via`` alone). ``kind``: blackhole or unreachable. Without
        ``replace`` a route that somebody else has there is an error."""
        family = family_of(block if block != "default" else via)
        fields: dict[str, Any] = {"dst": block, "family": family, "proto": OURS}
        if kind:
            fields["type"] = kind
        else:
            fields["oif"] = index
        if via:
            fields |= {"gateway": via, "flags": 4}  # on this link, whatever its addresses are
        elif not kind and family == socket.AF_INET:
            fields["scope"] = _LINK_SCOPE
        self._ip.route("replace" if replace else "add", **fields)

    def remove_route(self, block: str, index: int | None = None) -> None:
        fields: dict[str, Any] = {"dst": block, "family": family_of(block), "proto": OURS}
        if fields["family"] == socket.AF_INET:
            fields["scope"] = _ANY_SCOPE  # else only one that leads to a gateway is meant
        if index is not None:
            fields["oif"] = index
        try:
            self._ip.route("del", **fields)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise

    def our_routes(self) -> dict[str, int | None]:
        """Blocks that we route, with the device they lead to."""
        found: dict[str, int | None] = {}
        for family, length in ((socket.AF_INET, 32), (socket.AF_INET6, 128)):
            for one in self._ip.get_routes(family=family, proto=OURS):
                block = one.get_attr("RTA_DST")
                if block is not None:
                    found[f"{block}/{one['dst_len'] if one['dst_len'] is not None else length}"] = one.get_attr(
                        "RTA_OIF"
                    )
        return found

    def neighbour(self, index: int, address: str, mac: str) -> None:
        """Know for good who has an address."""
        self._ip.neigh("replace", ifindex=index, dst=address, lladdr=mac, state=_PERMANENT, family=family_of(address))

    def neighbours(self, index: int) -> dict[str, str]:
        """Addresses on a device that are known for good, with whose they are."""
        return {
            str(one.get_attr("NDA_DST")): str(one.get_attr("NDA_LLADDR"))
            for family in (socket.AF_INET, socket.AF_INET6)
            for one in self._ip.get_neighbours(family=family, ifindex=index)
            if one["state"] & _PERMANENT and one["ifindex"] == index
        }

    def remove_neighbour(self, index: int, address: str) -> None:
        try:
            self._ip.neigh("del", ifindex=index, dst=address, family=family_of(address))
        except NetlinkError as error:
            if error.code not in _GONE:
                raise

    def forwards(self, index: int) -> dict[str, str]:
        """Where a tunnel sends frames for each hardware address."""
        found = {}
        for one in self._ip.fdb("dump", ifindex=index):
            if one["ifindex"] == index and one.get_attr("NDA_DST"):
                found[str(one.get_attr("NDA_LLADDR"))] = str(one.get_attr("NDA_DST"))
        return found

    def forward(self, index: int, mac: str, host: str) -> None:
        self._ip.fdb("add", ifindex=index, lladdr=mac, dst=host)

    def remove_forward(self, index: int, mac: str, host: str) -> None:
        try:
            self._ip.fdb("del", ifindex=index, lladdr=mac, dst=host)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise

    def default_devices(self) -> dict[str, int]:
        """The devices by which this namespace reaches the world, by name."""
        indexes = {
            one.get_attr("RTA_OIF")
            for family in (socket.AF_INET, socket.AF_INET6)
            for one in self._ip.get_default_routes(family=family)
        }
        return {name: one["index"] for name, one in self.every().items() if one["index"] in indexes}


def same(one: str, other: str) -> bool:
    """Whether two texts are one address."""
    return ipaddress.ip_address(one) == ipaddress.ip_address(other)


def handle_of(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def blocks_overlap(block: str, others: Iterable[str]) -> bool:
    network = ipaddress.ip_network(block, strict=False)
    for other in others:
        found = ipaddress.ip_network(other, strict=False)
        if found.version == network.version and found.prefixlen and found.overlaps(network):
            return True
    return False
