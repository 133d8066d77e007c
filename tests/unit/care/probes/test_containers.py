"""From engine events to turns, and the ways an engine can fail to be there."""

from __future__ import annotations

import socket
from pathlib import Path

from sexton.care.probe import CouldNotLook, NotPresent, Scene
from sexton.care.probes.containers import look, turns_of
from sexton.runtime.contract import Event, EventKind


def scene(docker_host: str) -> Scene:
    return Scene(root=Path("/"), docker_host=docker_host, now=1000.0, uptime=500.0)


def event(kind: EventKind, time: float, ident: str = "c1", code: int | None = None) -> Event:
    return Event(kind=kind, container_id=ident, time=time, name="n", image="i", exit_code=code)


def test_a_start_and_its_death_are_one_turn() -> None:
    (turn,) = turns_of([event(EventKind.DIE, 12, code=3), event(EventKind.CREATE, 9), event(EventKind.START, 10)])

    assert (turn.started, turn.died, turn.life, turn.exit_code) == (10, 12, 2, 3)


def test_a_restarted_container_has_a_turn_for_each_start() -> None:
    turns = turns_of(
        [
            event(EventKind.START, 10),
            event(EventKind.DIE, 11, code=1),
            event(EventKind.START, 12),
            event(EventKind.DIE, 14, code=2),
        ]
    )

    assert [(turn.life, turn.exit_code) for turn in turns] == [(1, 1), (2, 2)]


def test_what_still_runs_is_a_turn_without_an_end() -> None:
    (turn,) = turns_of([event(EventKind.START, 10)])

    assert turn.died is None


def test_a_death_whose_start_is_forgotten_says_nothing_of_its_life() -> None:
    assert turns_of([event(EventKind.DIE, 12, code=1)]) == []


def test_running_out_of_memory_belongs_to_the_turn_it_ended() -> None:
    turns = turns_of(
        [
            event(EventKind.START, 1),
            event(EventKind.OOM, 2),
            event(EventKind.DIE, 3, code=137),
            event(EventKind.START, 4),
            event(EventKind.DIE, 5, code=137),
        ]
    )

    assert [turn.oom_killed for turn in turns] == [True, False]


async def test_no_engine(tmp_path: Path) -> None:
    assert isinstance(await look(scene(f"unix://{tmp_path}/docker.sock")), NotPresent)


async def test_a_dead_engine(tmp_path: Path) -> None:
    left_behind = socket.socket(socket.AF_UNIX)
    left_behind.bind(f"{tmp_path}/docker.sock")
    left_behind.close()

    seen = await look(scene(f"unix://{tmp_path}/docker.sock"))

    assert isinstance(seen, CouldNotLook)
    assert "docker info" in seen.next_step


async def test_an_address_nobody_understands() -> None:
    seen = await look(scene("ssh://elsewhere"))

    assert isinstance(seen, CouldNotLook)
    assert "ssh://elsewhere" in seen.reason
