"""Units of a host's systemd, over D-Bus: services that restart, and whatever has failed.

Cheap first: one call lists the services and one all that failed, one call each asks the restart counter of services
that run, start or failed, and only units that have restarted or are down are asked for all, in one answer each.
Nothing is written and nothing is started: the manager is always there already.

How the manager is reached is in ``host/systemd_bus.py``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sexton.host.errors import Absent, Unreadable
from sexton.host.systemd_bus import MANAGER, MANAGER_PATH, SERVICE, UNIT, call, connect, get_properties, get_property

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

# A manager that is alive answers in a millisecond; one that takes this long is stuck, and that is worth saying.
ANSWER_DEADLINE = 2.0
# So many questions are under way at once: enough to hide the round trip, few enough not to flood the bus.
PIPELINE = 16
_LIVE_STATES = ("active", "activating", "deactivating", "reloading", "failed")
_FOREVER = 2**64 - 1  # systemd's "infinity" for microseconds


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One service unit that has restarted or is down. Spans are seconds, moments seconds since the epoch (0: never)."""

    name: str
    active_state: str
    sub_state: str
    restarts: int
    result: str
    restart: str
    restart_delay: float
    start_limit_interval: float
    start_limit_burst: int
    exit_status: int
    process_started: float
    process_runs: bool
    changed: float


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of another kind (a mount, a timer, a socket) that failed, and since when."""

    name: str
    changed: float


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """How many service units are loaded, how many of them were asked, and those that may matter; and units of other
    kinds that failed."""

    loaded: int
    asked: int
    suspects: tuple[Unit, ...]
    others: tuple[Failed, ...] = ()


async def read_services(root: Path) -> Services:
    """Look at all service units once. Absent where no systemd runs, Unreadable where it cannot be asked."""
    if not (root / "run/systemd/system").is_dir():
        raise Absent("systemd does not run here")
    from dbus_fast import AuthError, DBusError

    try:
        async with asyncio.timeout(ANSWER_DEADLINE):
            bus = await connect(root)
            try:
                return await _read(bus)
            finally:
                bus.disconnect()
    except TimeoutError as error:
        reason = f"systemd did not answer within {ANSWER_DEADLINE:g} s"
        raise Unreadable(reason, "Look at what PID 1 does: systemctl status, journalctl -b _PID=1.") from error
    except (OSError, EOFError, AuthError, DBusError) as error:
        reason = f"cannot ask systemd over D-Bus: {error or type(error).__name__}"
        raise Unreadable(reason, "Run it as root; check that the bus runs: systemctl status dbus.") from error


async def _read(bus: MessageBus) -> Services:
    from dbus_fast import DBusError

    listed = await call(bus, MANAGER_PATH, f"{MANAGER}.Manager", "ListUnitsByPatterns", "asas", [[], ["*.service"]])
    loaded = [row for row in listed if row[2] == "loaded"]
    # Between two turns of a loop a unit is inactive for an instant, with a start job (column 7) under way.
    alive = [row for row in loaded if row[3] in _LIVE_STATES or row[7]]
    slots = asyncio.Semaphore(PIPELINE)

    async def examine(row: list[Any]) -> Unit | None:
        name, active, sub, path = str(row[0]), str(row[3]), str(row[4]), str(row[6])
        async with slots:
            try:
                restarts = int(await get_property(bus, path, SERVICE, "NRestarts"))
                if restarts == 0 and active != "failed" and not sub.startswith("auto-restart"):
                    return None
                return _details(name, await get_properties(bus, path))
            except DBusError as error:
                if error.type.endswith((".UnknownObject", ".NoSuchUnit", ".UnknownProperty")):
                    return None  # unloaded since it was listed, or a manager older than restart counters
                raise

    async def fallen(row: list[Any]) -> Failed | None:
        async with slots:
            try:
                return Failed(name=str(row[0]), changed=await _changed(bus, str(row[6])))
            except DBusError as error:
                if error.type.endswith((".UnknownObject", ".NoSuchUnit")):
                    return None
                raise

    failed = await call(bus, MANAGER_PATH, f"{MANAGER}.Manager", "ListUnitsByPatterns", "asas", [["failed"], []])
    others = [row for row in failed if not str(row[0]).endswith(".service")]
    examined = await asyncio.gather(*(examine(row) for row in alive))
    suspects = tuple(unit for unit in examined if unit is not None)
    down = await asyncio.gather(*(fallen(row) for row in others))
    return Services(
        loaded=len(loaded),
        asked=len(alive),
        suspects=suspects,
        others=tuple(one for one in down if one is not None),
    )


async def _changed(bus: MessageBus, path: str) -> float:
    return seconds(await get_property(bus, path, UNIT, "StateChangeTimestamp"))


def _details(name: str, now: dict[str, Any]) -> Unit:
    """A unit as it is now. In a fast loop it is another one than it was when it was listed: its state and its process
    must be of one moment, or a unit seems to run without a process."""
    return Unit(
        name=name,
        active_state=str(now["ActiveState"]),
        sub_state=str(now["SubState"]),
        restarts=int(now["NRestarts"]),
        result=str(now["Result"]),
        restart=str(now["Restart"]),
        restart_delay=seconds(now["RestartUSec"]),
        start_limit_interval=seconds(now["StartLimitIntervalUSec"]),
        start_limit_burst=int(now["StartLimitBurst"]),
        exit_status=int(now["ExecMainStatus"]),
        process_started=seconds(now["ExecMainStartTimestamp"]),
        process_runs=int(now["MainPID"]) > 0,
        changed=seconds(now["StateChangeTimestamp"]),
    )


def seconds(microseconds: int) -> float:
    return float("inf") if microseconds == _FOREVER else microseconds / 1e6
