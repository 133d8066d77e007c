"""Who asked for a container: told from who was connected to the engine when it was made.

A container is the engine's child, so no process tree tells it. One sighting is proof when a client's own command
names the container or its image. Otherwise sightings of one kind of container are laid over each other: who was
connected each time, alone, is the asker. Two who were connected each time, or one sighting only, tell nothing, and
nothing is said.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

import msgspec

from sexton.core.finding import name_pattern

# Sightings laid over each other, and how few of them prove nothing.
SIGHTINGS = 16
FEWEST = 3
KINDS_KEPT = 256
# A name or image shorter than this stands in commands by chance.
SHORTEST_NAME = 4


class Connected(msgspec.Struct, frozen=True):
    """A client of the engine: the unit it runs in, and its command."""

    unit: str
    command: str


class Asker(msgspec.Struct, frozen=True):
    unit: str
    seen: str


class Askers:
    """What has been seen of each kind of container."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], deque[frozenset[str]]] = OrderedDict()
        self._known: dict[tuple[str, str], Asker] = {}

    def sighted(self, name: str, image: str, clients: Iterable[Connected]) -> Asker | None:
        """A container was made while these were connected. Who asked for it, when that can be told."""
        key = (image, name_pattern(name))
        clients = tuple(clients)
        naming = {client.unit for client in clients if client.unit and _names(client.command, name, image)}
        if len(naming) == 1:
            return self._know(key, Asker(naming.pop(), "its process named the container to the engine"))
        units = frozenset(client.unit for client in clients if client.unit)
        sightings = self._kinds.setdefault(key, deque(maxlen=SIGHTINGS))
        self._kinds.move_to_end(key)
        while len(self._kinds) > KINDS_KEPT:
            self._known.pop(self._kinds.popitem(last=False)[0], None)
        if units:
            sightings.append(units)
        common = frozenset.intersection(*sightings) if sightings else frozenset()
        if len(common) == 1 and len(sightings) >= FEWEST:
            seen = f"the only one connected to the engine each of {len(sightings)} times"
            return self._know(key, Asker(next(iter(common)), seen))
        if sightings and not common:
            self._known.pop(key, None)
        return self._known.get(key)

    def _know(self, key: tuple[str, str], asker: Asker) -> Asker:
        self._known[key] = asker
        while len(self._known) > KINDS_KEPT:
            del self._known[next(iter(self._known))]
        return asker

    def of(self, name: str, image: str) -> Asker | None:
        """Who asks for containers of this kind."""
        return self._known.get((image, name_pattern(name)))


def _names(command: str, name: str, image: str) -> bool:
    words = command.replace("=", " ").split()
    return any(len(word) >= SHORTEST_NAME and word in (name, image) for word in words)
