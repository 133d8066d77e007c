"""The system's network tools, run in this network or in that of a namespace: the packet filter, queues, routes.

A namespace is the path of its file; the empty one is this process's own. What a tool says when it refuses becomes the
error, without its drawing of the input.
"""

from __future__ import annotations

import asyncio
import os

# A command takes milliseconds; the kernel may wait for another one.
DEADLINE = 10.0
_PATH = os.defpath + ":/usr/sbin:/sbin"


class ToolError(Exception):
    """A tool is missing or refused; the message says which and why."""


class RefusedError(ToolError):
    """It ran and said no; the message is its own first line."""


async def run(*command: str, text: str = "", namespace: str = "", deadline: float = DEADLINE) -> str:
    """What a command printed; TimeoutError when it does not end in time."""
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
        async with asyncio.timeout(deadline):
            out, err = await process.communicate(text.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RefusedError(
            (err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"])[0]
        )
    return out.decode("utf-8", "replace")
