"""What one agent still has to be told: pure bookkeeping of one connection.

The records say which tasks the instance should know and what is wanted of each; this remembers what was sent on this
connection and acknowledged. A task is due when its wish was never sent, has changed since, or went unacknowledged for
too long. A new connection begins with an empty memory: sending again is harmless, since agents know tasks by ARN.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Unacknowledged for this long means the frame or its answer was lost, or the agent could not take it.
RESEND_AFTER = 5.0
# Tasks per message: one that an agent cannot take leaves its whole message unacknowledged.
TASKS_PER_MESSAGE = 10


class _Sent(NamedTuple):
    wish: str
    message: str
    at: float
    acknowledged: bool


class Delivery:
    """The memory of one connection."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}

    def due(self, wishes: Iterable[tuple[str, str]], now: float) -> list[str]:
        """The tasks to send now, of (task, wish) pairs; at most one message's worth."""
        result = []
        for task, wish in wishes:
            sent = self._sent.get(task)
            late = sent is not None and not sent.acknowledged and now - sent.at >= RESEND_AFTER
            if sent is None or sent.wish != wish or late:
                result.append(task)
                if len(result) == TASKS_PER_MESSAGE:
                    break
        return result

    def sent(self, tasks: Iterable[tuple[str, str]], message: str, now: float) -> None:
        for task, wish in tasks:
            self._sent[task] = _Sent(wish, message, now, acknowledged=False)

    def acknowledge(self, message: str) -> None:
        for task, sent in self._sent.items():
            if sent.message == message:
                self._sent[task] = sent._replace(acknowledged=True)

    def forget(self, task: str) -> None:
        self._sent.pop(task, None)

    def waiting(self) -> bool:
        """Whether something sent has not been acknowledged."""
        return any(not sent.acknowledged for sent in self._sent.values())
