"""Choosing one page of log events from many chunks that overlap in time, without holding more than the page.

Every event has a place of its own: its time, and where it came in the group. A page begins behind the place where the
one before ended, so that what is written, sealed or merged between two pages neither repeats nor hides anything.
Chunks say between which times their events are; they are looked into in that order, and only as long as they may hold
something for the page.

A search that finds little must not read everything in one go: when it has read as much as a page may, it stops at a
place up to which all was seen, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

Place = tuple[int, int]
"""Time in milliseconds and number within the group."""

LAST = 1 << 62
"""Behind every number."""


class Event(NamedTuple):
    """One line: ``stream`` is its stream's number."""

    time: int
    number: int
    stream: int
    ingested: int
    text: str

    @property
    def place(self) -> Place:
        return (self.time, self.number)


class Chunk(NamedTuple):
    """Events that are read together. ``size`` is about how many bytes that costs."""

    low: int
    high: int
    size: int
    read: Callable[[], Iterable[Event]]
    last: int = LAST  # no event of it has a larger number


class Wanted(NamedTuple):
    """What is asked for: of which streams (None: of all), from ``start`` on and before ``end``."""

    streams: frozenset[int] | None = None
    start: int = 0
    end: int = LAST
    after: Place | None = None
    before: Place | None = None
    came: tuple[int, int] = (-1, LAST)  # only what has a number above the first one, up to the second one
    newest: bool = False  # a page of the last ones instead of the first
    events: int = 10_000
    characters: int = 1_000_000
    matches: Callable[[str], bool] | None = None
    budget: int = 32 << 20  # bytes looked into for one page


class Page(NamedTuple):
    """Events in their order. ``more`` is the place to go on from; None when there is nothing more now."""

    events: tuple[Event, ...]
    more: Place | None


def choose(chunks: Iterable[Chunk], wanted: Wanted) -> Page:
    """One page."""
    sign = -1 if wanted.newest else 1
    kept = _Kept(wanted, sign)
    frontier: int | None = None
    spent = 0
    for chunk in _in_order(chunks, wanted, sign):
        begin = chunk.low if sign > 0 else -chunk.high
        if kept.full is not None and begin > kept.full[0]:
            break
        if spent > wanted.budget and begin - 1 > kept.origin:  # further than where this page began
            frontier = begin
            break
        spent += chunk.size
        kept.add(chunk.read())
    return kept.page(frontier)


def _in_order(chunks: Iterable[Chunk], wanted: Wanted, sign: int) -> Sequence[Chunk]:
    start = max(wanted.start, wanted.after[0] if wanted.after else 0)
    end = min(wanted.end - 1, wanted.before[0] if wanted.before else LAST)
    within = [one for one in chunks if one.high >= start and one.low <= end and one.last > wanted.came[0]]
    return sorted(within, key=lambda one: one.low if sign > 0 else -one.high)


class _Kept:
    """The best events seen so far; places are turned around where the newest are wanted."""

    def __init__(self, wanted: Wanted, sign: int) -> None:
        self._wanted = wanted
        self._sign = sign
        self._events: list[Event] = []
        self._size = 0
        self.full: Place | None = None  # nothing behind this is for the page
        edge = wanted.after if sign > 0 else wanted.before
        self.origin = sign * edge[0] if edge else -LAST

    def _turned(self, event: Event) -> Place:
        return (self._sign * event.time, self._sign * event.number)

    def add(self, events: Iterable[Event]) -> None:
        wanted, full = self._wanted, self.full
        for event in self._within(events):
            if full is not None and self._turned(event) > full:
                continue
            if wanted.matches is not None and not wanted.matches(event.text):
                continue
            self._events.append(event)
            self._size += len(event.text)
            if len(self._events) >= 2 * wanted.events or self._size >= 2 * wanted.characters:
                self._trim()
                full = self.full

    def _within(self, events: Iterable[Event]) -> Iterator[Event]:
        wanted = self._wanted
        for event in events:
            if (
                (wanted.streams is None or event.stream in wanted.streams)
                and wanted.start <= event.time < wanted.end
                and wanted.came[0] < event.number <= wanted.came[1]
                and (wanted.after is None or event.place > wanted.after)
                and (wanted.before is None or event.place < wanted.before)
            ):
                yield event

    def _trim(self) -> None:
        """Down to a page, if there is more than one."""
        self._events.sort(key=self._turned)
        size = 0
        for count, event in enumerate(self._events):
            size += len(event.text)
            if count and (count == self._wanted.events or size > self._wanted.characters):
                del self._events[count:]
                self._size = size - len(event.text)
                self.full = self._turned(self._events[-1])
                return

    def page(self, frontier: int | None) -> Page:
        self._trim()
        more = None
        if frontier is not None and (self.full is None or self.full[0] >= frontier):
            # All before the frontier was seen, and nothing behind it is sure to be the next.
            self._events = [event for event in self._events if self._sign * event.time < frontier]
            more = (frontier - 1, LAST) if self._sign > 0 else (1 - frontier, 0)
        elif self.full is not None:
            more = self._events[-1].place
        events = tuple(self._events if self._sign > 0 else reversed(self._events))
        return Page(events, more)
