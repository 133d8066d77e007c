"""Which path is answered by whom.

A pattern is a path whose parts are words or names in braces: ``{id}`` stands for one part, which may be empty, and
``{rest*}`` for all that follows. Whoever answers is given what they stood for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from sexton.kit import web

LOOPBACK = "lo"
"""The interface by which calls of the host itself come in, and of all who share its network."""

_HOLE = re.compile(r"\{(\w+)(\*?)\}")


class Caller(NamedTuple):
    """Who asks. ``task`` is the ARN of the one task in whose own network the call was made; where several share a
    network it is empty, and what is known is the address, and the interface that the call came in by."""

    address: str
    port: int = 0
    task: str = ""
    interface: str = ""


class Call(NamedTuple):
    """One request, and what its path said."""

    request: web.BaseRequest
    path: str  # decoded, without the query
    found: Mapping[str, str]
    caller: Caller


Handler = Callable[[Call], Awaitable[web.Response]]


class Routes:
    """A table of patterns; the one added first answers."""

    def __init__(self) -> None:
        self._by_word: dict[str, list[tuple[re.Pattern[str], Handler]]] = {}
        self._later: list[tuple[frozenset[str], Callable[[], None]]] = []

    def add(self, pattern: str, handler: Handler) -> None:
        """Have a handler answer every path like this; the first part of a pattern is a word."""
        expression = ""
        at = 0
        for hole in _HOLE.finditer(pattern):
            expression += re.escape(pattern[at : hole.start()])
            expression += f"(?P<{hole[1]}>{'.*' if hole[2] else '[^/]*'})"
            at = hole.end()
        expression += re.escape(pattern[at:])
        self._by_word.setdefault(_first(pattern), []).append((re.compile(expression, re.DOTALL), handler))

    def when_asked(self, words: Iterable[str], add: Callable[[], None]) -> None:
        """Have patterns added when a path that begins with one of these words is first asked for."""
        self._later.append((frozenset(words), add))

    def find(self, path: str) -> tuple[Handler, dict[str, str]] | None:
        """Who answers a path, and what the holes of the pattern stood for."""
        word = _first(path)
        for later in [one for one in self._later if word in one[0]]:
            self._later.remove(later)
            later[1]()
        for pattern, handler in self._by_word.get(word, ()):
            match = pattern.fullmatch(path)
            if match is not None:
                return handler, match.groupdict()
        return None


def _first(path: str) -> str:
    return path[1:].partition("/")[0]
