"""Service units of a host's systemd, over D-Bus.

Cheap first: one call lists the units, one call each asks the restart counter of those that run, start or failed, and
only units that have restarted or are down get the few properties the loop rule needs. Nothing is written and nothing
is started: the manager is always there already.

The system bus is asked first. Where there is none (minimal images run without it) root may use the manager's own
socket. Both are found below the root directory given, so another systemd on the same machine, in a container or a
namespace, is read through ``/proc/<pid>/root``. The D-Bus library is only loaded when a systemd is there.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sexton.host.errors import Absent, Unreadable

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

# A manager that is alive answers in a millisecond; one that takes this long is stuck, and that is worth saying.
ANSWER_DEADLINE = 2.0
# So many questions are under way at once: enough to hide the round trip, few enough not to flood the bus.
PIPELINE = 16
# How long to wait before looking again whether the manager has read what it was sent; it reads within microseconds.
READ_PAUSE = 0.001

SYSTEM_BUS = "run/dbus/system_bus_socket"
MANAGER_SOCKET = "run/systemd/private"
_MANAGER = "org.freedesktop.systemd1"
_SERVICE = "org.freedesktop.systemd1.Service"
_UNIT = "org.freedesktop.systemd1.Unit"
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


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """How many service units are loaded, how many of them were asked, and those that may matter."""

    loaded: int
    asked: int
    suspects: tuple[Unit, ...]


async def read_services(root: Path) -> Services:
    """Look at all service units once. Absent where no systemd runs, Unreadable where it cannot be asked."""
    if not (root / "run/systemd/system").is_dir():
        raise Absent("systemd does not run here")
    from dbus_fast import AuthError, DBusError

    try:
        async with asyncio.timeout(ANSWER_DEADLINE):
            bus = await _connect(root)
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


async def _connect(root: Path) -> MessageBus:
    """The system bus or, where it is missing, closed to this user or dead, the manager's own socket."""
    from dbus_fast import AuthError, BusType
    from dbus_fast.aio import MessageBus

    trouble: Exception = FileNotFoundError("systemd runs, but neither the system bus nor its own socket is here")
    for relative, kind in ((SYSTEM_BUS, MessageBus), (MANAGER_SOCKET, _peer_bus())):
        path = root / relative
        try:
            if path.is_socket():
                return await kind(bus_address=f"unix:path={_escaped(path)}", bus_type=BusType.SYSTEM).connect()
        except (OSError, EOFError, AuthError) as error:
            trouble = error
    raise trouble


def _escaped(path: Path) -> str:
    """A path as a D-Bus address wants it."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/.*"
    return "".join(chr(byte) if chr(byte) in plain else f"%{byte:02x}" for byte in os.fsencode(path))


def _peer_bus() -> type[MessageBus]:
    from dbus_fast import Message, MessageType
    from dbus_fast.aio import MessageBus

    class PeerBus(MessageBus):
        """A connection to the manager itself, where nobody plays the bus.

        There is nobody to greet, so the refusal of the greeting that the library insists on is good news. And the
        manager reads ahead while it authenticates: a greeting that arrives together with the last line of that is put
        aside and forgotten until more comes. So it is sent only once the kernel says that line has been read.
        """

        async def _authenticate(self) -> None:
            await super()._authenticate()
            assert self._sock is not None  # connected: the base class has just spoken over it
            # Nothing announces that the other side has read; within the caller's deadline, ask until it has.
            while int.from_bytes(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder):  # noqa: ASYNC110
                await asyncio.sleep(READ_PAUSE)

        def _process_message(self, msg: Message) -> None:
            if msg.reply_serial == 1 and msg.message_type is MessageType.ERROR:
                msg = Message(message_type=MessageType.METHOD_RETURN, reply_serial=1, signature="s", body=[":peer"])
            super()._process_message(msg)

    return PeerBus


async def _call(
    bus: MessageBus, path: str, interface: str, member: str, signature: str = "", body: list[Any] | None = None
) -> Any:
    from dbus_fast import DBusError, Message, MessageType

    reply = await bus.call(
        Message(
            destination=_MANAGER, path=path, interface=interface, member=member, signature=signature, body=body or []
        )
    )
    if reply.message_type is MessageType.ERROR:
        raise DBusError(
            reply.error_name or "org.freedesktop.DBus.Error.Failed",
            str(reply.body[0]) if reply.body else "no reason given",
        )
    return reply.body[0]


async def _property(bus: MessageBus, path: str, interface: str, name: str) -> Any:
    answer = await _call(bus, path, "org.freedesktop.DBus.Properties", "Get", "ss", [interface, name])
    return answer.value


async def _read(bus: MessageBus) -> Services:
    from dbus_fast import DBusError

    listed = await _call(
        bus, "/org/freedesktop/systemd1", f"{_MANAGER}.Manager", "ListUnitsByPatterns", "asas", [[], ["*.service"]]
    )
    loaded = [row for row in listed if row[2] == "loaded"]
    # Between two turns of a loop a unit is inactive for an instant, with a start job (column 7) under way.
    alive = [row for row in loaded if row[3] in _LIVE_STATES or row[7]]
    slots = asyncio.Semaphore(PIPELINE)

    async def examine(row: list[Any]) -> Unit | None:
        name, active, sub, path = str(row[0]), str(row[3]), str(row[4]), str(row[6])
        async with slots:
            try:
                restarts = int(await _property(bus, path, _SERVICE, "NRestarts"))
                if restarts == 0 and active != "failed" and not sub.startswith("auto-restart"):
                    return None
                return await _details(bus, path, name, active, sub, restarts)
            except DBusError as error:
                if error.type.endswith((".UnknownObject", ".NoSuchUnit", ".UnknownProperty")):
                    return None  # unloaded since it was listed, or a manager older than restart counters
                raise

    examined = await asyncio.gather(*(examine(row) for row in alive))
    suspects = tuple(unit for unit in examined if unit is not None)
    return Services(loaded=len(loaded), asked=len(alive), suspects=suspects)


async def _details(bus: MessageBus, path: str, name: str, active: str, sub: str, restarts: int) -> Unit:
    async def service(member: str) -> Any:
        return await _property(bus, path, _SERVICE, member)

    return Unit(
        name=name,
        active_state=active,
        sub_state=sub,
        restarts=restarts,
        result=str(await service("Result")),
        restart=str(await service("Restart")),
        restart_delay=_seconds(await service("RestartUSec")),
        start_limit_interval=_seconds(await _property(bus, path, _UNIT, "StartLimitIntervalUSec")),
        start_limit_burst=int(await _property(bus, path, _UNIT, "StartLimitBurst")),
        exit_status=int(await service("ExecMainStatus")),
        process_started=_seconds(await service("ExecMainStartTimestamp")),
        process_runs=int(await service("MainPID")) > 0,
    )


def _seconds(microseconds: int) -> float:
    return float("inf") if microseconds == _FOREVER else microseconds / 1e6
