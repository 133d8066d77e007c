"""A connection to a host's systemd over D-Bus, and the two kinds of question everybody asks.

The system bus is tried first. Where there is none (minimal images run without it) root may use the manager's own
socket. Both are found below the root directory given, so another systemd on the same machine, in a container or a
namespace, is reached through ``/proc/<pid>/root``. The D-Bus library is only loaded when somebody connects.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

# How long to wait before looking again whether the manager has read what it was sent; it reads within microseconds.
READ_PAUSE = 0.001

SYSTEM_BUS = "run/dbus/system_bus_socket"
MANAGER_SOCKET = "run/systemd/private"
MANAGER = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
SERVICE = f"{MANAGER}.Service"
UNIT = f"{MANAGER}.Unit"


async def connect(root: Path) -> MessageBus:
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


async def call(
    bus: MessageBus, path: str, interface: str, member: str, signature: str = "", body: list[Any] | None = None
) -> Any:
    from dbus_fast import DBusError, Message, MessageType

    reply = await bus.call(
        Message(
            destination=MANAGER, path=path, interface=interface, member=member, signature=signature, body=body or []
        )
    )
    if reply.message_type is MessageType.ERROR:
        raise DBusError(
            reply.error_name or "org.freedesktop.DBus.Error.Failed",
            str(reply.body[0]) if reply.body else "no reason given",
        )
    return reply.body[0] if reply.body else None


async def get_property(bus: MessageBus, path: str, interface: str, name: str) -> Any:
    answer = await call(bus, path, "org.freedesktop.DBus.Properties", "Get", "ss", [interface, name])
    return answer.value


async def get_properties(bus: MessageBus, path: str) -> dict[str, Any]:
    """All that the manager knows of one thing, at one moment: asked one by one, they may be of different ones."""
    answer = await call(bus, path, "org.freedesktop.DBus.Properties", "GetAll", "s", [""])
    return {name: variant.value for name, variant in answer.items()}
