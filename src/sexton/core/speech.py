"""What a service says in one decision, and what it has said before.

ECS omits an event whose cause lasts, until six hours have passed or the cause is gone; so does this. What was said
last of each lasting cause is in the service's ``Memory``; a passing event (a task stopped) is said and forgotten.
"""

from __future__ import annotations

import msgspec

from sexton.core.pace import Pace
from sexton.core.serviceview import Memory, Said

# What a start that found no room is remembered under; ``decide`` forgets it once everything has found room.
UNPLACED = "unplaced"


class Speech:
    """Collects the events of one decision."""

    def __init__(self, said: tuple[Said, ...], pace: Pace, now: float) -> None:
        self.events: list[str] = []
        self._lasting = {one.kind: one for one in said}
        self._pace = pace
        self._now = now

    def say(self, text: str) -> None:
        self.events.append(text)

    def lasts(self, kind: str, text: str) -> None:
        """Say it unless it was said lately."""
        before = self._lasting.get(kind)
        if before is None or before.text != text or self._now >= before.at + self._pace.say_again:
            self._lasting[kind] = Said(kind=kind, text=text, at=self._now)
            self.events.append(text)

    def lasted(self, kind: str) -> bool:
        """The cause is gone; returns whether it had been spoken of."""
        return self._lasting.pop(kind, None) is not None

    def lasting(self, kind: str, text: str | None) -> None:
        """Say it while there is a text, and forget it once there is none."""
        if text is None:
            self.lasted(kind)
        else:
            self.lasts(kind, text)

    @property
    def said(self) -> tuple[Said, ...]:
        return tuple(sorted(self._lasting.values(), key=lambda one: one.kind))

    @property
    def next_at(self) -> float | None:
        """When something lasting is due to be said again."""
        return min((one.at + self._pace.say_again for one in self._lasting.values()), default=None)


def unplaced(memory: Memory, text: str, pace: Pace, now: float) -> tuple[Memory, tuple[str, ...]]:
    """The memory once the shell has found no room for a start, and the event to append if it was not said lately."""
    speech = Speech(memory.said, pace, now)
    speech.lasts(UNPLACED, text)
    return msgspec.structs.replace(memory, said=speech.said), tuple(speech.events)
