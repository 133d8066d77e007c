"""The helper process that wires: orders come as lines of JSON on standard input, answers go to standard output.

``python -m sexton.host.network_worker``. A process of its own, because what talks netlink is larger than all the rest
of an agent and because a namespace belongs to a thread; it is started when something is to be wired and ends when
nothing was for a while, when its input ends, and with its parent. It remembers nothing: each order is compared with
what is there, so it may be killed at any instant and the order given again to the next one.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Sequence

import msgspec

from sexton.core import netcounters, wiring
from sexton.core.wiring import Answer, Order
from sexton.wire.ownnetwork import Count

IDLE_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1
_decoder = msgspec.json.Decoder(Order)


def carry_out(order: Order) -> Answer:
    """One order; what is wrong with the network becomes the answer's error."""
    from pyroute2.netlink.exceptions import NetlinkError

    from sexton.host import wired_change, wired_router, wired_task

    try:
        match order:
            case wiring.Apply(whole=False):
                wired_change.change(order)
            case wiring.Apply():
                return Answer(partly="; ".join(wired_router.apply(order)))
            case wiring.Plug():
                wired_task.plug(order)
            case wiring.Unplug():
                wired_task.unplug(order)
            case wiring.Adopt():
                wired_task.adopt(order)
            case wiring.Release():
                wired_task.release(order)
            case wiring.Count(routers=routers, table=table):
                return Answer(counts=_counted(routers, table))
            case wiring.Clear(tag=tag, devices=devices, addresses=addresses, everything=everything):
                wired_router.clear(tag, devices, addresses, everything=everything)
    except NetlinkError as error:
        return Answer(error=f"the kernel refused: {os.strerror(error.code) if error.code else error}")
    except OSError as error:
        return Answer(error=(error.strerror or str(error)) + (f": {error.filename}" if error.filename else ""))
    return Answer()


def _counted(routers: Sequence[str], table: str) -> dict[str, Count]:
    """What each router's table has counted; a router or a table that is not there has counted nothing."""
    from sexton.host import namespaces

    found: dict[str, Count] = {}
    for router in routers:
        if namespaces.exists(router):
            with namespaces.inside(namespaces.path_of(router)):
                listing = namespaces.tool("nft", "--json", "list", "table", "inet", table, must=False)
            found |= netcounters.read(listing.encode()) if listing else {}
    return found


def main() -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = int(sys.argv[1])
    if os.getppid() != parent:  # it went before it could be asked to take us along
        return 1
    from sexton.host import namespaces

    namespaces.see_mounts_of_the_host()
    from sexton.host import wired_task  # noqa: F401 - loaded while nobody waits for an answer yet

    os.write(1, msgspec.json.encode(Answer()) + b"\n")
    buffer = b""
    while True:
        if not select.select([0], [], [], IDLE_SECONDS)[0]:
            return 0
        data = os.read(0, 1 << 20)
        if not data:
            return 0
        buffer += data
        while b"\n" in buffer:
            line, _, buffer = buffer.partition(b"\n")
            answer = msgspec.json.encode(carry_out(_decoder.decode(line))) + b"\n"
            while answer:
                answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    sys.exit(main())
