"""What disturbs a network, in the namespace that is meant: the packet filter, queues, and where routes lead out."""

from __future__ import annotations

import json

from sexton.host import nettool
from sexton.host.nettool import RefusedError, ToolError

# Whoever asks for a disturbance waits for the answer.
DEADLINE = 5.0


async def change_filter(namespace: str, text: str) -> None:
    """Apply one transaction of the packet filter."""
    await _run(namespace, "nft", "-f", "-", text=text)


async def tables(namespace: str) -> str:
    """All tables of the packet filter, a line each."""
    return await _run(namespace, "nft", "list", "tables")


async def queue(namespace: str, *command: str) -> None:
    """One command about queues."""
    await _run(namespace, "tc", *command)


async def queued(namespace: str, handle: str) -> tuple[str, ...]:
    """Interfaces whose queue has this number."""
    try:
        found = json.loads(await _run(namespace, "tc", "-json", "qdisc", "show") or "[]")
    except ValueError:
        raise ToolError("cannot read what tc says of queues") from None
    return tuple(dict.fromkeys(one["dev"] for one in found if one.get("handle") == handle and one.get("root")))


async def leading_out(namespace: str) -> tuple[str, ...]:
    """Interfaces that lead to everywhere; none where a network has no way out."""
    found: list[str] = []
    for version in ("-4", "-6"):
        try:
            rows = json.loads(await _run(namespace, "ip", version, "-json", "route", "show", "default") or "[]")
        except ValueError:
            raise ToolError("cannot read what ip says of routes") from None
        found += [one["dev"] for one in rows if "dev" in one]
    return tuple(dict.fromkeys(found))


async def _run(namespace: str, *command: str, text: str = "") -> str:
    try:
        return await nettool.run(*command, text=text, namespace=namespace, deadline=DEADLINE)
    except RefusedError as error:
        raise ToolError(f"cannot disturb the network: {error}") from None
