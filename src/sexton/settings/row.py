"""One row of the table of settings, and what is raised where a value must not be guessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class BadSetting(Exception):  # noqa: N818 - the message is for a person
    """A setting that the program must not guess about. ``typed``: on the command line, by somebody who can correct
    it; otherwise it came from the environment or a file."""

    def __init__(self, message: str, *, typed: bool = False) -> None:
        super().__init__(message)
        self.typed = typed


class Setting(NamedTuple):
    """One variable. A bad value is a warning and counts as unset, unless it is ``strict``."""

    name: str  # the variable
    field: str  # where it lands in Settings
    parse: Callable[[str], Any]
    doc: str
    unit: str = ""
    minimum: float | None = None  # a smaller value is raised to it, with a warning
    maximum: float | None = None  # a larger value is lowered to it, with a warning
    below_is_unset: bool = False  # a value below the minimum counts as unset instead
    strict: bool = False  # a bad value ends the start
    key: str = ""  # its name in the JSON file of Amazon's agent, where it has one
    secret: bool = False  # never shown
