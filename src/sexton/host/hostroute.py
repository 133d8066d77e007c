"""A way for one address that this host sends to itself, where no route leads anywhere.

The packet filter redirects what is sent to such an address, but the kernel asks for a route before that: a host without
a default route, in a rack or behind IPv6 alone, would never send. What is made here is marked as ours by the route's
protocol number, and goes when it is asked to.
"""

from __future__ import annotations

from sexton.host import nettool
from sexton.host.nettool import ToolError

# Nobody else's, by /etc/iproute2/rt_protos.
PROTOCOL = "83"


async def have_route(address: str) -> bool:
    """See to it that a connection to the address can be tried; whether a route was made for that."""
    if await _ip("route", "get", address):
        return False
    return await _ip(
        *("route", "replace", f"{address}/32", "dev", "lo", "src", "127.0.0.1", "scope", "host", "proto", PROTOCOL)
    )


async def drop_route(address: str) -> None:
    """Remove what was made."""
    await _ip("route", "del", f"{address}/32", "dev", "lo", "proto", PROTOCOL)


async def _ip(*args: str) -> bool:
    try:
        await nettool.run("ip", "-4", *args)
    except (ToolError, TimeoutError):
        return False
    return True
