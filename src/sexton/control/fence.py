"""Who may act alone: the one control plane of several that leads, with the conditions of each of its writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sexton.store.contract import Compare

# Conditions of every write; None while another control plane is the one that schedules.
Fence = Callable[[], Sequence[Compare] | None]


def alone() -> Sequence[Compare]:
    """The fence of a control plane that shares its store with no other."""
    return ()
