"""Reading what a server answers without trusting it to be small."""

from __future__ import annotations

import aiohttp


class TooLarge(Exception):  # noqa: N818 - says what the answer is
    """The answer is longer than anything the caller could use; the rest was not read."""


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read the whole body, or raise TooLarge as soon as it is longer than ``limit`` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > limit:
            response.close()
            raise TooLarge
        pieces.append(piece)
    return b"".join(pieces)
