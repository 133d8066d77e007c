"""Service units as they change: systemd's own signals, not a look again and again.

systemd sends a unit's properties each time they change, once it is asked to. A pair of signals (the service's own part,
then the unit's) makes one state here. Nothing is sent while nothing happens, so an idle host costs nothing. Signals
that come faster than they are read are dropped at a bound, counted in ``lost``; each carries the whole state, so the
next tells.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sexton.core.lives import UnitState
from sexton.host.errors import Absent, Unreadable
from sexton.host.systemd_bus import MANAGER, MANAGER_PATH, SERVICE, UNIT, connect, get_property
from sexton.host.units import ANSWER_DEADLINE, seconds

if TYPE_CHECKING:
    from dbus_fast import Message
    from dbus_fast.aio import MessageBus

# So many states may wait to be read; a host that restarts everything at once stays below it.
WAITING = 2048
# Parts of states that have not been completed; forgotten beyond this, the next signal brings all of them again.
PARTS = 1024
_UNITS = "/org/freedesktop/systemd1/unit/"
_TIMER = "org.freedesktop.systemd1.Timer"
_PROPERTIES = "org.freedesktop.DBus.Properties"


class UnitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is set about a unit's restarts, and what starts it."""

    restart: str
    restart_delay: float
    start_limit_interval: float
    start_limit_burst: int
    triggered_by: tuple[str, ...]
    command: str
    masked: bool = False


class UnitSignals:
    """An open subscription. Belongs to the loop that opened it."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._states: asyncio.Queue[UnitState | None] = asyncio.Queue(WAITING)
        self._parts: dict[str, dict[str, Any]] = {}
        self._ended: asyncio.Future[None] | None = None
        self.lost = 0

    async def begin(self) -> None:
        """Have the signals sent."""
        from dbus_fast import Message

        self._ended = asyncio.ensure_future(self._bus.wait_for_disconnect())  # type: ignore[no-untyped-call]
        self._ended.add_done_callback(self._hung_up)
        self._bus.add_message_handler(self._hear)
        if self._bus.unique_name != ":peer":
            rule = f"type='signal',interface='{_PROPERTIES}',path_namespace='/org/freedesktop/systemd1/unit'"
            await self._bus.call(
                Message(
                    destination="org.freedesktop.DBus",
                    path="/org/freedesktop/DBus",
                    interface="org.freedesktop.DBus",
                    member="AddMatch",
                    signature="s",
                    body=[rule],
                )
            )
        await self._ask(MANAGER_PATH, f"{MANAGER}.Manager", "Subscribe")

    def close(self) -> None:
        if self._ended is not None:
            self._ended.cancel()
        self._bus.disconnect()

    async def _ask(self, path: str, interface: str, member: str) -> None:
        from dbus_fast import Message

        await self._bus.call(Message(destination=MANAGER, path=path, interface=interface, member=member))

    async def next(self) -> UnitState | None:
        """The next change of a service unit; None once systemd or the bus has hung up. May be cancelled."""
        return await self._states.get()

    @property
    def caught_up(self) -> bool:
        """Has every change that was told been read?"""
        return self._states.empty()

    def _hung_up(self, ended: asyncio.Future[None]) -> None:
        if not ended.cancelled():
            ended.exception()  # how it ended is no news: that it ended is
        try:
            self._states.put_nowait(None)
        except asyncio.QueueFull:
            self._states.get_nowait()
            self._states.put_nowait(None)

    def _hear(self, message: Message) -> bool:
        if message.member != "PropertiesChanged" or not (message.path or "").startswith(_UNITS):
            return False
        path = message.path or ""
        if not path.endswith("_2eservice"):
            return False
        interface, changed = message.body[0], message.body[1]
        if interface == SERVICE:
            while len(self._parts) >= PARTS:
                del self._parts[next(iter(self._parts))]
            part = self._parts.setdefault(path, {})
            part.update({name: changed[name].value for name in ("NRestarts", "Result") if name in changed})
        elif interface == UNIT and "ActiveState" in changed:
            self._complete(path, {name: variant.value for name, variant in changed.items()})
        return True

    def _complete(self, path: str, unit: dict[str, Any]) -> None:
        service = self._parts.get(path, {})
        changed_at = seconds(int(unit.get("StateChangeTimestamp", 0)))
        state = UnitState(
            unit=unescaped(path.removeprefix(_UNITS)),
            run=bytes(unit.get("InvocationID", b"")).hex(),
            active=str(unit.get("ActiveState", "")),
            sub=str(unit.get("SubState", "")),
            result=str(service.get("Result", "success")),
            restarts=int(service.get("NRestarts", 0)),
            asked=bool(unit.get("Job", (0, "/"))[0]),
            began=seconds(int(unit.get("InactiveExitTimestamp", 0))),
            at=changed_at or time.time(),
        )
        try:
            self._states.put_nowait(state)
        except asyncio.QueueFull:
            self.lost += 1

    async def plan(self, unit: str) -> UnitPlan:
        """Raises Unreadable when systemd does not answer, KeyError when it has no such unit."""
        path = _UNITS + escaped(unit)

        async def service(name: str) -> Any:
            return await get_property(self._bus, path, SERVICE, name)

        async def generic(name: str) -> Any:
            return await get_property(self._bus, path, UNIT, name)

        with _answered(unit):
            async with asyncio.timeout(ANSWER_DEADLINE):
                commands = await service("ExecStart")
                return UnitPlan(
                    restart=str(await service("Restart")),
                    restart_delay=seconds(int(await service("RestartUSec"))),
                    start_limit_interval=seconds(int(await generic("StartLimitIntervalUSec"))),
                    start_limit_burst=int(await generic("StartLimitBurst")),
                    triggered_by=tuple(map(str, await generic("TriggeredBy"))),
                    command=" ".join(" ".join(map(str, command[1])) for command in commands),
                    masked=str(await generic("LoadState")) == "masked",
                )

    async def triggered_at(self, timer: str) -> float:
        """When a timer last started its unit; 0 when it never did or nobody knows."""
        with _answered(timer):
            async with asyncio.timeout(ANSWER_DEADLINE):
                return seconds(int(await get_property(self._bus, _UNITS + escaped(timer), _TIMER, "LastTriggerUSec")))

    async def up_since(self, unit: str) -> float:
        """Since when the unit is active without an automatic restart; 0 when it is not."""
        path = _UNITS + escaped(unit)
        with _answered(unit):
            async with asyncio.timeout(ANSWER_DEADLINE):
                active = str(await get_property(self._bus, path, UNIT, "ActiveState"))
                if active not in ("active", "reloading") or int(
                    await get_property(self._bus, path, SERVICE, "NRestarts")
                ):
                    return 0.0
                return seconds(int(await get_property(self._bus, path, UNIT, "ActiveEnterTimestamp")))

    async def file_of(self, unit: str) -> str:
        """The file the unit is defined in."""
        with _answered(unit):
            async with asyncio.timeout(ANSWER_DEADLINE):
                return str(await get_property(self._bus, _UNITS + escaped(unit), UNIT, "FragmentPath"))


class _answered:  # noqa: N801 - reads as a sentence at its use
    """Turns the bus's ways of not answering into ours."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        from dbus_fast import DBusError

        if isinstance(error, DBusError):
            if error.type.endswith((".UnknownObject", ".NoSuchUnit", ".UnknownProperty", ".UnknownInterface")):
                raise KeyError(self._unit) from error
            raise Unreadable(f"cannot ask systemd about {self._unit}: {error}", "Look at what PID 1 does.") from error
        if isinstance(error, (TimeoutError, OSError, EOFError)):
            raise Unreadable(
                f"systemd did not answer about {self._unit}", "Look at what PID 1 does: journalctl -b _PID=1."
            ) from error


@asynccontextmanager
async def ask_units(root: Path, *, follow: bool = False) -> AsyncIterator[UnitSignals]:
    """Ask about single units, and with ``follow`` be told their changes. Absent where no systemd runs, Unreadable where
    it cannot be asked."""
    if not (root / "run/systemd/system").is_dir():
        raise Absent("systemd does not run here")
    from dbus_fast import AuthError, DBusError

    try:
        async with asyncio.timeout(ANSWER_DEADLINE):
            bus = await connect(root)
            signals = UnitSignals(bus)
            if follow:
                await signals.begin()
    except TimeoutError as error:
        reason = f"systemd did not answer within {ANSWER_DEADLINE:g} s"
        raise Unreadable(reason, "Look at what PID 1 does: systemctl status, journalctl -b _PID=1.") from error
    except (OSError, EOFError, AuthError, DBusError) as error:
        reason = f"cannot ask systemd over D-Bus: {error or type(error).__name__}"
        raise Unreadable(reason, "Run it as root; check that the bus runs: systemctl status dbus.") from error
    try:
        yield signals
    finally:
        signals.close()


def escaped(unit: str) -> str:
    """A unit's name as part of an object path."""
    kept = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join(
        char if char in kept and not (at == 0 and char.isdigit()) else f"_{ord(char):02x}"
        for at, char in enumerate(unit)
    )


def unescaped(part: str) -> str:
    """The unit's name of a part of an object path."""
    pieces = part.split("_")
    return pieces[0] + "".join(chr(int(piece[:2], 16)) + piece[2:] for piece in pieces[1:] if len(piece) >= 2)
