"""How a reader says that it has nothing to tell.

    HostFault
      Absent       the host has no such thing (no systemd, no memory controller): there is nothing to look at
      Unreadable   it may well be there, but cannot be seen from here: nothing may be concluded

Telling the two apart is the point: the first is an answer, the second is the lack of one.
"""

from __future__ import annotations


class HostFault(Exception):  # noqa: N818
    """A reader has no reading; ``str()`` is one sentence for a person."""


class Absent(HostFault):
    """The host has no such thing."""


class Unreadable(HostFault):
    """It cannot be seen from here; ``next_step`` says what would help."""

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(reason)
        self.next_step = next_step
