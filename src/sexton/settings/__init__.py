"""Every setting of the program: one typed tree, a table of what may be said, and the sources it is said in.

``tree`` is the value that the rest of the program reads. ``rows_*`` are the table: one row per variable, by topic.
``unused`` names the variables of Amazon's agent that change nothing here, each with its reason. ``sources`` fills the
tree. ``docs/settings.md`` and ``docs/moving.md`` are made from the same tables; tests keep them equal.
"""

from __future__ import annotations

from sexton.settings import rows_capability, rows_care, rows_identity, rows_network, rows_ours, rows_pace, rows_state
from sexton.settings.row import BadSetting, Setting
from sexton.settings.sources import CONFIG_FILES, Loaded, load, of_other_libraries, read_config_file
from sexton.settings.tree import LEVELS, LOGGING_DRIVERS, Hidden, Settings
from sexton.settings.unused import UNUSED, Unused

TABLE: tuple[Setting, ...] = (
    *rows_identity.ROWS,
    *rows_state.ROWS,
    *rows_capability.ROWS,
    *rows_network.ROWS,
    *rows_pace.ROWS,
    *rows_ours.ROWS,
    *rows_care.ROWS,
)

__all__ = [
    "CONFIG_FILES",
    "LEVELS",
    "LOGGING_DRIVERS",
    "TABLE",
    "UNUSED",
    "BadSetting",
    "Hidden",
    "Loaded",
    "Setting",
    "Settings",
    "Unused",
    "load",
    "of_other_libraries",
    "read_config_file",
]
