"""The part of the fake engine that misbehaves on demand: failures, delays and gates, by the name of the call.

A test scripts before or while the code under test runs; each call then passes the same four stations in the same
order: noted, delayed, held, failed (before its effect, or after it when only the answer is to be lost).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from sexton.runtime.contract import RuntimeFault, Unavailable


class Call(NamedTuple):
    """One call somebody made: the method's name and the reference it was about."""

    method: str
    ref: str


class Gate:
    """Holds calls: ``reached`` is set when one arrives, ``open()`` lets it and all later ones pass."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._opened.wait()


class _Failure(NamedTuple):
    error: RuntimeFault | type[RuntimeFault]
    after: bool

    def fault(self, method: str) -> RuntimeFault:
        return self.error(f"scripted failure of {method}") if isinstance(self.error, type) else self.error


class Script:
    """What is to go wrong, and what was called."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.is_up = True
        self._failures: dict[str, list[_Failure]] = {}
        self._gates: dict[str, Gate] = {}
        self._delays: dict[str, float] = {}

    def fail(
        self, method: str, error: RuntimeFault | type[RuntimeFault], times: int = 1, *, after: bool = False
    ) -> None:
        """The next ``times`` calls of ``method`` fail; ``after`` their effect, as when only the answer is lost."""
        self._failures.setdefault(method, []).extend([_Failure(error, after)] * times)

    def hold(self, method: str) -> Gate:
        """Calls of ``method`` from now on wait, before any effect, until the gate is opened."""
        gate = self._gates[method] = Gate()
        return gate

    def delay(self, method: str, seconds: float) -> None:
        """Every call of ``method`` takes this long from now on."""
        self._delays[method] = seconds

    def count(self, method: str) -> int:
        """How often ``method`` was called, whatever came of it."""
        return sum(call.method == method for call in self.calls)

    @asynccontextmanager
    async def call(self, method: str, ref: str = "") -> AsyncIterator[None]:
        """Around the effect of one call."""
        self.calls.append(Call(method, ref))
        if method in self._delays:
            await asyncio.sleep(self._delays[method])
        if method in self._gates:
            await self._gates[method].wait()
        self.answer()
        waiting = self._failures.get(method)
        failure = waiting.pop(0) if waiting else None
        if failure is not None and not failure.after:
            raise failure.fault(method)
        yield
        self.answer()
        if failure is not None:
            raise failure.fault(method)

    def answer(self) -> None:
        """Unavailable while the engine is down."""
        if not self.is_up:
            raise Unavailable("cannot reach the container engine at fake://: it is down; is it running?")
