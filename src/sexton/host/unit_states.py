"""What became of each unit of a running host: one call to systemd, one more for each unit that failed or never ran.

A state is a word a lock can keep: ``active``, ``inactive``, ``failed: exit-code``, ``auto-restart``, or ``skipped``
when a condition was not met at its last start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sexton.host.errors import Absent, Unreadable
from sexton.host.systemd_bus import MANAGER, MANAGER_PATH, SERVICE, UNIT, call, connect, get_property

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

# A manager that is alive answers each question in a millisecond; a few hundred units are asked one by one.
ANSWER_DEADLINE = 10.0
KINDS = (".service", ".socket", ".timer", ".path")


async def read_states(root: Path) -> dict[str, str]:
    """By unit name. Absent where no systemd runs, Unreadable where it cannot be asked."""
    if not (root / "run/systemd/system").is_dir():
        raise Absent("systemd does not run here")
    from dbus_fast import AuthError, DBusError

    try:
        async with asyncio.timeout(ANSWER_DEADLINE):
            bus = await connect(root)
            try:
                listed = await call(
                    bus,
                    MANAGER_PATH,
                    f"{MANAGER}.Manager",
                    "ListUnitsByPatterns",
                    "asas",
                    [[], [f"*{kind}" for kind in KINDS]],
                )
                rows = [(str(row[0]), str(row[2]), str(row[3]), str(row[4]), str(row[6])) for row in listed]
                return {
                    name: await _state(bus, path, active, sub)
                    for name, loaded, active, sub, path in rows
                    if loaded == "loaded"
                }
            finally:
                bus.disconnect()
    except TimeoutError as error:
        reason = f"systemd did not answer within {ANSWER_DEADLINE:g} s"
        raise Unreadable(reason, "Look at what PID 1 does: systemctl status, journalctl -b _PID=1.") from error
    except (OSError, EOFError, AuthError, DBusError) as error:
        reason = f"cannot ask systemd over D-Bus: {error or type(error).__name__}"
        raise Unreadable(reason, "Run it as root; check that the bus runs: systemctl status dbus.") from error


async def _state(bus: MessageBus, path: str, active: str, sub: str) -> str:
    from dbus_fast import DBusError

    try:
        if sub.startswith("auto-restart"):
            return "auto-restart"
        if active == "failed":
            return f"failed: {await get_property(bus, path, SERVICE, 'Result')}"
        if active == "inactive":
            asked = await get_property(bus, path, UNIT, "ConditionTimestampMonotonic")
            if asked and not await get_property(bus, path, UNIT, "ConditionResult"):
                return "skipped"
    except DBusError as error:
        if not error.type.endswith((".UnknownObject", ".NoSuchUnit", ".UnknownProperty", ".UnknownInterface")):
            raise
    return active
