"""The same work for several askers, done once.

Whoever asks for a key while its work is under way waits for that work instead of beginning its own. The work goes on
as long as one of them waits and is cancelled with the last; each gets its result, or an exception of its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

from sexton.kit.supervise import Nursery

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Flight(Generic[Value]):
    def __init__(self) -> None:
        self.outcome: asyncio.Future[tuple[Value | None, Exception | None]]
        self.outcome = asyncio.get_running_loop().create_future()
        self.work: asyncio.Task[None] | None = None
        self.waiters = 0


class CalledOff(Exception):  # noqa: N818 - what became of the work
    """The work was cancelled from elsewhere, as when the process ends."""


class Together(Generic[Key, Value]):
    """Work under way, by key; for one event loop."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._flights: dict[Key, _Flight[Value]] = {}

    def under_way(self) -> Iterable[Key]:
        return tuple(self._flights)

    async def do(self, key: Key, name: str, work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """The result of the work that is under way for the key, or of this one."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.work = self._nursery.start(name, self._run(key, flight, work))
        flight.waiters += 1
        try:
            value, error = await asyncio.shield(flight.outcome)
        finally:
            flight.waiters -= 1
            if not flight.waiters and flight.work is not None and not flight.outcome.done():
                self._leave(key, flight)  # who asks from now on begins anew
                flight.work.cancel()
        if error is not None:
            # One of its own for each: an instance raised in many tasks would collect all their tracebacks.
            raise copy.copy(error)
        return value  # type: ignore[return-value]  # None only where the work gives it

    async def _run(self, key: Key, flight: _Flight[Value], work: Callable[[], Coroutine[Any, Any, Value]]) -> None:
        outcome: tuple[Value | None, Exception | None] = (None, CalledOff("the work was called off"))
        try:
            outcome = (await work(), None)
        except Exception as error:  # handed to everybody who waits
            outcome = (None, error)
        finally:
            self._leave(key, flight)
            if not flight.outcome.done():
                flight.outcome.set_result(outcome)

    def _leave(self, key: Key, flight: _Flight[Value]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
