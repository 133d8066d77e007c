"""The kernel's packet filter, through its own tool: change it in one transaction, list it as text.

A change is all or nothing. What the tool says when it refuses becomes the error, without its drawing of the input.
"""

from __future__ import annotations

import asyncio
import os

PROGRAM = "nft"
# A transaction takes milliseconds; the kernel may wait for another one.
DEADLINE = 10.0
_PATH = os.defpath + ":/usr/sbin:/sbin"


class FilterError(Exception):
    """The packet filter cannot be used, or refused a change."""


async def change(text: str, namespace: str = "") -> None:
    """Apply one transaction, in this network or in that of a namespace's file."""
    await _run("-f", "-", text=text, namespace=namespace)


async def listing(*what: str) -> str:
    """What the filter holds, such as ``listing("tables", "ip")``; FilterError when it has nothing of that name."""
    return await _run("list", *what)


async def _run(*args: str, text: str = "", namespace: str = "") -> str:
    enter = ("nsenter", f"--net={namespace}") if namespace else ()
    try:
        process = await asyncio.create_subprocess_exec(
            *enter,
            PROGRAM,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": _PATH, "LC_ALL": "C"},
        )
    except OSError as error:
        raise FilterError(f"cannot run {PROGRAM}: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate(text.encode())
    except TimeoutError:
        raise FilterError(f"cannot wait for {PROGRAM}: no answer within {DEADLINE:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        words = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise FilterError(f"cannot change the packet filter: {words[0]}" if text else f"cannot list: {words[0]}")
    return out.decode("utf-8", "replace")
