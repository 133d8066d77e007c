"""What this agent has lately said of each task and of its host, kept in memory for whoever asks why.

It listens to the agent's own log, where every change of state is told once with its cause, so that no step has to tell
twice. What is kept is bounded: the last things of each of the last tasks, and of the host. A restart forgets; the log
file does not.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque

import msgspec

from sexton.core import evidence
from sexton.core.evidence import Note

MOST_TASKS = 256
NOTES_PER_TASK = 16
NOTES_OF_HOST = 64

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class History(logging.Handler):
    """Remembers; attached to the agent's logger for as long as the agent runs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.since = time.time()
        self._tasks: OrderedDict[str, deque[Note]] = OrderedDict()
        self._host: deque[Note] = deque(maxlen=NOTES_OF_HOST)
        self._heard = logging.getLogger("sexton.agent")

    def attach(self) -> None:
        self._heard.addHandler(self)
        # What is remembered does not depend on what is written: each output has a level of its own.
        if self._heard.getEffectiveLevel() > logging.INFO:
            self._heard.setLevel(logging.INFO)

    def close(self) -> None:
        self._heard.removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Never fails whoever logs."""
        facts = {key: value for key, value in vars(record).items() if key not in _OWN}
        event = str(record.msg)
        task = facts.get("task")
        if isinstance(task, str) and task.startswith("arn:"):
            _add(self._notes(task), record.created, evidence.of_task(event, facts))
        elif evidence.is_of_host(event) or record.levelno >= logging.WARNING:
            _add(self._host, record.created, evidence.of_host(event, facts))

    def of(self, arn: str) -> tuple[Note, ...]:
        return tuple(self._tasks.get(arn, ()))

    def host(self, start: float) -> tuple[Note, ...]:
        """What happened around since then."""
        return tuple(one for one in self._host if one.at >= start)

    def _notes(self, arn: str) -> deque[Note]:
        notes = self._tasks.get(arn)
        if notes is None:
            notes = self._tasks[arn] = deque(maxlen=NOTES_PER_TASK)
            if len(self._tasks) > MOST_TASKS:
                self._tasks.popitem(last=False)
        else:
            self._tasks.move_to_end(arn)
        return notes


def _add(notes: deque[Note], at: float, text: str) -> None:
    """The same thing again in a row is counted, not repeated."""
    if notes and notes[-1].text == text:
        notes[-1] = msgspec.structs.replace(notes[-1], at=at, times=notes[-1].times + 1)
    else:
        notes.append(Note(at=at, text=text))
