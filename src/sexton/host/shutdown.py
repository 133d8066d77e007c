"""Whether the whole host is going down, or only this process is told to end.

systemd knows; where there is none, or it does not answer, nobody does and the answer is no.
"""

from __future__ import annotations

import asyncio
import contextlib

# It answers at once, or it is too busy ending to answer at all.
ANSWER_SECONDS = 2.0


async def system_stops() -> bool:
    """Whether systemd is in the middle of a shutdown."""
    try:
        asked = await asyncio.create_subprocess_exec(
            "systemctl", "is-system-running", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            said, _ = await asked.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            asked.kill()
        return False
    return said.strip() == b"stopping"
