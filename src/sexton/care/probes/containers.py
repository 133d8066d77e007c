"""Looks for containers that die young over and over, whoever starts them.

systemd's counters miss a loop inside a service: the unit stays active while it makes one container after another. The
engine's events do not. Engines keep the last few hundred events (Docker 256), so one look replays the recent past and
needs no daemon that watched. Events become turns (a start and its death); the rule in ``core/finding.py`` judges them.

Flows in: the engine's buffered events. Flows out: a finding per looping kind of container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Turn, judge_containers
from sexton.runtime.contract import Event, EventKind, Runtime, RuntimeFault

# How far back a look goes; a loop slower than three turns in this time is found by its unit, or by a later look.
WINDOW = 900.0
# The engine sends what it has buffered in one go; silence for this long means that it has no more.
REPLAY_PAUSE = 0.25
# An engine that has not finished the replay by then is not asked further.
REPLAY_DEADLINE = 2.5


async def look(scene: Scene) -> Outcome:
    if scene.docker_host.startswith("unix://"):
        socket = Path(scene.docker_host.removeprefix("unix://"))
        try:
            if not socket.exists():  # noqa: ASYNC240 - one stat on a local file system
                return NotPresent(f"no container engine listens at {socket}")
        except OSError as error:
            return CouldNotLook(f"cannot reach the container engine at {socket}: {error.strerror}", "Run it as root.")
    from sexton.runtime.opening import open_runtime  # an HTTP client is only loaded when there is somebody to talk to

    try:
        runtime = open_runtime(scene.docker_host)
    except ValueError as error:
        return CouldNotLook(str(error), "Give --docker-host (or DOCKER_HOST) an address of that kind.")
    try:
        async with asyncio.timeout(REPLAY_DEADLINE):
            engine = await runtime.describe()
            events = await replay(runtime, since=scene.now - WINDOW, until=scene.now)
    except TimeoutError:
        return CouldNotLook(
            f"the container engine did not answer within {REPLAY_DEADLINE:g} s",
            "Check that it is not stuck: docker info.",
        )
    except RuntimeFault as fault:
        return CouldNotLook(
            f"cannot ask the container engine at {scene.docker_host}: {fault}",
            "Check that it runs and that this user may use it: docker info.",
        )
    finally:
        await runtime.close()
    turns = turns_of(events)
    findings = judge_containers(turns, scene.now)
    died = sum(1 for turn in turns if turn.died is not None)
    return Looked(
        says=(
            f"{len(turns):,} container starts and {died:,} deaths in the last {WINDOW / 60:.0f} minutes "
            f"({engine.name} {engine.version}), {len(findings):,} kinds in a loop"
        ),
        findings=findings,
        figures={"starts": len(turns), "deaths": died},
    )


async def replay(runtime: Runtime, since: float, until: float) -> list[Event]:
    """The events the engine still has of that time."""
    found: list[Event] = []
    async with runtime.events(since=since) as stream:
        while True:
            try:
                event = await asyncio.wait_for(anext(stream), REPLAY_PAUSE)
            except (TimeoutError, StopAsyncIteration):
                return found
            found.append(event)
            if event.time >= until:
                return found


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """Pair each start with the death that ended it. A death whose start the engine no longer has counts from the
    container's creation, or is left out when that is gone as well: nothing is known of how long it lived."""
    turns: list[Turn] = []
    created: dict[str, float] = {}
    running: dict[str, Turn] = {}
    choked: set[str] = set()
    for event in sorted(events, key=lambda e: e.time):
        key = event.container_id
        if event.kind is EventKind.CREATE:
            created[key] = event.time
        elif event.kind is EventKind.START:
            running[key] = Turn(container_id=key, name=event.name, image=event.image, started=event.time)
        elif event.kind is EventKind.OOM:
            choked.add(key)
        elif event.kind is EventKind.DIE:
            begun = running.pop(key, None)
            started = begun.started if begun is not None else created.get(key)
            if started is None:
                continue
            turns.append(
                Turn(
                    container_id=key,
                    name=event.name,
                    image=event.image,
                    started=started,
                    died=event.time,
                    exit_code=event.exit_code,
                    oom_killed=key in choked,
                )
            )
            choked.discard(key)
    return turns + list(running.values())


PROBE = Probe(
    name="containers",
    reads=("the container engine's buffered events (Docker keeps 256)",),
    cost="two requests and up to 256 events, however many containers there are; 2.5 s at most",
    look=look,
)
