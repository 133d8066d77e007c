"""Changes one unit of a host's systemd, over D-Bus: stop, disable, mask, unmask, reset.

Each change is one call that the manager carries out whole, whatever becomes of the caller, and that does nothing when
it was done before. What a unit is like is read first and afterwards with ``read_unit``: nobody has to trust a reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sexton.host.errors import Absent, Unreadable
from sexton.host.systemd_bus import MANAGER, MANAGER_PATH, SERVICE, UNIT, call, connect, get_property

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

# Reading the unit files anew takes a manager a moment; a busy one with hundreds of units takes seconds.
CHANGE_DEADLINE = 20.0
# A stopped unit's processes get their own TimeoutStopSec (90 s by default); so often it is looked at meanwhile.
STOP_PAUSE = 0.1
# Where packages put their units; what lies there comes back with the next version of the package.
PACKAGED = ("/usr/lib/systemd/", "/lib/systemd/", "/usr/local/lib/systemd/")
ADMINS = "/etc/systemd/system/"


class UnitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a unit comes back. Names of units in the tuples."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    file_state: str
    preset: str
    fragment: str
    wanted_by: tuple[str, ...] = ()
    triggered_by: tuple[str, ...] = ()

    @property
    def down(self) -> bool:
        """Is it down, and not about to start again?"""
        return self.active_state in ("inactive", "failed")

    @property
    def masked(self) -> bool:
        return self.load_state == "masked" or self.file_state in ("masked", "masked-runtime")

    @property
    def enabled(self) -> bool:
        return self.file_state in ("enabled", "enabled-runtime", "linked", "linked-runtime")


@asynccontextmanager
async def manager(root: Path) -> AsyncIterator[UnitManager]:
    """The host's systemd. Absent where none runs; Unreadable where it cannot be asked or does not do as told."""
    if not (root / "run/systemd/system").is_dir():
        raise Absent("systemd does not run here")
    from dbus_fast import AuthError, DBusError

    try:
        async with asyncio.timeout(CHANGE_DEADLINE):
            bus = await connect(root)
        try:
            yield UnitManager(bus)
        finally:
            bus.disconnect()
    except TimeoutError as error:
        raise Unreadable(
            f"systemd did not answer within {CHANGE_DEADLINE:g} s", "Look at what PID 1 does: journalctl -b _PID=1."
        ) from error
    except (OSError, EOFError, AuthError, DBusError) as error:
        reason = f"systemd does not do it: {error or type(error).__name__}"
        raise Unreadable(reason, "Run it as root; check that the bus runs: systemctl status dbus.") from error


class UnitManager:
    """One connection's changes and readings."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus

    async def _ask(self, member: str, signature: str = "", body: Sequence[Any] = ()) -> Any:
        async with asyncio.timeout(CHANGE_DEADLINE):
            return await call(self._bus, MANAGER_PATH, f"{MANAGER}.Manager", member, signature, list(body))

    async def read_unit(self, name: str) -> UnitFacts:
        """How it stands now; a unit nobody knows has the load state not-found."""
        path = await self._ask("LoadUnit", "s", [name])

        async def text(member: str) -> str:
            return str(await self._get(path, UNIT, member))

        async def names(member: str) -> tuple[str, ...]:
            return tuple(str(one) for one in await self._get(path, UNIT, member))

        return UnitFacts(
            name=name,
            load_state=await text("LoadState"),
            active_state=await text("ActiveState"),
            sub_state=await text("SubState"),
            file_state=await text("UnitFileState"),
            preset=await text("UnitFilePreset"),
            fragment=await text("FragmentPath"),
            wanted_by=(*await names("WantedBy"), *await names("RequiredBy"), *await names("BoundBy")),
            triggered_by=await names("TriggeredBy"),
        )

    async def _get(self, path: str, interface: str, member: str) -> Any:
        async with asyncio.timeout(CHANGE_DEADLINE):
            return await get_property(self._bus, path, interface, member)

    async def restarts(self, name: str) -> int:
        return int(await self._get(await self._ask("LoadUnit", "s", [name]), SERVICE, "NRestarts"))

    async def stop(self, name: str, seconds: float) -> UnitFacts:
        """Stop it, and wait until it is down or the time is over; how it stands then."""
        facts = await self.read_unit(name)
        if facts.down:
            return facts
        await self._ask("StopUnit", "ss", [name, "replace"])
        until = asyncio.get_running_loop().time() + seconds
        while True:
            facts = await self.read_unit(name)
            if facts.down or asyncio.get_running_loop().time() >= until:
                return facts
            await asyncio.sleep(STOP_PAUSE)

    async def start(self, name: str) -> None:
        await self._ask("StartUnit", "ss", [name, "replace"])

    async def disable(self, name: str) -> None:
        """Remove the links that start it at boot, or with others, below /etc and /run."""
        await self._change("DisableUnitFiles", "asb", [[name], False])

    async def mask(self, name: str) -> None:
        """Make it impossible to start, in a way that no package touches."""
        await self._change("MaskUnitFiles", "asbb", [[name], False, False])

    async def _change(self, member: str, signature: str, body: Sequence[Any]) -> None:
        await self._ask(member, signature, body)
        await self._reload()

    async def _reload(self) -> None:
        """Have the manager read its files anew; it answers when it has."""
        await self._ask("Reload")

    async def reset_failed(self, name: str) -> None:
        """Forget that it failed, and how often it was started. A unit that is not loaded has nothing to forget."""
        from dbus_fast import DBusError

        try:
            await self._ask("ResetFailedUnit", "s", [name])
        except DBusError as error:
            if not error.type.endswith(".NoSuchUnit"):
                raise
