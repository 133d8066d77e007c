"""The vocabulary of ``constraints_table``: what a service model can demand of a request.

The generated table is made of these values and nothing else; ``constraints`` turns them into checks. Names of shapes
are kept as text, so loading the table builds no class and follows no reference.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Text(NamedTuple):
    """A string: length bounds, a pattern to match in full, or the enum (by shape name) that lists its words."""

    minimum: int | None = None
    maximum: int | None = None
    pattern: str | None = None
    expression: str | None = None
    """``pattern`` in Python's dialect; the pattern itself is only shown."""
    choices: str | None = None


class Number(NamedTuple):
    """An integer or double between bounds."""

    minimum: float | None = None
    maximum: float | None = None


class Nested(NamedTuple):
    """A structure with its own entry in the table."""

    shape: str


class Items(NamedTuple):
    """A list: how many items, and what each must satisfy."""

    minimum: int | None = None
    maximum: int | None = None
    item: Text | Number | Nested | None = None


class Entries(NamedTuple):
    """A map of texts: how many entries, and what each key and value must satisfy."""

    minimum: int | None = None
    maximum: int | None = None
    key: Text | None = None
    value: Text | None = None


Rule: TypeAlias = Text | Number | Nested | Items | Entries


class Member(NamedTuple):
    """One field that has something to check: its Python name, its wire name, and the demand."""

    attribute: str
    wire: str
    required: bool = False
    rule: Rule | None = None


class Structure(NamedTuple):
    """The checked members of one structure. A union must have exactly one member set; ``union`` lists them all."""

    members: tuple[Member, ...] = ()
    union: tuple[str, ...] = ()
