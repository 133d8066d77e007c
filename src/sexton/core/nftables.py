"""An nftables table as a value: written whole, or as the change from what it was before.

Both are texts for ``nft -f -``, which the kernel takes at once or not at all. The whole replaces a table of the same
name whatever is in it. A change touches only what differs, so that counters of all else go on and a large host pays for
one new task no more than a small one; who finds that it does not apply writes the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_FAMILY = "inet"


class Set(NamedTuple):
    """A set, or with ``key : value`` as its kind a map. An element has the words that follow it: value and comment."""

    name: str
    kind: str
    elements: Mapping[str, str]
    flags: str = ""
    counted: bool = False

    @property
    def word(self) -> str:
        return "map" if " : " in self.kind else "set"

    def head(self) -> str:
        flags = f" flags {self.flags};" if self.flags else ""
        return f"type {self.kind};{flags}{' counter;' if self.counted else ''}"

    def written(self, keys: Iterable[str]) -> str:
        return ", ".join(self._element(key) for key in keys)

    def _element(self, key: str) -> str:
        words = self.elements[key]
        if self.word == "map":
            return f"{key} : {words}"
        return " ".join(filter(None, (key, "counter" if self.counted else "", words)))


class Chain(NamedTuple):
    """A chain; with a header it is hooked."""

    name: str
    lines: tuple[str, ...]
    header: str = ""


class Table(NamedTuple):
    """A table. Chains are in the order in which they can be made: those that are jumped to come first."""

    name: str
    sets: tuple[Set, ...]
    chains: tuple[Chain, ...]


def whole(table: Table) -> str:
    """The text that puts the table into force in the place of whatever has its name."""
    name = f"{_FAMILY} {table.name}"
    text = [f"table {name}", f"delete table {name}", f"table {name} {{"]
    text += [f"chain {one.name} {{ {one.header} }}" for one in table.chains]
    for one in table.sets:
        elements = f" elements = {{ {one.written(one.elements)} }}" if one.elements else ""
        text.append(f"{one.word} {one.name} {{ {one.head()}{elements} }}")
    for chain in table.chains:
        text += [f"chain {chain.name} {{", *chain.lines, "}"] if chain.lines else []
    return "\n".join([*text, "}"]) + "\n"


def gone(name: str) -> str:
    """The text that removes a table, whether it is there or not."""
    return f"table {_FAMILY} {name}\ndelete table {_FAMILY} {name}\n"


def change(before: Table, after: Table) -> str:
    """The text that makes one table from the other; empty when they are the same."""
    name = f"{_FAMILY} {after.name}"
    old_sets, new_sets = {one.name: one for one in before.sets}, {one.name: one for one in after.sets}
    old_chains, new_chains = {one.name: one for one in before.chains}, {one.name: one for one in after.chains}
    text = [f"add chain {name} {one.name} {{ {one.header} }}" for one in after.chains if one.name not in old_chains]
    for one in after.sets:
        if one.name not in old_sets:
            text.append(f"add {one.word} {name} {one.name} {{ {one.head()} }}")
        text += _elements(name, old_sets.get(one.name), one)
    for chain in after.chains:
        former = old_chains.get(chain.name)
        if former is None or former.lines != chain.lines:
            text += [f"flush chain {name} {chain.name}"] if former else []
            text += [f"add rule {name} {chain.name} {line}" for line in chain.lines]
    stale = [one for one in before.chains if one.name not in new_chains]
    text += [f"flush chain {name} {one.name}" for one in stale]
    text += [f"delete {one.word} {name} {one.name}" for one in before.sets if one.name not in new_sets]
    text += [f"delete chain {name} {one.name}" for one in stale]
    return "\n".join(text) + "\n" if text else ""


def _elements(table: str, before: Set | None, after: Set) -> list[str]:
    """What brings a set's elements up to date; those that differ only in their words are made anew."""
    old = before.elements if before else {}
    stale = [key for key, words in old.items() if after.elements.get(key) != words]
    fresh = [key for key, words in after.elements.items() if old.get(key) != words]
    text = []
    if stale:
        text.append(f"delete element {table} {after.name} {{ {', '.join(stale)} }}")
    if fresh:
        text.append(f"add element {table} {after.name} {{ {after.written(fresh)} }}")
    return text
