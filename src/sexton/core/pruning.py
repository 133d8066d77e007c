"""Which images may go when a disk fills: those that nobody uses, that are old, and that can be had again.

Pure: what the engine has and which images its containers are made from are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One image on this host. ``elsewhere``: a registry has it, so that it can be pulled again."""

    id: str
    names: tuple[str, ...]
    size: int
    created: float
    elsewhere: bool


def unused_images(
    images: Iterable[Stored], used: Collection[str], *, older_than: float, most: int
) -> tuple[Stored, ...]:
    """The images that may be removed, the oldest first. ``used`` are ids of images that containers, running or not, are
    made from."""
    free = [one for one in images if one.id not in used and one.elsewhere and one.created < older_than]
    return tuple(sorted(free, key=lambda one: (one.created, one.id))[: max(0, most)])
