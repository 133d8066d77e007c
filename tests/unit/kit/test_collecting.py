"""Garbage that refers to itself goes in the end, and what is there from the start is looked at no more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from sexton.kit import collecting


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_there_is_set_aside() -> None:
    knot = weakref.ref(Knot())
    collecting.begin()

    assert knot() is None
    assert gc.get_freeze_count() > 1000


async def test_a_knot_goes_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "COLLECT_SECONDS", 0.01)
    collecting.begin()
    knot = weakref.ref(Knot())
    looking = asyncio.ensure_future(collecting.collect_sometimes())
    async with asyncio.timeout(10):
        while knot() is not None:
            await asyncio.sleep(0.01)
    looking.cancel()
