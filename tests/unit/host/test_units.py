"""systemd that is not there, and systemd that cannot be asked, are two different answers."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message, MessageType, Variant

from sexton.host import systemd_bus, units
from sexton.host.errors import Absent, Unreadable
from sexton.host.units import read_services


def booted(root: Path) -> Path:
    """A root where systemd says that it is the service manager."""
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "run/dbus").mkdir()
    return root


async def test_no_systemd(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="does not run here"):
        await read_services(tmp_path)


async def test_systemd_without_any_socket(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="neither the system bus nor its own socket"):
        await read_services(booted(tmp_path))


async def test_a_dead_bus_is_unreadable(tmp_path: Path) -> None:
    left_behind = socket.socket(socket.AF_UNIX)
    left_behind.bind(str(booted(tmp_path) / systemd_bus.SYSTEM_BUS))
    left_behind.close()

    with pytest.raises(Unreadable, match="refused"):
        await read_services(tmp_path)


async def test_a_bus_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "ANSWER_DEADLINE", 0.2)
    hung_up = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        hung_up.set()

    silent = await asyncio.start_unix_server(never_answer, str(booted(tmp_path) / systemd_bus.SYSTEM_BUS))
    begun = time.monotonic()
    async with silent:
        with pytest.raises(Unreadable, match=r"did not answer within 0\.2 s"):
            await read_services(tmp_path)
        await asyncio.wait_for(hung_up.wait(), 5)

    assert time.monotonic() - begun < 2


async def test_a_bus_that_hangs_up_is_unreadable(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    rude = await asyncio.start_unix_server(hang_up, str(booted(tmp_path) / systemd_bus.SYSTEM_BUS))
    async with rude:
        with pytest.raises(Unreadable, match="cannot ask systemd"):
            await read_services(tmp_path)


class LoopingUnit:
    """A manager with one unit that runs when it is listed and has ended, to be restarted, whenever it is asked more."""

    async def call(self, message: Message) -> Message:
        body: list[Any]
        if message.member == "ListUnitsByPatterns":
            row = ["looper.service", "", "loaded", "active", "running", "", "/looper", 0, "", "/"]
            body = [[] if message.body[0] else [row]]
        elif message.member == "GetAll":
            body = [self.now]
        else:
            body = [self.now[message.body[1]]]
        return Message(message_type=MessageType.METHOD_RETURN, reply_serial=1, signature="v", body=body)

    def disconnect(self) -> None:
        pass

    now = {
        "ActiveState": Variant("s", "activating"),
        "SubState": Variant("s", "auto-restart"),
        "Result": Variant("s", "exit-code"),
        "Restart": Variant("s", "always"),
        "NRestarts": Variant("u", 3),
        "MainPID": Variant("u", 0),
        "StartLimitBurst": Variant("u", 5),
        "ExecMainStatus": Variant("i", 3),
        "RestartUSec": Variant("t", 100_000),
        "StartLimitIntervalUSec": Variant("t", 0),
        "ExecMainStartTimestamp": Variant("t", 1_000_000),
        "StateChangeTimestamp": Variant("t", 2_000_000),
    }


async def test_a_unit_that_ended_since_it_was_listed_is_told_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed as running, and no process any more: that would be no loop, though it is one."""

    async def connect(root: Path) -> LoopingUnit:
        return LoopingUnit()

    monkeypatch.setattr(units, "connect", connect)

    (unit,) = (await read_services(booted(tmp_path))).suspects

    assert (unit.active_state, unit.sub_state, unit.process_runs) == ("activating", "auto-restart", False)
    assert (unit.restarts, unit.restart_delay, unit.process_started, unit.changed) == (3, 0.1, 1.0, 2.0)
