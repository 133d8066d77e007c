"""Which version of the Docker Engine API both ends speak.

Engines drop old versions as well as adding new ones, so a client that pins one breaks at an upgrade from either
side. The engine names its range in ``GET /version``; ours is below; the newest shared version is spoken.
"""

from __future__ import annotations

import re

from sexton.runtime.contract import Refused

Version = tuple[int, int]

OLDEST: Version = (1, 17)
"""The calls of this driver have kept their meaning since; task definitions name abilities from here on."""

NEWEST: Version = (1, 47)
"""The newest version whose notes were read for the calls of this driver."""

LEAST: Version = (1, 21)
"""An engine that knows no newer version than those below this one is too old to run tasks (no named volumes)."""


def parse(text: str) -> Version | None:
    """The two numbers of "1.41"; None when it is something else."""
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text)
    return (int(found[1]), int(found[2])) if found else None


def shared(minimum: str, maximum: str) -> tuple[str, ...]:
    """All versions that an engine with this range and this driver speak, ascending; Refused when there is none.

    Engines before 1.25 do not say what their minimum is; they serve all of ours.
    """
    top = parse(maximum)
    if top is None:
        raise Refused(f"cannot use this engine: it names no API version ({maximum!r}); is it a Docker engine?")
    bottom = parse(minimum) or OLDEST
    low, high = max(bottom, OLDEST), min(top, NEWEST)
    if high < LEAST or low > high:
        raise Refused(
            f"cannot use this engine: it speaks API {_show(bottom)} to {_show(top)}, "
            f"needed is one of {_show(LEAST)} to {_show(NEWEST)}; upgrade the older of the two"
        )
    return tuple(_show((1, minor)) for minor in range(low[1], high[1] + 1))


def _show(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
