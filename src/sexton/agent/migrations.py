"""The format of what the agent remembers: numbered steps, each taken once, over the rows of its database.

The store's own file has numbered steps of its own, for tables; these are for what is in the rows. A database without a
number is of the first format. One from a newer Sexton is refused, never guessed at. A step that has been released is
never edited: a change of format is a new step at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from sexton.store.contract import StoreError

FORMAT_KEY = "format"

Rows = Mapping[str, bytes]
Step = Callable[[Rows], dict[str, bytes]]


def _name_the_format(rows: Rows) -> dict[str, bytes]:
    """1: the rows as they are, from now on with their number."""
    return dict(rows)


STEPS: tuple[Step, ...] = (_name_the_format,)


def migrate(rows: Rows, steps: Sequence[Step] = STEPS) -> dict[str, bytes] | None:
    """The rows in today's format; None when they are in it already. StoreError for a format of the future."""
    raw = rows.get(FORMAT_KEY)
    number = msgspec.json.decode(raw, type=int) if raw is not None else 0
    if number > len(steps):
        raise StoreError(
            f"cannot read the saved state: its format is {number} and this Sexton knows formats up to {len(steps)}; "
            "install the Sexton that wrote it"
        )
    if number == len(steps):
        return None
    changed = {key: value for key, value in rows.items() if key != FORMAT_KEY}
    for step in steps[number:]:
        changed = step(changed)
    return changed | {FORMAT_KEY: msgspec.json.encode(len(steps))}
