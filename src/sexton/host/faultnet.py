"""The tools that disturb a network, run in the namespace that is meant: the packet filter, queues, routes.

A namespace is the path of its file; the empty one is this process's own. A command that fails says why in its own
words, without its drawings.
"""

from __future__ import annotations

import asyncio
import json
import os

DEADLINE = 5.0
_PATH = os.defpath + ":/usr/sbin:/sbin"


class ToolError(Exception):
    """A tool is missing or refused; the message says which and why."""


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
    entered = ("nsenter", f"--net={namespace}", "--", *command) if namespace else command
    try:
        process = await asyncio.create_subprocess_exec(
            *entered,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": _PATH, "LC_ALL": "C"},
        )
    except OSError as error:
        raise ToolError(f"cannot run {entered[0]}: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate(text.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        words = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise ToolError(f"cannot disturb the network: {words[0]}")
    return out.decode("utf-8", "replace")
