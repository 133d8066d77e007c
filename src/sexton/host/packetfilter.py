"""The kernel's packet filter, through its own tool: change it in one transaction, list it as text.

A change is all or nothing. What the tool says when it refuses becomes the error.
"""

from __future__ import annotations

from sexton.host import nettool
from sexton.host.nettool import DEADLINE, RefusedError, ToolError

PROGRAM = "nft"


class FilterError(Exception):
    """The packet filter cannot be used, or refused a change."""


async def change(text: str, namespace: str = "") -> None:
    """Apply one transaction, in this network or in that of a namespace's file."""
    await _run("-f", "-", what="change the packet filter", text=text, namespace=namespace)


async def listing(*what: str) -> str:
    """What the filter holds, such as ``listing("tables", "ip")``; FilterError when it has nothing of that name."""
    return await _run("list", *what, what="list")


async def _run(*args: str, what: str, text: str = "", namespace: str = "") -> str:
    try:
        return await nettool.run(PROGRAM, *args, text=text, namespace=namespace)
    except RefusedError as error:
        raise FilterError(f"cannot {what}: {error}") from None
    except ToolError as error:
        raise FilterError(str(error)) from None
    except TimeoutError:
        raise FilterError(f"cannot wait for {PROGRAM}: no answer within {DEADLINE:g} s") from None
